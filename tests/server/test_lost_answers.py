"""An answer that is lost leaves a commit in doubt, and its id finds out; no write is sent twice."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

import siltstone as st
from siltstone.joined.frames.frame import ANSWER
from siltstone.joined.store import JoinedStore
from siltstone.server.sessions import Session
from tests.server.owners import owner_of
from tests.server.stores import asking, eventually, served
from tests.server.wire import Wire, wire_to

ROW = {"id": 3, "v": 30}
HEAD = ANSWER.size + len("1-999")


class Wired(NamedTuple):
    """An owner, a process that has joined it, and one that has by a wire that can be cut."""

    owner: st.Store
    other: st.Store | JoinedStore
    joined: JoinedStore
    wire: Wire


@contextmanager
def wired(folder: Path) -> Generator[Wired]:
    """Yield them, over a store with an empty table `t`."""
    with served(folder / "shop") as (owner, other):
        owner.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        with wire_to(owner.serve_local(), folder) as wire:
            joined = JoinedStore(folder / "shop", str(wire.address))
            with closing(joined):
                yield Wired(owner, other, joined, wire)


def test_a_commit_whose_answer_is_lost_is_found_by_its_id(tmp_path: Path) -> None:
    with wired(tmp_path) as (_, other, joined, wire):
        tx = joined.transaction()
        tx["t"].insert(ROW)
        wire.mark = b"/commit"
        with pytest.raises(st.InDoubtError, match="answer was lost") as caught:
            tx.commit()
        lost = caught.value.transaction_id
        assert joined.outcome(lost) == other.outcome(lost) == "committed"
        assert joined["t"].get(3) == ROW


def test_a_commit_whose_answer_broke_off_in_its_head_is_in_doubt(tmp_path: Path) -> None:
    with wired(tmp_path) as (_, other, joined, wire):
        tx = joined.transaction()
        tx["t"].insert(ROW)
        wire.mark, wire.rest = b"/commit", lambda data: data[:5]
        with pytest.raises(st.InDoubtError) as caught:
            tx.commit()
        assert other.outcome(caught.value.transaction_id) == "committed"


def test_a_commit_that_never_arrived_is_known_not_to_be(tmp_path: Path) -> None:
    with wired(tmp_path) as (_, _, joined, wire):
        tx = joined.transaction()
        tx["t"].insert(ROW)
        wire.mark, wire.is_before = b"/commit", True
        with pytest.raises(st.InDoubtError) as caught:
            tx.commit()
        assert joined.outcome(caught.value.transaction_id) == "not committed"
        assert joined["t"].count() == 0


@pytest.mark.parametrize("is_before", [False, True])
def test_a_statement_whose_answer_is_lost_is_in_doubt_and_not_repeated(
    tmp_path: Path, *, is_before: bool
) -> None:
    with wired(tmp_path) as (owner, _, joined, wire):
        events = owner.create_table("events", {"what": "string"})
        table = joined["events"]
        wire.mark, wire.is_before = b"/append", is_before
        with pytest.raises(st.InDoubtError) as caught:
            table.append({"what": "a"})
        expected = "not committed" if is_before else "committed"
        assert joined.outcome(caught.value.transaction_id) == expected
        assert events.count() == (0 if is_before else 1)
        table.append({"what": "b"})
        assert events.count() == (1 if is_before else 2)
        assert wire.cuts == 1


def test_a_read_whose_connection_broke_is_asked_once_more(tmp_path: Path) -> None:
    with wired(tmp_path) as (owner, _, joined, wire):
        owner["t"].insert(ROW)
        table = joined["t"]
        wire.mark = b"/get"
        assert table.get(3) == ROW
        assert wire.cuts == 1


def test_rows_that_broke_off_before_the_first_are_asked_for_once_more(tmp_path: Path) -> None:
    with wired(tmp_path) as (owner, _, joined, wire):
        owner["t"].insert(ROW)
        table = joined["t"]
        wire.mark, wire.rest = b"/get", lambda data: data[:HEAD]
        assert table.get(3) == ROW
        assert wire.cuts == 1


def test_rows_that_broke_off_because_the_store_was_closed_say_so(tmp_path: Path) -> None:
    with wired(tmp_path) as (owner, _, joined, wire):
        owner["t"].insert(ROW)
        table = joined["t"]
        wire.mark, wire.event = b"/get", joined.close
        wire.rest = lambda data: data[:HEAD]
        with pytest.raises(st.ClosedError):
            table.get(3)


def test_a_write_in_a_transaction_whose_answer_is_lost_ends_it(tmp_path: Path) -> None:
    with wired(tmp_path) as (owner, _, joined, wire):
        tx = joined.transaction()
        table = tx["t"]
        wire.mark = b"/insert"
        with pytest.raises(st.UnavailableError):
            table.insert(ROW)
        with pytest.raises(st.UnavailableError):
            tx.commit()
        assert owner["t"].count() == 0


def test_a_commit_that_arrives_after_its_outcome_was_told_is_refused(tmp_path: Path) -> None:
    """Else "not committed" would turn out wrong: the commit was only slow."""
    with wired(tmp_path) as (owner, other, joined, wire):
        tx = joined.transaction()
        tx["t"].insert(ROW)
        slow = tx._home.reserved
        wire.mark, wire.pause = b"/commit", lambda: outcomes.append(other.outcome(slow))
        outcomes: list[str] = []
        with pytest.raises(st.ClosedError, match="nothing was changed"):
            tx.commit()
        assert outcomes == ["not committed"]
        assert owner["t"].count() == 0


@asking
def test_an_outcome_is_a_promise_whoever_is_asked(tmp_path: Path) -> None:
    """The owner itself, and who asks at another door than the commit comes by."""
    with served(tmp_path / "shop") as (owner, other):
        owner.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        with st.connect(owner.serve(port=0).url) as remote:
            for asked in (owner, other, remote):
                for joined in (other, remote):
                    tx = joined.transaction()
                    tx["t"].insert(ROW)
                    written = tx._home.reserved.replace("-", "-0")  # another way to write it
                    assert asked.outcome(written) == "not committed"
                    with pytest.raises(st.ClosedError, match="nothing was changed"):
                        tx.commit()
        assert owner["t"].count() == 0


def test_a_commit_that_runs_is_in_doubt_whoever_is_asked(tmp_path: Path) -> None:
    with served(tmp_path / "shop") as (owner, other):
        owner.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        with st.connect(owner.serve(port=0).url) as remote:
            tx = remote.transaction()
            tx["t"].insert(ROW)
            mine = tx._home.reserved
            until, goes_on = threading.Event(), threading.Event()

            def hold() -> None:
                until.set()
                assert goes_on.wait(60)

            holder = threading.Thread(target=owner._core.committer.run, args=(hold,))
            holder.start()
            assert until.wait(60)
            committing = threading.Thread(target=tx.commit)
            committing.start()
            eventually(lambda: mine in owner._parts.service.joined_sessions._running)
            told = [asked.outcome(mine) for asked in (owner, other)]
            goes_on.set()
            for thread in (holder, committing):
                thread.join(60)
            assert told == ["in doubt", "in doubt"]
            assert owner.outcome(mine) == other.outcome(mine) == "committed"


@asking
def test_a_reader_beside_promises_nothing(tmp_path: Path) -> None:
    """What it does not see may be in the log all the same, and come with the next owner."""
    with served(tmp_path / "shop") as (owner, joined):
        owner.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        done = owner["t"].insert(ROW)
        tx = joined.transaction()
        with st.connect(tmp_path / "shop", read_only=True) as reader:
            assert reader.outcome(done.transaction_id) == "committed"
            assert reader.outcome(tx._home.reserved) == "in doubt"
        tx.rollback()


@asking
def test_an_id_is_fresh_when_a_commit_is_asked_for(tmp_path: Path) -> None:
    """Numbers and seqs rise together, or `outcome` would deny what the past has forgotten."""
    with served(tmp_path / "shop") as (owner, joined):
        owner.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        tx = joined.transaction()
        tx["t"].insert(ROW)
        tx._home.reserved_at -= 60
        (session,) = [s for s in sessions_of(owner) if s.reserved == tx._home.reserved]
        session.reserved_us -= 60_000_000
        owner["t"].insert({"id": 4, "v": 4})
        before = owner.log(1)[0].transaction
        tx.commit()
        number = [int(name.partition("-")[2]) for name in (before, tx.receipt.transaction_id)]
        assert number == sorted(number)


def sessions_of(owner: st.Store) -> list[Session]:
    return list(owner._parts.endpoint.sessions._sessions)


def test_an_owner_that_is_killed_between_commit_and_answer_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    with owner_of(path) as owner, wire_to(owner.address, tmp_path) as wire:
        joined = JoinedStore(path, str(wire.address))
        tx = joined.transaction()
        tx["t"].insert(ROW)
        wire.mark, wire.event = b"/commit", owner.kill
        with pytest.raises(st.InDoubtError) as caught:
            tx.commit()
        with pytest.raises(st.UnavailableError):
            joined.outcome(caught.value.transaction_id)
        joined.close()
    with st.connect(path, join=True) as db:
        assert isinstance(db, st.Store)
        assert db.outcome(caught.value.transaction_id) == "committed"
        assert db["t"].get(3) == ROW


@asking
def test_an_owner_that_is_killed_before_the_commit_arrives_has_nothing(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    with owner_of(path) as owner:
        joined = st.connect(path, join=True)
        tx = joined.transaction()
        tx["t"].insert(ROW)
        owner.kill()
        with pytest.raises(st.UnavailableError):
            tx.commit()
        with pytest.raises(st.UnavailableError):
            joined.status()
        joined.close()
    with st.connect(path, join=True) as db:
        assert db["t"].get(3) is None
