"""Upserts that one thread commits together are decided as if each had a thread of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.api.store import Store
from siltstone.errors import InDoubtError, PoisonedError, TableNotFoundError
from siltstone.local.group_upserts import GroupUpserts
from tests.engine.seams import GatedFiles, Threads, fake_env, open_store, until

SCHEMA = {"id": "int64", "v": "int64"}


class Upserts:
    """A store whose log can be held up, and upserts of its tables."""

    def __init__(self, root: Path) -> None:
        self.root, self.gate = root, GatedFiles()
        self.store: Store = open_store(root, fake_env(self.gate), sync_interval_ms=3_600_000)
        self.table = self.store.create_table("t", SCHEMA, primary_key="id")
        self.core = self.store._core
        self.group = GroupUpserts(self.core)
        self.table.upsert({"id": 0, "v": 0})  # from here on nobody asks for room

    def planned(self, *rows: dict[str, object]) -> list:
        table = self.group.table("t")
        return [table.upsert(row) for row in rows]

    def rows(self, count: int, v: int = 1) -> list:
        return self.planned(*({"id": key, "v": v} for key in range(1, count + 1)))


@pytest.fixture
def upserts(tmp_path: Path) -> Iterator[Upserts]:
    made = Upserts(tmp_path / "db")
    yield made
    made.gate.failure, made.gate.no_space = None, False
    made.gate.release()
    made.store.close()


def test_each_has_a_receipt_of_its_own_in_the_order_given(upserts: Upserts) -> None:
    found = upserts.group.commit(upserts.rows(5))
    first = found[0].seq
    assert [each.seq for each in found] == [first + n for n in range(5)]
    assert len({each.transaction_id for each in found}) == 5
    assert upserts.table.count() == 6


def test_of_two_upserts_of_one_key_the_later_one_stays(upserts: Upserts) -> None:
    upserts.group.commit(upserts.planned({"id": 1, "v": 1}, {"id": 1, "v": 2}))
    assert upserts.table.get(1) == {"id": 1, "v": 2}


def test_they_survive_as_one_frame(upserts: Upserts) -> None:
    upserts.group.commit(upserts.rows(5))
    upserts.store.close()
    with st.connect(upserts.root) as db:
        assert db["t"].count() == 6


def test_one_sync_serves_them_all(upserts: Upserts) -> None:
    upserts.gate.hold()
    threads = Threads()
    threads.start(upserts.group.commit, upserts.rows(5))
    upserts.gate.wait()
    assert upserts.core.committer._queue == []  # all are in the frame that waits for its sync
    upserts.gate.release()
    threads.join()
    assert not upserts.gate.arrived.acquire(blocking=False)
    assert upserts.table.count() == 6


def test_two_groups_behind_a_commit_end_with_all_their_receipts(upserts: Upserts) -> None:
    results: list[list] = []
    threads = Threads()
    upserts.gate.hold()
    threads.start(upserts.table.upsert, {"id": 100, "v": 0})
    upserts.gate.wait()
    for first in (1, 11):
        rows = upserts.planned(*({"id": first + n, "v": 1} for n in range(5)))
        waiting = len(upserts.core.committer._queue)
        threads.start(lambda rows=rows: results.append(upserts.group.commit(rows)))
        until(lambda waiting=waiting: len(upserts.core.committer._queue) == waiting + 5)
    upserts.gate.release()
    threads.join()
    assert sorted(each.seq for found in results for each in found) == list(range(4, 14))
    assert upserts.table.count() == 12


def test_a_group_that_one_frame_does_not_hold_goes_in_several(
    upserts: Upserts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread leads again for what is left of its own, or another one does."""
    monkeypatch.setattr("siltstone.engine.commit.waiters.GROUP_BYTES_MAX", 1)
    found = upserts.group.commit(upserts.rows(5))
    assert [each.seq for each in found] == [*range(found[0].seq, found[0].seq + 5)]


def test_a_log_that_fails_leaves_all_in_doubt_each_under_its_id(upserts: Upserts) -> None:
    upserts.gate.failure = OSError(5, "Input/output error")
    found = upserts.group.commit(upserts.rows(3))
    assert all(isinstance(each, InDoubtError) for each in found)
    assert len({each.transaction_id for each in found}) == 3
    after = upserts.group.commit(upserts.rows(2))
    assert all(isinstance(each, PoisonedError) for each in after)


def test_where_the_table_changed_meanwhile_they_go_alone(upserts: Upserts) -> None:
    planned = upserts.rows(2)
    upserts.table.truncate()
    assert upserts.group.commit(planned) == [None, None]
    assert upserts.table.count() == 0


def test_who_has_to_wait_for_room_goes_alone(upserts: Upserts) -> None:
    upserts.core.committer.free = (), 0
    assert upserts.group.commit(upserts.rows(2)) == [None, None]
    assert upserts.table.count() == 1


def test_a_table_that_is_not_there_and_a_plain_one_have_no_plan(upserts: Upserts) -> None:
    upserts.store.create_table("plain", SCHEMA)
    assert upserts.group.table("plain") is None
    with pytest.raises(TableNotFoundError):
        upserts.group.table("absent")


def test_a_row_that_does_not_fit_is_refused_before_anything_is_committed(upserts: Upserts) -> None:
    with pytest.raises(st.SchemaMismatchError):
        upserts.planned({"id": "x", "v": 1})
    assert upserts.table.count() == 1
