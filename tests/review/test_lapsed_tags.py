"""A vacuum forgets a tag that was to last for a time as it found it, never one set since."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from siltstone.errors import SnapshotExpiredError
from tests.maintenance.stores import Clock, open_store, rows

SCHEMA = {"id": "int64", "v": "int64"}


class Meanwhile:
    """What a vacuum knows of the owner; something else happens before a call of one name."""

    def __init__(self, live: object, name: str, act: Callable[[], object]) -> None:
        self._live, self._name, self._act = live, name, act

    def __getattr__(self, name: str) -> object:
        if name == self._name:
            self._name = ""
            self._act()
        return getattr(self._live, name)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def db(tmp_path: Path, clock: Clock):
    with open_store(tmp_path / "db", clock, retention_s=1) as store:
        store.create_table("t", SCHEMA, primary_key="id").upsert({"id": 1, "v": 1})
        store.checkpoint()
        yield store


def _moved_on(db, clock: Clock) -> None:
    for value in range(2, 5):
        clock.move(days=1)
        db["t"].upsert({"id": 1, "v": value})
        db.checkpoint()
        db.merge()
    clock.move(days=1)


@pytest.mark.parametrize("lasts", ["9d", None])
def test_a_tag_that_is_set_again_while_a_vacuum_forgets_it_stays(db, clock, lasts) -> None:
    tagged = db.seq
    db.tag("stream", lasts="1d")
    _moved_on(db, clock)
    vacuum = db._parts.owner.vacuum
    vacuum._live = Meanwhile(vacuum._live, "forget", lambda: db.tag("stream", tagged, lasts=lasts))
    vacuum.run(grace_s=0)
    assert db.tags() == {"stream": tagged}
    with db.snapshot(tag="stream") as then:
        assert rows(then["t"]) == [(1, 1)]
    if lasts is None:  # a plain tag keeps its seq, and not the changes since
        with pytest.raises(SnapshotExpiredError):
            db.changes(tagged)
    else:
        assert db.changes(tagged)["t"].read_all()["v"].to_pylist() == [2, 3, 4]


def test_a_tag_that_is_gone_before_a_vacuum_forgets_it_is_no_error(db, clock) -> None:
    db.tag("stream", lasts="1d")
    db.tag("other", lasts="1d")
    _moved_on(db, clock)
    vacuum = db._parts.owner.vacuum
    vacuum._live = Meanwhile(vacuum._live, "forget", lambda: db.untag("other"))
    vacuum.run(grace_s=0)
    assert db.tags() == {}


def test_a_tag_that_lapses_while_a_vacuum_runs_keeps_its_past_until_it_is_forgotten(
    db, clock
) -> None:
    tagged = db.seq
    _moved_on(db, clock)
    db.tag("stream", tagged, lasts="1d")
    vacuum = db._parts.owner.vacuum
    vacuum._live = Meanwhile(vacuum._live, "renew", lambda: clock.move(days=2))
    vacuum.run(grace_s=0)
    assert db.tags() == {"stream": tagged}
    db.tag("stream", tagged, lasts="1d")
    assert db.changes(tagged)["t"].read_all()["v"].to_pylist() == [2, 3, 4]
