"""Killed while it adopts a load, a merge leaves the load as it was, and is done again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st

VICTIM = """
import sys
import siltstone as st
from siltstone.failpoints import arm

with st.connect(sys.argv[1], background=False) as db:
    arm(sys.argv[2])
    db.checkpoint()
    db.merge()
"""
ROWS = 70_000
ORDERS = [
    "flush.before_publish=kill",
    "flush.after_publish=kill",
    "name.after_adoption=kill",
    "name.after_link=kill",
    "merge.before_publish=kill",
    "merge.after_publish=kill",
]


@pytest.mark.parametrize("order", ORDERS)
def test_a_kill_on_the_way_of_a_load_into_base_loses_nothing(tmp_path: Path, order: str) -> None:
    where = tmp_path / "shop"
    with st.connect(where, background=False) as db:
        table = db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        table.upsert([{"id": n, "v": "old"} for n in range(10)])
        stage = db.stage("t")
        piece = stage.run(pa.table({"id": range(5, ROWS), "v": ["load"] * (ROWS - 5)}))
        with db.transaction() as tx:
            tx.attach(stage, [piece])
        table.delete([7])
    done = subprocess.run([sys.executable, "-c", VICTIM, str(where), order], check=False)
    assert done.returncode == -signal.SIGKILL
    with st.connect(where, background=False) as db:
        for work in (lambda: None, db.checkpoint, db.merge, lambda: db.vacuum(dry_run=False)):
            work()
            table = db["t"]
            assert table.count() == ROWS - 1
            assert [table.get(n) and table.get(n)["v"] for n in (4, 5, 7)] == ["old", "load", None]
            assert db.verify(deep=True).is_sound
        names = {path.stat().st_ino for path in where.rglob("*.lance") if "base/data" in str(path)}
        load = next((where / "tables").rglob(".attached/*/data/*.lance"))
        assert load.stat().st_ino in names
