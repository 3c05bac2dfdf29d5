"""Killed between the commit of rows by path and the move of their version, an import comes once.

Whoever imports again finds the version where it was: its rows are in the table, and stay so once.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.api.store import Store
from siltstone.maintenance.repair.verify import DRIFT

VICTIM = """
import sys
import siltstone as st
from siltstone.failpoints import arm

with st.connect(sys.argv[1], join=sys.argv[2] == "joined", background=False) as db:
    arm(sys.argv[3])
    db.import_external("p", dry_run=False)
"""
VERSIONS, OWN = 3, [0, 1]


def by_path(db: Store, n: int) -> None:
    (folder,) = db.path.glob("tables/p-*")
    lance.write_dataset(pa.table({"id": [10 + n], "v": ["s"]}), str(folder), mode="append")


def ids(db: Store) -> list[int]:
    return sorted(db["p"].to_arrow()["id"].to_pylist())


def drift(db: Store) -> int:
    found = db.verify(deep=True).findings
    assert {each.severity for each in found} <= {DRIFT}
    return len(found)


@pytest.mark.parametrize("who", ["owner", "joined"])
@pytest.mark.parametrize("order", [f"import.after_commit=kill@{n + 1}" for n in range(VERSIONS)])
def test_a_kill_between_commit_and_quarantine_neither_doubles_nor_loses_rows(
    tmp_path: Path, order: str, who: str
) -> None:
    where, committed = tmp_path / "shop", int(order.partition("@")[2])
    victim = [sys.executable, "-c", VICTIM, str(where), who, order]
    with st.connect(where, background=False) as db:
        db.create_table("p", {"id": "int64", "v": "string"}).append(
            [{"id": n, "v": "a"} for n in OWN]
        )
        for n in range(VERSIONS):
            by_path(db, n)
        if who == "joined":
            db.serve_local()
            assert subprocess.run(victim, check=False).returncode == -signal.SIGKILL
    if who == "owner":
        assert subprocess.run(victim, check=False).returncode == -signal.SIGKILL
    with st.connect(where, background=False) as db:
        assert ids(db) == [*OWN, *range(10, 10 + committed)]
        assert drift(db) == VERSIONS - committed + 1
        db.checkpoint()
        db.vacuum(dry_run=False, grace_s=0)
        db.import_external("p", dry_run=False)
        whole = [*OWN, *range(10, 10 + VERSIONS)]
        assert (ids(db), drift(db)) == (whole, 0)
        assert db.import_external("p", dry_run=False).rows == 0
        by_path(db, VERSIONS)
        assert db.import_external("p", dry_run=False).rows == 1
        db.vacuum(dry_run=False, grace_s=0)
        assert (ids(db), drift(db)) == ([*whole, 10 + VERSIONS], 0)
