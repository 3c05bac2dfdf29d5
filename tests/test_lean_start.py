"""Who opens a store and reads a row imports what that needs, and no more."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

import siltstone as st
from tests.children import with_pandas

UNNEEDED = (
    *("siltstone.admin", "siltstone.server", "siltstone.cli", "siltstone.spark"),
    *("siltstone.joined.store", "siltstone.joined.connection", "siltstone.joined.joining"),
    *("siltstone.maintenance.backup", "siltstone.maintenance.repair"),
    *("siltstone.storage.objects", "siltstone.open.buckets", "siltstone.open.mirroring", "obstore"),
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


_SMALL = """
import sys
import siltstone
with siltstone.connect(sys.argv[1]) as db:
    assert db["t"].get(1) == {"id": 1, "v": "a"}
    db["t"].upsert({"id": 2, "v": "b"})
    assert db["t"].get(2) == {"id": 2, "v": "b"}
    assert db["t"].get(3) is None
    assert db["more"].get(2_999) == {"id": 2_999, "v": "c"}
    assert str(db["times"].get(1)["at"]) == "2026-01-01 00:00:00"
    print([name for name in ("lance", "pandas", "pyarrow.dataset") if name in sys.modules])
"""


def test_rows_that_only_the_log_has_are_read_and_written_without_lance_and_pandas(
    tmp_path: Path,
) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        table.upsert({"id": 1, "v": "a"})
        table.delete(3)
        times = db.create_table("times", {"id": "int64", "at": "timestamp[us]"}, primary_key="id")
        times.upsert({"id": 1, "at": dt.datetime(2026, 1, 1)})  # noqa: DTZ001 - it has no zone
        more = db.create_table("more", {"id": "int64", "v": "string"}, primary_key="id")
        more.upsert(pa.table({"id": range(3_000), "v": ["c"] * 3_000}))
    command = [sys.executable, "-c", _SMALL, str(tmp_path / "s")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=with_pandas()
    )
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


def test_the_results_are_all_there_when_they_are_asked_for() -> None:
    from siltstone.api import results

    for name in results.__all__:
        assert getattr(results, name) is not None
    assert st.Status is results.Status
