"""The members of one commit group are decided as if each had come alone, one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

import siltstone as st
from siltstone.api.store import Store
from siltstone.errors import ConflictError, InDoubtError, UnavailableError
from tests.engine.seams import GatedFiles, Threads, fake_env, open_store, until

SCHEMA = {"id": "int64", "v": "int64"}


class Group:
    """Makes one commit group out of commits that each have a thread."""

    def __init__(self, root: Path) -> None:
        self.gate = GatedFiles()
        self.store: Store = open_store(root, fake_env(self.gate), sync_interval_ms=3_600_000)
        self.table = self.store.create_table("t", SCHEMA, primary_key="id")
        self.first = self.store.create_table("first", SCHEMA, primary_key="id")
        self.results: dict[str, object] = {}

    def commit(self, *members: tuple[str, object]) -> dict[str, object]:
        """Run `members` (name, function) as one group behind a commit that waits at the gate."""
        threads = Threads()
        self.gate.hold()
        threads.start(self.first.upsert, {"id": -1, "v": 0})
        self.gate.wait()
        for name, work in members:
            waiting = self.waiting()
            threads.start(self._keep, name, work)
            until(lambda waiting=waiting: self.waiting() > waiting)
        self.gate.release()
        threads.join()
        return self.results

    def _keep(self, name: str, work: object) -> None:
        try:
            self.results[name] = work()
        except st.SiltstoneError as error:
            self.results[name] = error

    def waiting(self) -> int:
        return len(self.store._core.committer._queue)


@pytest.fixture
def group(tmp_path: Path):
    made = Group(tmp_path / "db")
    yield made
    made.gate.failure = None
    made.gate.release()
    made.store.close()


def with_token(group: Group, batch: int, v: int, durability: str = "sync"):
    def work() -> st.Receipt:
        tx = group.store.transaction(token=("app", batch), durability=durability)
        tx["t"].upsert({"id": batch, "v": v})
        return tx.commit()

    return work


def test_a_token_that_comes_twice_in_one_group_is_applied_once(group: Group) -> None:
    found = group.commit(("first", with_token(group, 5, 1)), ("second", with_token(group, 5, 2)))
    assert found["first"].seq == found["second"].seq
    assert group.table.get(5) == {"id": 5, "v": 1}


def test_a_lower_batch_behind_a_higher_one_in_a_group_is_refused(group: Group) -> None:
    found = group.commit(("six", with_token(group, 6, 1)), ("five", with_token(group, 5, 2)))
    assert isinstance(found["five"], st.RequestError)
    assert group.table.get(5) is None


def test_a_token_whose_first_commit_is_in_doubt_is_not_acknowledged(group: Group) -> None:
    def fail() -> st.Receipt:
        group.gate.failure = OSError(5, "Input/output error")
        return with_token(group, 5, 1)()

    found = group.commit(("first", fail), ("second", with_token(group, 5, 2)))
    assert not isinstance(found["second"], st.Receipt)


def test_of_two_conflicting_members_of_a_group_the_first_wins(group: Group) -> None:
    group.table.upsert({"id": 1, "v": 0})

    def raise_by(amount: int):
        def work() -> st.Receipt:
            tx = group.store.transaction()
            tx["t"].update(1, v=tx["t"].get(1)["v"] + amount)
            return tx.commit()

        return work

    found = group.commit(("one", raise_by(1)), ("ten", raise_by(10)))
    assert isinstance(found["ten"], ConflictError)
    assert group.table.get(1)["v"] == 1


def test_two_creates_of_one_name_in_a_group_make_one_table(group: Group) -> None:
    def create() -> st.Receipt:
        tx = group.store.transaction()
        tx.create_table("new", SCHEMA, "id")
        return tx.commit()

    found = group.commit(("first", create), ("second", create))
    assert isinstance(found["second"], st.TableExistsError)
    assert group.store.tables() == ["first", "new", "t"]


def test_a_row_for_a_table_that_its_group_dropped_is_refused(group: Group) -> None:
    found = group.commit(
        ("drop", lambda: group.store.drop_table("t")),
        ("row", lambda: group.table.upsert({"id": 9, "v": 9})),
    )
    assert isinstance(found["row"], st.TableNotFoundError)


def test_a_blind_upsert_behind_a_truncate_in_its_group_lands_in_the_new_incarnation(
    group: Group,
) -> None:
    found = group.commit(
        ("truncate", group.table.truncate), ("row", lambda: group.table.upsert({"id": 9, "v": 9}))
    )
    assert found["row"].seq > found["truncate"].seq
    assert group.table.to_arrow().to_pylist() == [{"id": 9, "v": 9}]


def test_a_blind_upsert_behind_an_added_column_in_its_group_says_what_becomes_of_it(
    group: Group,
) -> None:
    found = group.commit(
        ("add", lambda: group.table.add_column("note", "string")),
        ("row", lambda: group.table.upsert({"id": 9, "v": 9})),
        ("null", lambda: group.table.upsert({"id": 8, "v": 8}, missing="null")),
    )
    assert isinstance(found["row"], st.SchemaMismatchError)
    assert group.table.get(9) is None
    assert isinstance(found["null"], st.Receipt)
    assert group.table.get(8) == {"id": 8, "v": 8, "note": None}


def test_every_member_of_a_group_whose_sync_fails_is_in_doubt(group: Group) -> None:
    def fail() -> st.Receipt:
        group.gate.failure = OSError(5, "Input/output error")
        return group.table.upsert({"id": 1, "v": 1})

    found = group.commit(("one", fail), ("two", lambda: group.table.upsert({"id": 2, "v": 2})))
    assert {type(error) for error in found.values()} <= {InDoubtError, st.PoisonedError}
    assert group.table.count() == 0


def test_a_sync_retry_of_an_async_token_is_durable_when_it_returns(group: Group) -> None:
    with_token(group, 7, 1, "async")()
    receipt = with_token(group, 7, 2)()
    assert group.store.durable_seq >= receipt.seq


@pytest.mark.parametrize("durabilities", [("async", "sync"), ("sync", "async")])
def test_a_sync_commit_that_shares_its_frame_with_an_async_one_is_durable_when_it_returns(
    group: Group, durabilities: tuple[str, str]
) -> None:
    members = ((kind, with_token(group, n, 1, kind)) for n, kind in enumerate(durabilities))
    found = group.commit(*members)
    assert group.store.durable_seq >= found["sync"].seq


def test_nothing_is_sealed_between_the_log_and_the_memtable_of_a_commit(group: Group) -> None:
    group.table.upsert({"id": 0, "v": 0})
    threads = Threads()
    group.gate.hold()
    threads.start(group.table.upsert, {"id": 1, "v": 1})
    group.gate.wait()  # its frame is written, and its row in no memtable yet
    threads.start(group.store.checkpoint)
    until(lambda: group.waiting() or threads.errors)
    group.gate.release()
    threads.join()
    record = group.store._core.state().view.record
    assert record.flushed_seq == group.store.seq
    assert record.keyed[0].history.rows == group.table.count() == 2


def test_a_key_whose_commit_found_no_space_is_writable_when_there_is_space(group: Group) -> None:
    group.table.upsert({"id": 1, "v": 0})
    group.gate.no_space = True
    for _ in range(4):  # the segments at hand go first
        try:
            with group.store.transaction() as tx:
                tx["t"].update(1, v=1)
                tx["t"].upsert([{"id": n, "v": n} for n in range(1000, 15_000)])
        except UnavailableError:
            break
    else:
        pytest.fail("the log never ran out of space")
    group.gate.no_space = False
    assert group.table.update(1, v=2).rows == 1
    assert group.table.get(1)["v"] == 2
