"""Killed while it leaves damaged files out, a backup is none; the next one goes through."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import siltstone as st
from siltstone.admin import backups

VICTIM = """
import itertools, os, signal, sys
import siltstone as st
from siltstone.maintenance.backup import backup

begun, copy = itertools.count(1), backup.copy_file

def copy_some(*given, **named):
    if next(begun) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return copy(*given, **named)

backup.copy_file = copy_some
with st.connect(sys.argv[1], background=False) as db:
    db.backup(sys.argv[2], incremental=True, skip_damaged=True)
"""
ROWS = [{"id": n, "v": "x"} for n in range(10)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two tables, one with a base that is damaged under all of its names."""
    with st.connect(tmp_path / "shop", background=False) as db:
        for name in ("bad", "good"):
            db.create_table(name, {"id": "int64", "v": "string"}, "id").upsert(ROWS)
        db.checkpoint()
        db.merge()
        db["good"].upsert({"id": 99, "v": "in the log"})
    for harmed in (tmp_path / "shop").glob("tables/bad-*/base/data/*.lance"):
        whole = harmed.read_bytes()
        harmed.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    return tmp_path / "shop"


@pytest.mark.parametrize("begun", [1, 2, 4, 6])
def test_a_backup_without_damaged_files_that_is_killed_is_none(
    root: Path, tmp_path: Path, begun: int
) -> None:
    given = [sys.executable, "-c", VICTIM, str(root), str(tmp_path / "b"), str(begun)]
    assert subprocess.run(given, check=False).returncode == -signal.SIGKILL
    assert list(backups(tmp_path / "b")) == []
    with st.connect(root, background=False) as db:
        made = db.backup(tmp_path / "b", incremental=True, skip_damaged=True)
        assert made.damaged
    assert st.restore(tmp_path / "b", tmp_path / "r").damaged == made.damaged
    with st.connect(tmp_path / "r", background=False) as db:
        found = db["good"].to_arrow().sort_by("id").to_pylist()
        assert found == [*ROWS, {"id": 99, "v": "in the log"}]
