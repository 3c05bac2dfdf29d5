"""SIGKILL at every failpoint: what is left is inert, the next run finishes, no answer changed.

A failpoint of several operations kills one of them, with `SILTSTONE_RACES=all` each.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

import siltstone as st
from siltstone import admin
from siltstone.failpoints import Failpoint, Point
from tests.races import shop
from tests.races.ledger import IS_ALL, elsewhere, killed_at, points_of
from tests.races.processes import ProcessDiedError, Spares

FRAMES = {"attach": (shop.attach, shop.after_attach), "ddl": (shop.ddl, shop.after_ddl)}
GARBAGE = f"{0:032x}.lance"
IN_FRAME = [*points_of("commit")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("killed") / "shop"
    shop.make(root)
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    root = Path(shutil.copytree(made, tmp_path / "shop"))
    (folder,) = root.glob("tables/wide-*/base/data")
    (folder / GARBAGE).write_bytes(b"nobody names it")
    os.utime(folder / GARBAGE, (0, 0))
    return root


def kill(spares: Spares, root: Path, operation: str, point: Point, *, is_owner: bool) -> None:
    """Let a process do the operation and die at `point`."""
    victim = spares.take()
    if is_owner:
        victim.call("open", root=str(root))
    victim.call("arm", orders=f"{point.label}=kill", socket="")
    with pytest.raises(ProcessDiedError):
        victim.start(operation, root=str(root), stamp=1).result(60)
    assert victim.died() == -signal.SIGKILL


def settle(db: st.Store) -> None:
    """Let all maintenance finish; nothing is late any more."""
    db.checkpoint()
    assert not isinstance(admin.merge_store(db.path), st.Deferred)
    admin.optimize_store(db.path, target_rows=shop.TARGET_ROWS, wait_s=0)
    db.checkpoint()  # which takes over what that made of the plain table
    assert not isinstance(db.optimize(target_rows=shop.TARGET_ROWS), st.Deferred)
    db.vacuum(dry_run=False, grace_s=0)
    assert not [*db.path.rglob(GARBAGE)]
    assert db.verify(deep=True).is_sound


def looks(db: st.Store) -> tuple[shop.Answers, shop.Answers]:
    with db.snapshot(tag=shop.TAG) as tagged:
        return shop.answers(db), shop.answers(tagged)


def check_elsewhere(spares: Spares, root: Path, operation: str, point: Point) -> None:
    """Kill a process that maintains a store beside its owner, which need not know."""
    with st.connect(root, **shop.OPTIONS) as db:
        before = looks(db)
        kill(spares, root, operation, point, is_owner=False)
        assert looks(db) == before
        db["short"].upsert({"id": 9_999, "n": 1})
        db["short"].delete([9_999])
        settle(db)
        assert looks(db) == before
    with st.connect(root, read_only=True) as db:
        assert looks(db) == before


@killed_at([*points_of("optimize"), *elsewhere("keys")])
def test_an_optimizer_killed_at_every_failpoint_leaves_the_next_run_to_finish(
    spares: Spares, root: Path, point: Point
) -> None:
    check_elsewhere(spares, root, "optimize", point)
    with st.connect(root, **shop.OPTIONS) as db:
        again = db.optimize(target_rows=shop.TARGET_ROWS)
        assert again == st.Optimized((), 0, 0, 0)


def test_a_killed_optimizers_work_on_a_part_that_lost_a_row_since_is_not_taken(
    spares: Spares, tmp_path: Path
) -> None:
    with st.connect(tmp_path / "db", **shop.OPTIONS) as db:
        table = db.create_table("t", {"id": "int64", "v": "string"}, "id")
        for part in range(2):
            table.upsert([{"id": n, "v": "old"} for n in range(300 * part, 300 * (part + 1))])
            fold(db)
        expected = dict.fromkeys(range(600), "old")
        kill(spares, db.path, "optimize", Failpoint.OPTIMIZE_AFTER_FRAGMENTS, is_owner=False)
        (dead,) = db.path.glob("jobs/*.json")
        assert len(dead.read_bytes().splitlines()) == 3  # the job, and tasks of base and history
        table.upsert({"id": 100, "v": "new"})
        table.delete([400])
        fold(db)
        expected[100] = "new"
        del expected[400]
        assert not isinstance(db.optimize(target_rows=shop.TARGET_ROWS), st.Deferred)
        assert not dead.exists()
        with st.connect(db.path, read_only=True) as reader:
            for each in (db, reader):
                found = each["t"].to_arrow().to_pydict()
                assert dict(zip(found["id"], found["v"], strict=True)) == expected
                assert len(found["id"]) == len(expected)
                assert each["t"].get(100) == {"id": 100, "v": "new"}
                assert each["t"].get(400) is None
        assert db.verify(deep=True).is_sound


def fold(db: st.Store) -> None:
    db.checkpoint()
    assert not isinstance(db.merge(), st.Deferred)


@killed_at([*points_of("merge"), *points_of("keys"), *elsewhere("publish")])
def test_a_merge_killed_at_every_failpoint_leaves_the_next_one_to_finish(
    spares: Spares, root: Path, point: Point
) -> None:
    check_elsewhere(spares, root, "merge", point)
    with st.connect(root, read_only=True) as db:
        assert db.status().tables[0].unmerged_rows == 0


@killed_at(points_of("index"))
def test_an_index_build_killed_at_every_failpoint_is_done_by_the_next_optimize(
    spares: Spares, root: Path, point: Point
) -> None:
    check_elsewhere(spares, root, "index", point)
    with st.connect(root, read_only=True) as db:
        (found,) = db["wide"].indexes()
        assert (found.name, found.lagging_rows) == ("of 1", 0)


@killed_at(points_of("vacuum"))
def test_a_vacuum_killed_at_every_failpoint_leaves_the_next_one_to_finish(
    spares: Spares, root: Path, point: Point
) -> None:
    check_elsewhere(spares, root, "vacuum", point)


@killed_at([*points_of("flush"), *points_of("publish"), *elsewhere("vacuum")])
def test_an_owner_killed_in_its_maintenance_leaves_all_that_it_had(
    spares: Spares, root: Path, point: Point
) -> None:
    operation = "vacuum_own" if point in points_of("vacuum") else "flush"
    with st.connect(root, read_only=True) as db:
        before = looks(db)
    kill(spares, root, operation, point, is_owner=True)
    with st.connect(root, read_only=True) as db:
        assert looks(db) == before
    with st.connect(root, **shop.OPTIONS) as db:
        assert looks(db) == before
        settle(db)
        assert looks(db) == before


def check_frame(spares: Spares, root: Path, operation: str, point: Point) -> None:
    """Kill an owner in a commit: all of it is there from its frame on, nothing before."""
    again, after = FRAMES[operation]
    with st.connect(root, read_only=True) as db:
        before, tagged = looks(db)
    kill(spares, root, operation, point, is_owner=True)
    is_there = point is Failpoint.COMMIT_AFTER_FRAME
    expected = after(before, 1) if is_there else before
    with st.connect(root, **shop.OPTIONS) as db:
        assert looks(db) == (expected, tagged)
        if not is_there:
            again(db, 1)
            expected = after(before, 1)
        assert looks(db) == (expected, tagged)
        settle(db)
        assert looks(db) == (expected, tagged)


@killed_at([*points_of("attach"), *IN_FRAME])
def test_an_owner_killed_in_a_bulk_commit_has_all_of_it_or_nothing(
    spares: Spares, root: Path, point: Point
) -> None:
    check_frame(spares, root, "attach", point)


@killed_at([*points_of("ddl"), *(IN_FRAME if IS_ALL else [Failpoint.COMMIT_AFTER_FRAME])])
def test_an_owner_killed_in_a_change_of_definitions_has_all_of_it_or_nothing(
    spares: Spares, root: Path, point: Point
) -> None:
    check_frame(spares, root, "ddl", point)
