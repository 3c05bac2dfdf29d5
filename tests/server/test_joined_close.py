"""A joined store is closed while other threads use it: each call says so, and none breaks."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.joined.store import JoinedStore
from tests.server.stores import opened

ROUNDS = 4


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns as often as Python lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[st.Store]:
    with opened(tmp_path / "shop") as db:
        db.create_table("t", {"id": "int64", "text": "string"}, primary_key="id")
        db["t"].upsert([{"id": n, "text": "x" * 1000} for n in range(500)])
        db.serve_local()
        yield db


def in_transaction(joined: JoinedStore) -> None:
    with joined.transaction() as tx:
        tx["t"].upsert({"id": 2, "text": ""})


@pytest.mark.usefixtures("hasty")
def test_calls_of_other_threads_are_closed_or_in_doubt(owner: st.Store) -> None:
    ended: list[BaseException] = []

    def use(call: Callable[[JoinedStore], object], joined: JoinedStore, began: list[int]) -> None:
        try:
            while True:
                call(joined)
                began.append(1)
        except BaseException as error:  # noqa: BLE001 - looked at below
            ended.append(error)

    calls: list[Callable[[JoinedStore], object]] = [
        lambda joined: joined["t"].count(),
        lambda joined: joined["t"].to_arrow(),
        lambda joined: joined["t"].upsert({"id": 1, "text": ""}),
        in_transaction,
    ]
    for _ in range(ROUNDS):
        joined = st.connect(owner.path, join=True)
        assert isinstance(joined, JoinedStore)
        began: list[int] = []
        threads = [threading.Thread(target=use, args=(call, joined, began)) for call in calls]
        for thread in threads:
            thread.start()
        while len(began) < len(calls):
            threads[0].join(0.001)
        joined.close()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
    assert len(ended) == ROUNDS * len(calls)
    assert {type(error) for error in ended} <= {st.ClosedError, st.InDoubtError}, ended
    for error in ended:
        if isinstance(error, st.InDoubtError):
            assert owner.outcome(error.transaction_id) in {"committed", "not committed"}


def test_a_scan_that_is_half_read_ends(owner: st.Store) -> None:
    joined = st.connect(owner.path, join=True)
    with joined["t"].scan() as reader:
        reader.read_next_batch()
        joined.close()
        with pytest.raises(st.ClosedError):
            while True:
                reader.read_next_batch()
