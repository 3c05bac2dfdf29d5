"""SIGKILL in a vacuum that thins: every seq, range of changes and held snapshot stays as it was."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.failpoints import Point
from siltstone.local.store import LocalStore
from siltstone.open.environment import Env
from siltstone.options import Options
from siltstone.storage.manifest.floor import floor_in
from tests.maintenance.stores import EAGER
from tests.races.ledger import killed_at, points_of
from tests.races.processes import ProcessDiedError, Spares
from tests.races.test_killed import GARBAGE

OPTIONS = Options(background=False, segment_bytes=65_536, retention_s=86_400)
ENV = replace(Env(bounds=EAGER), load_rows_min=2)
SINCE = 3
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store with a record for each fold, loads that were adopted, and a tag."""
    root = tmp_path_factory.mktemp("thinned") / "db"
    with LocalStore.open(root, OPTIONS, env=ENV) as db:
        table = db.create_table("t", {"id": "int64", "v": "string"}, "id")
        for turn in range(6):
            table.upsert([{"id": n, "v": f"row {turn}"} for n in range(turn, turn + 9)])
            stage, ids = db.stage("t"), range(turn * 2, turn * 2 + 20)
            piece = stage.run(pa.table({"id": ids, "v": [f"load {turn}"] * len(ids)}))
            with db.transaction() as tx:
                tx.attach(stage, [piece])
            table.delete([turn * 2 + 1])
            db.checkpoint()
            db.merge()
            if turn == 2:
                db.tag("audit")
    return root


def rows_of(source: Any) -> Rows:
    return sorted(source["t"].to_arrow().to_pylist(), key=lambda row: row["id"])


def past(db: st.Store) -> dict[int, Rows]:
    """Return the rows at each seq from the first with the table on, and the changes since one."""
    found: dict[int, Rows] = {}
    for seq in range(1, db.seq + 1):
        with db.snapshot(seq=seq) as then:
            found[seq] = rows_of(then)
    found[0] = db.changes(SINCE, tables=["t"])["t"].read_all().to_pylist()
    return found


@killed_at(points_of("vacuum"))
def test_a_vacuum_that_thins_killed_at_every_failpoint_keeps_every_seq(
    spares: Spares, made: Path, tmp_path: Path, point: Point
) -> None:
    root = Path(shutil.copytree(made, tmp_path / "db"))
    unnamed = next(root.glob("tables/t-*/base/data")) / GARBAGE
    unnamed.write_bytes(b"so that a vacuum says what is condemned")
    os.utime(unnamed, (0, 0))
    with st.connect(root, read_only=True) as other, ExitStack() as held:
        expected = past(other)
        snapshots = [held.enter_context(other.snapshot(seq=n)) for n in expected if n % 5 == 4]
        victim = spares.take()
        victim.call("open_thinning", root=str(root))
        victim.call("arm", orders=f"{point.label}=kill", socket="")
        with pytest.raises(ProcessDiedError):
            victim.start("vacuum_own", root=str(root), stamp=1).result(60)
        assert victim.died() == -signal.SIGKILL
        assert past(other) == expected
        with LocalStore.open(root, OPTIONS, env=ENV) as db:
            assert past(db) == expected
            for _ in range(2):
                db.vacuum(dry_run=False, grace_s=0)
                assert past(db) == expected
            assert past(other) == expected
            assert db.verify(deep=True).is_sound
        assert [rows_of(each) for each in snapshots] == [expected[each.seq] for each in snapshots]
    floor = root / "manifest" / "FLOOR"
    assert floor_in(floor.read_bytes(), floor).upto, "no record was thinned"
