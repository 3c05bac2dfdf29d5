"""What a transaction tags is checked like any tag, and kept from vacuum until the commit."""

# pyright: reportArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.admin import follow_vacuum
from siltstone.errors import ConflictError, RequestError, SnapshotExpiredError
from siltstone.local.store import LocalStore
from tests.maintenance.stores import Clock, env_of, open_store, rows
from tests.server.stores import joined_to

COLUMNS = {"id": "int64", "v": "int64"}
DAYS = 3


def step(db: LocalStore, value: int) -> int:
    """Give each table other rows, in one commit that a record and a base have; return its seq."""
    with db.transaction() as tx:
        tx["t"].upsert([{"id": n, "v": value} for n in range(3)])
        tx["p"].overwrite([{"id": value, "v": value}])
    seq = db.seq
    db.checkpoint()
    db.merge()
    return seq


def content(source: st.Store | st.Snapshot) -> dict[str, list[tuple]]:
    return {name: rows(source[name]) for name in ("t", "p")}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def db(tmp_path: Path, clock: Clock) -> Iterator[LocalStore]:
    with open_store(tmp_path / "s", clock, retention_s=0) as db:
        db.create_table("t", COLUMNS, primary_key="id")
        db.create_table("p", COLUMNS)
        yield db


def by_the_owner(db: LocalStore, _: Clock) -> None:
    db.vacuum(dry_run=False, grace_s=0)


def beside_it(db: LocalStore, clock: Clock) -> None:
    follow_vacuum(db.path, db.options, env_of(clock), dry_run=False, grace_s=0)


VACUUMS = pytest.mark.parametrize("vacuum", [by_the_owner, beside_it])
Vacuum = Callable[[LocalStore, Clock], None]


@VACUUMS
@pytest.mark.parametrize("lasts_s", [0, 40 * 86_400])
def test_a_vacuum_before_the_commit_of_a_tag_takes_nothing_of_its_seq(
    db: LocalStore, clock: Clock, vacuum: Vacuum, lasts_s: int
) -> None:
    seq = step(db, 1)
    answer = content(db)
    step(db, 2)
    with db.transaction() as tx:
        tx.tag("then", seq, lasts_s)
        step(db, 3)
        step(db, 4)
        clock.move(days=DAYS)
        vacuum(db, clock)
        step(db, 5)
    for _ in range(2):
        clock.move(days=DAYS)
        db.checkpoint()
        vacuum(db, clock)
        step(db, 6)
        with db.snapshot(tag="then") as past:
            assert content(past) == answer
    assert db.verify(deep=True).is_sound
    db.close()
    with open_store(db.path, clock, retention_s=0) as again, again.snapshot(tag="then") as past:
        assert content(past) == answer


@VACUUMS
def test_a_seq_that_expired_is_not_tagged(db: LocalStore, clock: Clock, vacuum: Vacuum) -> None:
    seq = step(db, 1)
    step(db, 2)
    tx = db.transaction()
    step(db, 3)
    clock.move(days=DAYS)
    vacuum(db, clock)
    with pytest.raises(SnapshotExpiredError):
        tx.tag("then", seq)
    tx.rollback()
    assert db.tags() == {}


def test_a_tag_of_a_seq_that_another_tag_keeps_needs_that_one_until_its_commit(
    db: LocalStore, clock: Clock
) -> None:
    seq = step(db, 1)
    answer = content(db)
    db.tag("first", seq)
    step(db, 2)
    clock.move(days=DAYS)
    db.vacuum(dry_run=False)
    with db.transaction() as tx:
        tx.tag("second", seq)
    db.untag("first")
    with db.snapshot(tag="second") as past:
        assert content(past) == answer
    tx = db.transaction()
    tx.tag("third", seq)
    db.untag("second")
    db.vacuum(dry_run=False, grace_s=0)
    with pytest.raises(ConflictError):
        tx.commit()
    assert db.tags() == {}
    with pytest.raises(SnapshotExpiredError):
        db.tag("third", seq)


@pytest.mark.parametrize("before", [False, True], ids=["new", "there before"])
@pytest.mark.parametrize("theirs", ["set", "set for a time", "set and removed", "removed"])
@pytest.mark.parametrize("ours", [0, None], ids=["set", "removed"])
def test_of_two_that_change_one_tag_the_first_committer_wins(
    db: LocalStore, before: bool, theirs: str, ours: int | None
) -> None:
    if before:
        db.tag("t", 1)
    elif ours is None or theirs == "removed":
        return
    with db.transaction() as tx:
        tx.tag("other", 0)
    tx = db.transaction()
    tx.tag("t", ours)
    if theirs != "removed":
        db.tag("t", 2, lasts="1d" if theirs == "set for a time" else None)
    if "removed" in theirs:
        db.untag("t")
    db.untag("other")
    found = db.tags()
    if before or theirs != "set and removed":
        with pytest.raises(ConflictError, match="'t'"):
            tx.commit()
        assert db.tags() == found
    else:
        tx.commit()  # it is as it was
        assert db.tags() == {"t": 0}


WRONG = [
    ("", 1, 0),
    ("n" * 129, 1, 0),
    (7, 1, 0),
    (b"bytes", 1, 0),
    (None, 1, 0),
    ("#1/mine", 1, 0),
    ("then", "1", 0),
    ("then", 1.5, 0),
    ("then", True, 0),
    ("then", -1, 0),
    ("then", 1 << 70, 0),
    ("then", 1_000, 0),
    ("then", 1, 1.5),
    ("then", 1, -1),
    ("then", 1, "1d"),
    ("then", 1, True),
    ("then", 1, 1 << 40),
]


@pytest.mark.parametrize("is_joined", [False, True])
@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: repr(wrong)[:24])
def test_a_wrong_tag_is_refused_when_it_is_set_and_the_store_goes_on(
    tmp_path: Path, wrong: tuple[object, object, object], is_joined: bool
) -> None:
    with open_store(tmp_path / "s") as db:
        db.create_table("t", COLUMNS, primary_key="id").upsert({"id": 1, "v": 1})
        if is_joined:
            with joined_to(db) as joined:
                refuse(joined, wrong)
        else:
            refuse(db, wrong)
        db["t"].upsert({"id": 2, "v": 2})
        assert db.tags() == {}
    with open_store(tmp_path / "s") as db:
        assert (rows(db["t"]), db.tags()) == ([(1, 1), (2, 2)], {})


def refuse(db: st.Store, wrong: tuple[object, object, object]) -> None:
    with db.transaction() as tx:
        tx["t"].upsert({"id": 1, "v": 1})
        with pytest.raises((RequestError, SnapshotExpiredError)):
            tx.tag(*wrong)
