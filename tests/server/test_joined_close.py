"""A joined store is closed while other threads use it: each call says so, and none breaks."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.api import serving
from siltstone.joined.store import JoinedStore
from siltstone.local.store import LocalStore
from siltstone.server.http.server import ServerThread
from tests.engine.seams import Threads
from tests.server.stores import asking, eventually, joined_to, opened

ROUNDS = 4
KEYS = itertools.count(1_000)


def test_a_store_that_closes_while_it_begins_to_serve_leaves_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that came later would take the socket of the next owner, and answer for it."""
    importing, goes_on, ended = threading.Event(), threading.Event(), list[BaseException]()
    load = serving._loaders["serve_local"]

    def slow() -> Callable[..., object]:
        importing.set()
        assert goes_on.wait(30)
        return load()

    monkeypatch.setitem(serving._loaders, "serve_local", slow)
    db = st.connect(tmp_path / "shop")

    def serve() -> None:
        try:
            db.serve_local()
        except st.ClosedError as error:
            ended.append(error)

    threads = [threading.Thread(target=serve), threading.Thread(target=db.close)]
    threads[0].start()
    assert importing.wait(30)
    threads[1].start()
    eventually(lambda: db._core.refusal is not None)
    goes_on.set()
    for thread in threads:
        thread.join(60)
    assert len(ended) == 1
    assert db._parts.endpoint is None
    with st.connect(tmp_path / "shop") as again, joined_to(again) as joined:
        assert joined.seq == again.seq


@pytest.mark.parametrize("serve", [lambda db: db.serve_local(), lambda db: db.serve(port=0)])
def test_a_store_that_a_handler_closes_as_it_begins_to_serve_leaves_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Callable[[st.Store], object]
) -> None:
    db, begin, made = st.connect(tmp_path / "shop"), ServerThread.start, list[ServerThread]()

    def start(self: ServerThread, address: object) -> None:
        begin(self, address)
        made.append(self)
        db.close()  # as a signal's handler, in the same thread

    monkeypatch.setattr(ServerThread, "start", start)
    with pytest.raises(st.ClosedError):
        serve(db)
    assert not made[0]._thread.is_alive()
    st.connect(tmp_path / "shop").close()


@pytest.mark.parametrize("serve", [lambda db: db.serve_local(), lambda db: db.serve(port=0)])
def test_a_server_whose_start_is_interrupted_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Callable[[st.Store], object]
) -> None:
    make, made = ServerThread.__init__, list[ServerThread]()

    def interrupted(timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    def init(self: ServerThread, *arguments: object, **named: object) -> None:
        make(self, *arguments, **named)
        self._is_ready.wait = interrupted
        made.append(self)

    monkeypatch.setattr(ServerThread, "__init__", init)
    with st.connect(tmp_path / "shop") as db:
        with pytest.raises(KeyboardInterrupt):
            serve(db)
        assert not made[0]._thread.is_alive()
        monkeypatch.undo()
        serve(db)


def test_who_is_interrupted_while_it_joins_owns_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: st.Store) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalStore, "serve_local", interrupted)
    with pytest.raises(KeyboardInterrupt):
        st.connect(tmp_path / "shop", join=True)
    st.connect(tmp_path / "shop").close()


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[st.Store]:
    with opened(tmp_path / "shop") as db:
        db.create_table("t", {"id": "int64", "text": "string"}, primary_key="id")
        db["t"].upsert([{"id": n, "text": "x" * 1000} for n in range(500)])
        db.serve_local()
        yield db


def in_transaction(joined: JoinedStore) -> None:
    with joined.transaction() as tx:
        # A key of its own: what a closed store left in doubt may commit meanwhile, and conflict.
        tx["t"].upsert({"id": next(KEYS), "text": ""})


CALLS: tuple[Callable[[JoinedStore], object], ...] = (
    lambda joined: joined["t"].count(),
    lambda joined: joined["t"].to_arrow(),
    lambda joined: joined["t"].upsert({"id": 1, "text": ""}),
    in_transaction,
)


def closed_in_use(joined: JoinedStore) -> list[BaseException]:
    """Close it once each of `CALLS` was answered in a thread of its own; return how they end."""
    began, ended = threading.Barrier(len(CALLS) + 1), list[BaseException]()

    def use(call: Callable[[JoinedStore], object]) -> None:
        call(joined)
        began.wait(30)
        try:
            while True:
                call(joined)
        except BaseException as error:  # noqa: BLE001 - the caller looks at it
            ended.append(error)

    threads = [threading.Thread(target=use, args=(call,)) for call in CALLS]
    for thread in threads:
        thread.start()
    began.wait(30)
    joined["t"].count()
    joined.close()
    for thread in threads:
        thread.join(30)
    return ended


@pytest.mark.usefixtures("hasty")
def test_calls_of_other_threads_are_closed_or_in_doubt(owner: st.Store) -> None:
    for _ in range(ROUNDS):
        joined = joined_to(owner)
        ended = closed_in_use(joined)
        assert len(ended) == len(CALLS)
        for error in ended:
            assert type(error) in {st.ClosedError, st.InDoubtError}, repr(error)
            if isinstance(error, st.InDoubtError):
                eventually(lambda lost=error: owner.outcome(lost.transaction_id) != "in doubt")


@asking
def test_a_handler_may_close_a_store_that_is_just_taking_a_connection(owner: st.Store) -> None:
    joined, threads = joined_to(owner), Threads()

    class Interrupted(list[object]):
        """A list in whose `pop` a signal comes."""

        def pop(self) -> object:
            found = super().pop()
            joined.close()
            return found

    joined.pool._idle = Interrupted(joined.pool._idle)

    def refused() -> None:
        with pytest.raises(st.ClosedError):
            joined["t"]

    threads.start(refused)
    threads.join()
