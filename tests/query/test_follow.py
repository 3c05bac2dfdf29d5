"""A feed that is followed gives each commit once, whole and in order, and ends with its handle."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from siltstone.query.changes.followed import Change, commits_of
from tests.server.stores import DOORS, behind
from tests.unchanged import connect

SCHEMA = {"id": "int64"}


def told(changes: Iterator[Change], count: int) -> list[tuple[dict[str, list[Any]], bool]]:
    return [
        ({name: rows.column("id").to_pylist() for name, rows in each.tables.items()}, each.is_whole)
        for each in islice(changes, count)
    ]


@pytest.mark.parametrize("door", DOORS)
def test_each_commit_comes_once_and_whole(door: str, tmp_path: Path) -> None:
    with behind(door, tmp_path / "s") as db:
        db.create_table("a", SCHEMA, "id")
        db.create_table("b", SCHEMA, "id")
        db["a"].upsert({"id": 1})
        changes = db.follow()
        assert told(changes, 1) == [({"a": [1]}, True)]
        with db.transaction() as tx:
            tx["a"].upsert({"id": 2})
            tx["b"].upsert({"id": 3})
        db.tag("here")  # a commit without rows
        db.checkpoint()
        db["b"].delete(3)
        assert told(changes, 2) == [({"a": [2], "b": [3]}, True), ({"b": [3]}, True)]
        assert told(db.follow(tx.seq - 1, ["b"]), 2) == [({"b": [3]}, True), ({"b": [3]}, True)]


def test_a_reader_of_another_process_follows_the_owner(tmp_path: Path) -> None:
    with connect(tmp_path / "s") as owner:
        owner.create_table("a", SCHEMA, "id").upsert({"id": 1})
        with st.connect(tmp_path / "s", read_only=True) as db:
            changes = db.follow()
            assert told(changes, 1) == [({"a": [1]}, True)]
            owner["a"].upsert({"id": 2})
            assert told(changes, 1) == [({"a": [2]}, True)]


def test_only_durable_commits_come(tmp_path: Path) -> None:
    with connect(tmp_path / "s", sync_interval_ms=60_000) as db:
        db.create_table("a", SCHEMA, "id")
        changes = db.follow(db.seq)
        with db.transaction(durability="async") as tx:
            tx["a"].upsert({"id": 1})
        assert db.durable_seq < tx.seq
        db["a"].upsert({"id": 2})
        assert told(changes, 2) == [({"a": [1]}, True), ({"a": [2]}, True)]


def test_a_table_that_is_created_later_is_followed_too(tmp_path: Path) -> None:
    with connect(tmp_path / "s") as db:
        changes = db.follow()
        db.create_table("late", SCHEMA, "id").upsert({"id": 1})
        assert told(changes, 1) == [({"late": [1]}, True)]


def test_a_large_commit_comes_in_parts_of_which_the_last_is_whole(tmp_path: Path) -> None:
    with connect(tmp_path / "s") as db:
        for name in ("a", "b"):
            db.create_table(name, SCHEMA, "id")
        with db.transaction() as tx:
            tx["a"].upsert([{"id": key} for key in range(25)])
            tx["b"].upsert([{"id": key} for key in range(5)])
        db["a"].delete(1)
        found = list(commits_of(db.changes(), 10))
        assert [each.is_whole for each in found] == [False, False, True, True]
        assert [each.seq for each in found] == [tx.seq] * 3 + [tx.seq + 1]
        assert sum(rows.num_rows for each in found for rows in each.tables.values()) == 31
        assert all(rows.num_rows <= 10 for each in found for rows in each.tables.values())


def test_a_feed_that_waits_ends_when_its_handle_is_closed(tmp_path: Path) -> None:
    db = connect(tmp_path / "s")
    db.create_table("a", SCHEMA, "id").upsert({"id": 1})
    first, seen = threading.Event(), list[Change]()

    def watch() -> None:
        for change in db.follow():
            seen.append(change)
            first.set()

    watching = threading.Thread(target=watch)
    watching.start()
    assert first.wait(60)
    db.close()
    watching.join(60)
    assert not watching.is_alive()
    assert len(seen) == 1


def test_what_cannot_be_followed_is_refused_with_the_call(tmp_path: Path) -> None:
    with connect(tmp_path / "s") as db:
        db.create_table("a", SCHEMA, "id")
        db.create_table("p", SCHEMA)
        with pytest.raises(st.SnapshotExpiredError):
            db.follow(db.seq + 1)
        with pytest.raises(st.TableNotFoundError):
            db.follow(0, ["none"])
        with pytest.raises(st.RequestError):
            db.follow(0, ["p"])
        with pytest.raises(st.RequestError):
            db.follow("0")  # type: ignore[arg-type]
    with pytest.raises(st.ClosedError):
        db.follow()
