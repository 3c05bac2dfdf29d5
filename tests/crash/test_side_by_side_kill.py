"""Killed between two tables of a flush, a process leaves each table with all of its rows.

Files of tables that were flushed are unused: no record names them, and the log still has the rows.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import siltstone as st
from siltstone.maintenance.flush.side_by_side import ITEMS_MIN

TABLES = 3 * ITEMS_MIN
VICTIM = """
import itertools, os, signal, sys
import siltstone as st
from siltstone.maintenance.flush.checkpoint import Checkpointer

ended, flush = itertools.count(1), Checkpointer._flush_table

def flush_some(self, *given):
    found = flush(self, *given)
    if next(ended) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return found

Checkpointer._flush_table = flush_some
with st.connect(sys.argv[1], background=False) as db:
    db.checkpoint()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Many tables, whose rows only the log has."""
    with st.connect(tmp_path / "s", background=False) as db:
        with db.transaction() as tx:
            for n in range(TABLES):
                tx.create_table(f"t{n}", {"id": "int64", "v": "int64"}, "id")
        db.checkpoint()
    code = (
        "import os, sys, siltstone as st\n"
        "db = st.connect(sys.argv[1], background=False)\n"
        "with db.transaction() as tx:\n"
        f"    for n in range({TABLES}):\n"
        "        tx[f't{n}'].upsert([{'id': k, 'v': n} for k in range(5)])\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "s")], check=True)
    return tmp_path / "s"


def _check(db: st.Store) -> None:
    for n in range(TABLES):
        found = db[f"t{n}"].to_arrow().sort_by("id").to_pydict()
        assert found == {"id": [*range(5)], "v": [n] * 5}, n


@pytest.mark.parametrize("ended", [1, 2, TABLES // 2, TABLES])
def test_a_flush_that_is_killed_between_two_tables_loses_no_row(path: Path, ended: int) -> None:
    done = subprocess.run([sys.executable, "-c", VICTIM, str(path), str(ended)], check=False)
    assert done.returncode == -signal.SIGKILL
    with st.connect(path, read_only=True) as db:
        _check(db)
    with st.connect(path, background=False) as db:
        _check(db)
        assert db.checkpoint().flushed_seq == db.seq
        db.vacuum(dry_run=False, grace_s=0)
        _check(db)
        assert db.verify(deep=True).is_sound
