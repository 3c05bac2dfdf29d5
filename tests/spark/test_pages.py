"""Spark's pages tell the reads of snapshots, and siltstone's own jobs, apart by their names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import siltstone as st
from tests.children import with_pandas


def test_spark_shows_files_rows_and_lag_of_a_read_and_what_our_jobs_are(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with st.connect(path, background=False) as db:
        orders = db.create_table("orders", {"id": "int64", "v": "string"}, "id")
        orders.insert([{"id": n, "v": "a"} for n in range(10)])
        db.checkpoint()
        db.merge()
        loaded = db.seq
        db.tag("loaded")
        orders.upsert([{"id": n, "v": "b"} for n in range(7, 11)])
        db.checkpoint()
        orders.upsert([{"id": n, "v": "c"} for n in (0, 11, 12)])
        now = db.seq
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.pages_driver", str(path)],
        cwd=Path(__file__).parent.parent.parent, env=with_pandas(), text=True,
        capture_output=True, timeout=800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stdout.splitlines() == [
        "job mine",
        f"job siltstone: merge all tables of {path}",
        "job siltstone: stage upsert of orders",
        f"step siltstone: merge all tables of {path}",
        f"step siltstone: orders at seq {loaded}: 1 file, 10 rows, 0 above base, 3 commits behind",
        f"step siltstone: orders at seq {now}: 3 files, 13 rows, 7 above base",
        f"step siltstone: orders at seq {now}: 3 files, 13 rows, 7 above base, filter",
        "step siltstone: stage upsert of orders",
    ]
