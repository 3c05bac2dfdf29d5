"""What a joined process reads itself goes on, whatever it did not watch, or was amid."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from siltstone.joined.store import JoinedStore
from siltstone.options import resolve
from siltstone.storage.wal.follower import SegmentRecycled, WalFollower
from siltstone.storage.wal.wal import Wal
from tests.server.owners import owner_of
from tests.server.stores import joined_to, opened

Both = tuple[st.Store, JoinedStore]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Both]:
    """An owner, and who joined it and has read; the table has a base."""
    with opened(tmp_path / "shop") as owner:
        owner.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        owner["t"].upsert([{"id": 1, "v": 10}, {"id": 2, "v": 20}])
        owner.checkpoint()
        owner.merge("t")
        with joined_to(owner) as joined:
            joined["t"].get(1)
            assert joined._near is not None
            joined._near.nearby.newest()
            yield owner, joined


def test_a_worker_reads_on_after_a_column_was_added_and_merged_unseen(pair: Both) -> None:
    owner, joined = pair
    owner["t"].add_column("w", "int64")
    owner.checkpoint()
    owner.merge("t")
    for _ in range(3):  # each raises InvariantError: table 1 has no schema 2
        assert joined["t"].get(1) == {"id": 1, "v": 10, "w": None}


@pytest.mark.parametrize("commits_more", [False, True])
def test_a_signal_handler_that_reads_amid_a_read_sees_what_is_there_and_breaks_nothing(
    pair: Both, monkeypatch: pytest.MonkeyPatch, commits_more: bool
) -> None:
    """So does a `__del__` that reads: the collector runs wherever something is allocated."""
    owner, joined = pair
    joined["t"].get(1)
    joined._near.nearby._due_s = 1e18  # type: ignore[union-attr] - no look now
    forward, seen, is_first = WalFollower.forward, list[Any](), [True]

    def interrupted(self: WalFollower, mark: Any) -> Any:
        found = forward(self, mark)
        if is_first.pop() if is_first else False:
            signal.raise_signal(signal.SIGUSR1)
        return found

    def handler(*_: object) -> None:
        if commits_more:
            owner["t"].upsert({"id": 1, "v": 12})  # as another process would just now
        try:
            seen.append(joined["t"].get(1)["v"])  # type: ignore[index]
        except st.SiltstoneError as error:
            seen.append(error)

    owner["t"].upsert({"id": 1, "v": 11})
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        monkeypatch.setattr(WalFollower, "forward", interrupted)
        joined["t"].get(1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    newest = 12 if commits_more else 11
    assert (seen, joined["t"].get(1)) == ([newest], {"id": 1, "v": newest})


def test_a_worker_never_reads_what_mark_does_not_name_while_its_owner_lives(
    pair: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, joined = pair
    tell, seen = Wal.tell, list[Any]()
    stretches, is_recycled = WalFollower._stretches, [True]

    def recycled_once(self: WalFollower, target: Any, floor: Any) -> Any:
        if is_recycled:
            is_recycled.pop()
            raise SegmentRecycled(Path("x"), target[1], 0)
        return stretches(self, target, floor)

    def told(self: Wal) -> None:
        if not seen:  # durable, and not in MARK yet
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
        tell(self)

    def look() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(WalFollower, "_stretches", recycled_once)
            assert joined._near is not None
            follower = joined._near.nearby._follower
            follower._let_go()  # it begins anew, as one that fell behind does
            seen.append(follower.state().visible)

    before = owner.seq
    monkeypatch.setattr(Wal, "tell", told)
    owner["t"].upsert({"id": 1, "v": 11})
    assert seen == [before]  # the owner's own readers get this one, too


def test_a_worker_reads_on_after_its_async_commit_was_lost_with_the_owner(tmp_path: Path) -> None:
    """`docs/join.md`: the owner went away, the worker reads the files: the rows."""
    path = tmp_path / "shop"
    with owner_of(path) as owner:
        joined = JoinedStore(path, str(owner.address), resolve(path, {}))
        joined._near.nearby.newest()  # type: ignore[union-attr]
        with joined.transaction(durability="async") as tx:
            tx["t"].upsert({"id": 1, "v": 99})
        owner.kill()
        for _ in range(3):
            assert joined["t"].get(1) == {"id": 1, "v": 99}  # written, if not synced
        joined.close()


def test_a_worker_goes_on_after_an_error_between_the_log_and_the_state(
    pair: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, joined = pair
    joined._near.nearby._due_s = 1e18  # type: ignore[union-attr] - no look now
    forward = WalFollower.forward

    def interrupted(self: WalFollower, mark: Any) -> Any:
        forward(self, mark)
        raise KeyboardInterrupt

    owner["t"].upsert({"id": 1, "v": 11})
    with monkeypatch.context() as patch:
        patch.setattr(WalFollower, "forward", interrupted)
        with pytest.raises(KeyboardInterrupt):
            joined["t"].get(1)
    assert joined["t"].get(1) == {"id": 1, "v": 11}


def test_a_read_only_store_reads_amid_a_read_of_its_thread(
    pair: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, _ = pair
    with st.connect(owner.path, read_only=True) as reader:
        table, poll, seen, is_first = reader["t"], WalFollower.poll, list[Any](), [True]

        def interrupted(self: WalFollower, floor: Any) -> Any:
            found = poll(self, floor)
            if is_first.pop() if is_first else False:
                owner["t"].upsert({"id": 1, "v": 12})  # as another process would just now
                seen.append(table.get(1))
            return found

        owner["t"].upsert({"id": 1, "v": 11})
        monkeypatch.setattr(WalFollower, "poll", interrupted)
        assert table.get(1)["v"] in (11, 12)  # type: ignore[index] - the second came meanwhile
        assert (seen, table.get(1)) == ([{"id": 1, "v": 12}], {"id": 1, "v": 12})
