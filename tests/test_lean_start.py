"""Who opens a store and reads a row imports what that needs, and no more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import siltstone as st

UNNEEDED = (
    *("siltstone.admin", "siltstone.server", "siltstone.cli", "siltstone.spark"),
    *("siltstone.joined.store", "siltstone.joined.connection", "siltstone.joined.joining"),
    *("siltstone.maintenance.backup", "siltstone.maintenance.repair"),
    *("siltstone.maintenance.schedule.status", "siltstone.query.changes", "siltstone.query.sql"),
    *("siltstone.query.search.plan", "siltstone.query.search.vector_query"),
    *("siltstone.lance_namespace.operations", "siltstone.lance_namespace.scope"),
    *("siltstone.lance_versions.fresh", "siltstone.lance_namespace.client"),
    *("siltstone.lance_versions.version_statements", "siltstone.lance_namespace.rows"),
    *("siltstone.engine.filter.compiler", "siltstone.local.merge_insert"),
    *("pandas", "duckdb", "sqlglot", "polars", "http", "ssl", "socket", "asyncio", "pydantic"),
    *("typer", "starlette", "httptools", "pyspark", "lancedb", "lance_namespace_urllib3_client"),
)
_CHILD = """
import json, sys
import lance
before = set(sys.modules)
import siltstone
with siltstone.connect(sys.argv[1], background=False) as db:
    assert db["t"].get(1) == {"id": 1}
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_an_open_and_a_first_read_import_nothing_that_they_do_not_need(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", {"id": "int64"}, primary_key="id").upsert({"id": 1})
        db.checkpoint()
        db.merge()
    command = [sys.executable, "-c", _CHILD, str(tmp_path / "s")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "siltstone.local.store" in found
    below = tuple(f"{name}." for name in UNNEEDED)
    assert [name for name in found if name in UNNEEDED or name.startswith(below)] == []


def test_the_results_are_all_there_when_they_are_asked_for() -> None:
    from siltstone.api import results

    for name in results.__all__:
        assert getattr(results, name) is not None
    assert st.Status is results.Status
