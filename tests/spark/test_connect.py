"""A client of Spark Connect reads and writes as any other; siltstone runs beside the server.

The packages of `pyspark[connect]` that these tests need are in the group `dev`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import siltstone as st
from tests.children import with_pandas
from tests.spark.connect_servers import connect_server


def test_a_server_elsewhere_serves_a_client_with_other_directories(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", {"id": "int64", "v": "string"}, "id")
        db["t"].upsert([{"id": n, "v": "old"} for n in range(2, 5)])
        db.create_table("other", {"id": "int64", "n": "int64"}, "id")
        db["other"].upsert([{"id": n, "n": -n} for n in range(3, 9)])
        db.create_table("many", {"id": "int64"}, "id").upsert([{"id": n} for n in range(10_000)])
        db.checkpoint()
        db.merge()
    client = tmp_path / "client"
    temporary = client / "tmp"
    temporary.mkdir(parents=True)
    root = Path(__file__).parent.parent.parent
    path = os.pathsep.join([str(root), with_pandas().get("PYTHONPATH", "")])
    with connect_server(tmp_path / "server") as url:
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.remote_driver", url, str(tmp_path / "s")],
            cwd=client, env=with_pandas() | {"PYTHONPATH": path, "TMPDIR": str(temporary)},
            text=True, capture_output=True, timeout=800, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stdout.splitlines() == [
        "client pyspark.sql.connect.session",
        "load [(2, 'old'), (3, 'old'), (4, 'old')]",
        "wrong True",
        "time True",
        "catalog True",
        "snapshot [(2, 'old'), (3, 'old'), (4, 'old')] [('old',), ('old',)]",
        "views ['many', 'other', 't']",
        "sql [('old', -4), ('old', -3)]",
        "many tasks 10000",
        "temporary files of the client []",
        "closed [(2, 'old'), (3, 'old'), (4, 'old')]",
        "upserted [(0, 'new'), (1, 'new'), (2, 'old'), (3, 'old'), (4, 'old')]",
        "created [(0, 'new'), (1, 'new')]",
        "conflict True",
        "kept 6",
        "both 5 4",
        "changes ['delete']",
        "before 6",
        "here 5 4",
    ]
