"""A machine that is lost with its disk takes nothing with it that was acknowledged as shipped.

Real processes and a bucket in another directory: the owner is killed as it commits, its store is
deleted, and a new one is made of the bucket alone.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from tests.maintenance.mirrors import content, restored, with_mirror
from tests.nightly import by_day
from tests.support.folder_objects import FolderServer

OWNER = """
import sys, threading
from pathlib import Path
from tests.maintenance.mirrors import with_mirror
from tests.support.folder_objects import FolderServer

root, folder = map(Path, sys.argv[1:])
db = with_mirror(root, FolderServer(folder), segment_bytes=65536)
if "t" not in db.tables():
    with db.transaction() as tx:
        tx.create_table("t", {"id": "int64", "text": "string"}, primary_key="id")
        tx.create_table("plain", {"id": "int64"})
    db.checkpoint()
said = threading.Lock()

def write(first):
    for number in range(first, first + 10_000):
        with db.transaction(durability="shipped") as tx:
            tx["t"].upsert({"id": number, "text": "x" * 500})
            if number % 10 == 0:
                tx["plain"].append([{"id": number}])
        with said:
            print(number, flush=True)
        if number % 25 == 24:
            db.checkpoint()

started = db["t"].count()
for place in range(3):
    first = 100_000 * place + started
    threading.Thread(target=write, args=(first,), daemon=True).start()
threading.Event().wait()
"""


def killed_owner(root: Path, folder: Path, count: int) -> set[int]:
    """Let an owner ship so many commits, and kill it; return what it acknowledged."""
    command = [sys.executable, "-c", OWNER, str(root), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        told: set[int] = set()
        for line in owner.stdout:
            told.add(int(line))
            if len(told) >= count:
                os.kill(owner.pid, signal.SIGKILL)
                break
        told.update(int(line) for line in owner.stdout if line.endswith("\n"))
    return told


def rows_of(root: Path) -> tuple[set[int], set[int]]:
    with st.connect(root, background=False) as db:
        found = content(db)
        assert db.verify(deep=True).findings == ()
        return ids_of(found["t"]), ids_of(found["plain"])


def ids_of(rows: list[dict[str, Any]]) -> set[int]:
    return {row["id"] for row in rows}


@pytest.mark.parametrize("count", by_day([40], [5, 40, 200]))
def test_a_killed_machine_loses_nothing_that_was_shipped(tmp_path: Path, count: int) -> None:
    root, folder = tmp_path / "s", tmp_path / "bucket"
    told = killed_owner(root, folder, count)
    assert len(told) >= count
    told |= killed_owner(root, folder, count)  # the next owner goes on with the log of the first
    shutil.rmtree(root)
    done = restored(FolderServer(folder), tmp_path / "r")
    keyed, plain = rows_of(tmp_path / "r")
    assert told <= keyed
    assert plain == {number for number in keyed if number % 10 == 0}
    with with_mirror(tmp_path / "r", FolderServer(tmp_path / "other")) as again:
        assert again.seq == done.seq
        with again.transaction(durability="shipped") as tx:
            tx["t"].upsert({"id": -1, "text": "after"})
    keyed, _ = rows_of(tmp_path / "r")
    assert -1 in keyed
