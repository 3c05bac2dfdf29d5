"""A commit of a joined process that cannot read the files in time has the answers of any commit."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import siltstone as st
from siltstone.joined.store import JoinedStore
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


def test_a_commit_that_lost_is_a_conflict_though_the_files_are_not_read_in_time(
    pair: Both,
) -> None:
    owner, joined = pair
    tx = joined.transaction()
    tx["t"].update(1, v=tx["t"].get(1)["v"] + 1)  # type: ignore[index]
    owner["t"].upsert({"id": 1, "v": 11})
    with slow_looks(joined), pytest.raises(st.ConflictError):
        tx.commit()


def test_a_serializable_commit_is_checked_though_the_files_are_not_read_in_time(
    pair: Both,
) -> None:
    owner, joined = pair
    tx = joined.transaction(isolation="serializable")
    assert tx["t"].count("v > 15") == 1
    tx["t"].upsert({"id": 3, "v": 1})
    owner["t"].upsert({"id": 1, "v": 11})
    with slow_looks(joined), suppress(st.ConflictError):  # no need, but it may
        assert tx.commit().rows == 1


def test_run_does_its_work_again_though_the_files_are_not_read_in_time(pair: Both) -> None:
    owner, joined = pair
    tries = list[int]()

    def work(tx: st.Transaction) -> None:
        v = tx["t"].get(1)["v"]  # type: ignore[index]
        tx["t"].update(1, v=v + 1)
        tries.append(v)
        if len(tries) == 1:
            owner["t"].upsert({"id": 1, "v": 50})

    with slow_looks(joined):
        joined.run(work)
    assert owner["t"].get(1) == {"id": 1, "v": 51}


class slow_looks:  # noqa: N801 - read as a verb
    """Another thread of the process looks properly, and the disk is slow."""

    def __init__(self, joined: JoinedStore) -> None:
        assert joined._near is not None
        self._follower = joined._near.nearby._follower
        self._goes_on, self._holds = threading.Event(), threading.Event()
        self._holder = threading.Thread(target=self._hold)

    def _hold(self) -> None:
        with self._follower._lock:
            self._holds.set()
            self._goes_on.wait(0.5)

    def __enter__(self) -> None:
        self._holder.start()
        assert self._holds.wait(60)

    def __exit__(self, *_: object) -> None:
        self._goes_on.set()
        self._holder.join(60)
