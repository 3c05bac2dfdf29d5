"""A client of Spark Connect reads and writes as any other; siltstone runs beside the server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import siltstone as st
from tests.children import with_pandas

NEEDED = ("grpc", "grpc_status", "google.rpc", "zstandard")  # of pyspark[connect]


def test_a_client_reads_writes_creates_and_commits_several_tables(tmp_path: Path) -> None:
    for package in NEEDED:
        pytest.importorskip(package)
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", {"id": "int64", "v": "string"}, "id")
        db["t"].upsert([{"id": n, "v": "old"} for n in range(2, 5)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_driver", str(tmp_path / "s")],
        cwd=Path(__file__).parent.parent.parent, env=with_pandas(), text=True,
        capture_output=True, timeout=800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stdout.splitlines() == [
        "client pyspark.sql.connect.session",
        "upserted [(0, 'new'), (1, 'new'), (2, 'new'), (3, 'old'), (4, 'old')]",
        "created 3",
        "both 4 6",
        "changes 1",
        "wrong True",
    ]
