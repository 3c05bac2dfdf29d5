"""A worker of Spark that runs a task of a read imports what that needs, and no store."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import siltstone as st
from siltstone.spark.context import schemas
from siltstone.spark.context.application import Read
from siltstone.spark.reads.task_rows import ScanTaskReader, Told
from tests.children import with_pandas

UNNEEDED = (
    *("siltstone.admin", "siltstone.local", "siltstone.joined", "siltstone.maintenance"),
    *("siltstone.open.owner", "siltstone.open.parts", "siltstone.lance_namespace"),
    *("siltstone.engine.commit", "siltstone.engine.read", "siltstone.engine.write"),
    *("siltstone.spark.sessions", "siltstone.spark.context.stores"),
    *("duckdb", "sqlglot", "polars", "http", "asyncio", "pydantic", "typer", "starlette"),
)
_CHILD = """
import json, pickle, sys
import pyspark.worker, pyarrow
from pyspark.sql.datasource import InputPartition
import lance
before = set(sys.modules)
work, tasks = pickle.loads(open(sys.argv[1], "rb").read())
found = sum(batch.num_rows for batch in work.read(InputPartition(tasks)))
print(json.dumps([found, sorted(set(sys.modules) - before)]))
"""


def test_a_task_of_a_read_imports_nothing_that_plans_or_opens_a_store(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", {"id": "int64"}, primary_key="id")
        table.upsert([{"id": 1}, {"id": 2}])  # base, with a row that is hidden, history and the log
        db.checkpoint()
        db.merge()
        table.upsert({"id": 2})
        db.checkpoint()
        table.upsert({"id": 3})
        with db.snapshot() as now:
            payload = pickle.dumps(_work(now))
            (tmp_path / "work").write_bytes(payload)
            done = subprocess.run(
                [sys.executable, "-c", _CHILD, str(tmp_path / "work")],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
                env=with_pandas(),
            )
    assert done.returncode == 0, done.stderr
    rows, imported = json.loads(done.stdout)
    assert rows == 3
    assert "siltstone.query.scan.scan_task" in imported
    below = tuple(f"{name}." for name in UNNEEDED)
    assert [name for name in imported if name in UNNEEDED or name.startswith(below)] == []


def _work(now: st.Snapshot) -> tuple[object, tuple[st.ScanTask, ...]]:
    """Return what Spark sends to a worker for a read."""
    told = Told(Read("", 0, "t", now.seq), None)
    return ScanTaskReader(schemas.to_spark(now["t"].schema), told), tuple(now.scan_tasks("t"))
