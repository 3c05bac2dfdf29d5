"""Turns are taken through every door; what a holder leaves behind, its connection or 5 s end."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.joined.store import JoinedStore
from siltstone.joined.transactions import large_writes
from siltstone.server.served import TURN_WAITS_MAX
from tests.engine.seams import Threads, until
from tests.server.rest import rest_of
from tests.server.stores import DOORS, behind, eventually, opened

ROWS = [{"id": 1, "v": 10}, {"id": 2, "v": 20}]


def make_table(db: st.Store) -> None:
    db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
    db["t"].upsert(ROWS)


def add_one(tx: st.Transaction) -> None:
    tx["t"].update(1, v=tx["t"].get(1)["v"] + 1)


@pytest.mark.parametrize("door", DOORS)
def test_increments_of_one_row_through_a_door_all_commit(door: str, tmp_path: Path) -> None:
    with behind(door, tmp_path / "shop") as db:
        make_table(db)
        todo = itertools.count()

        def work() -> None:
            while next(todo) < 60:
                db.run(add_one)

        crew = Threads()
        for _ in range(6):
            crew.start(work)
        crew.join(lambda: db.seq)
        assert db["t"].get(1)["v"] == 70


@pytest.mark.parametrize("door", DOORS)
def test_a_transaction_takes_its_turns_through_a_door(door: str, tmp_path: Path) -> None:
    with behind(door, tmp_path / "shop") as db:
        make_table(db)
        seqs: list[int] = []

        def second() -> None:
            with db.transaction(turns=["t"]) as tx:
                seqs.append(tx.read_seq)

        crew = Threads()
        with db.transaction(turns=["t"]) as tx:
            add_one(tx)
            crew.start(second)
            time.sleep(0.1)  # a second that is late makes the test pass, not fail
        crew.join()
        assert seqs == [tx.seq]


@pytest.mark.parametrize("door", DOORS)
def test_turns_of_no_table_are_refused_at_every_door(door: str, tmp_path: Path) -> None:
    with behind(door, tmp_path / "shop") as db:
        make_table(db)
        with pytest.raises(st.RequestError, match="turns must be a list of names of tables"):
            db.transaction(turns="t")
        with pytest.raises(st.TableNotFoundError, match="nope"):
            db.transaction(turns=["nope"])


def test_the_last_conflict_of_a_joined_run_says_how_often_it_tried(
    both: tuple[st.Store, JoinedStore],
) -> None:
    owner, joined = both

    def lose(tx: st.Transaction) -> None:
        add_one(tx)
        owner["t"].update(1, v=0)

    with pytest.raises(st.ConflictError, match=r"tried 3 times.* t\[1\]") as caught:
        joined.run(lose, attempts=3)
    assert caught.value.tries == 3
    assert not owner.core.turns.is_held("t")


def test_a_joined_run_that_lost_holds_a_turn_at_the_owner(
    both: tuple[st.Store, JoinedStore],
) -> None:
    owner, joined = both
    seen, tried = [], itertools.count()

    def work(tx: st.Transaction) -> None:
        add_one(tx)
        seen.append((owner.core.turns.is_held("t"), bool(owner.core.turns.closed)))
        if next(tried) < 4:
            owner["t"].update(1, v=0)

    joined.run(work)
    assert seen == [(False, False), *[(True, False)] * 3, (True, True)]
    assert not owner.core.turns.is_held("t")


def test_first_tries_of_joined_processes_wait_for_a_closed_table(
    both: tuple[st.Store, JoinedStore],
) -> None:
    owner, joined = both
    crew, tried, values = Threads(), itertools.count(), []

    def arrival(tx: st.Transaction) -> int:
        add_one(tx)
        return tx["t"].get(1)["v"]

    def work(tx: st.Transaction) -> None:
        add_one(tx)
        if next(tried) < 4:
            owner["t"].update(1, v=0)
        else:
            crew.start(lambda: values.append(joined.run(arrival)))
            until(lambda: owner.core.turns.waiting("t") == 1)
            assert not values

    owner.run(work)
    crew.join()
    assert values == [2]


def test_a_first_try_of_a_joined_process_that_hides_its_end_commits_nothing(
    both: tuple[st.Store, JoinedStore],
) -> None:
    owner, joined = both
    owner.create_table("log", {"id": "int64"}, "id")
    crew, tried, first_tries = Threads(), itertools.count(), itertools.count()

    def careless(tx: st.Transaction) -> None:
        tx["log"].insert({"id": next(first_tries)})
        with contextlib.suppress(Exception):
            tx["t"].update(2, v=5)
        tx.commit()

    def work(tx: st.Transaction) -> None:
        add_one(tx)
        if next(tried) < 4:
            owner["t"].update(1, v=0)
        else:
            crew.start(joined.run, careless)
            until(lambda: owner.core.turns.waiting("t") == 1)
            assert owner["log"].count() == 0

    owner.run(work)
    crew.join()
    assert owner["log"].to_arrow()["id"].to_pylist() == [1]


def test_a_first_try_of_many_rows_waits_for_a_closed_table_as_one_of_few_does(
    both: tuple[st.Store, JoinedStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did not hear that the table is closed, and its rows go as files."""
    monkeypatch.setattr(large_writes, "STAGED_BYTES_MIN", 10_000)
    owner, joined = both
    crew, tried = Threads(), itertools.count()
    rows = [{"id": n, "v": n} for n in range(10, 1_010)]

    def work(tx: st.Transaction) -> None:
        add_one(tx)
        if next(tried) < 4:
            owner["t"].update(1, v=0)
        else:
            crew.start(lambda: joined.run(lambda tx: tx["t"].upsert(pa.Table.from_pylist(rows))))
            until(lambda: owner.core.turns.waiting("t") == 1)
            assert owner["t"].count() == 2

    owner.run(work)
    crew.join()
    assert owner["t"].count() == 1_002


_HOLDER = """
import sys
import siltstone as st

def work(tx):
    tx["t"].update(1, v=5)
    if not tries:
        tries.append(1)
        with db.transaction() as rival:
            rival["t"].update(1, v=6)
    else:
        print("held", flush=True)
        sys.stdin.read()

tries = []
with st.connect(sys.argv[1], join=True) as db:
    if sys.argv[2] == "run":
        db.run(work)
    else:
        with db.transaction(turns=["t"]):
            print("held", flush=True)
            sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["run", "transaction"])
def test_the_turn_of_a_holder_that_is_killed_is_given_up(how: str, tmp_path: Path) -> None:
    with opened(tmp_path / "shop") as owner:
        make_table(owner)
        owner.serve_local()
        holder = subprocess.Popen(
            [sys.executable, "-c", _HOLDER, str(owner.path), how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            assert owner.core.turns.is_held("t")
            os.kill(holder.pid, signal.SIGKILL)
            began = time.monotonic()
            eventually(lambda: not owner.core.turns.is_held("t"))
            assert time.monotonic() - began < 4.5  # not after 5 s, but with the connection
            owner.run(add_one)
        finally:
            holder.kill()
            holder.wait()
            for pipe in (holder.stdin, holder.stdout):
                assert pipe is not None
                pipe.close()


def test_a_transaction_over_rest_takes_turns_and_gives_them_up_after_five_seconds(
    tmp_path: Path,
) -> None:
    with rest_of(tmp_path / "shop") as (db, _, rest):
        make_table(db)
        turns = db.core.turns
        key = rest.post("/v1/transaction/begin", {"turns": ["t"]}).json["id"]
        assert turns.is_held("t")
        assert rest.post(f"/v1/transaction/{key}/rollback", {}).status == 200
        assert not turns.is_held("t")
        for wrong in (["nope"], "t", [1]):
            assert rest.post("/v1/transaction/begin", {"turns": wrong}).status in {400, 404}
            assert not turns.is_held("t")
        rest.post("/v1/transaction/begin", {"turns": ["t"]})
        began = time.monotonic()
        until_s = began + 20
        while turns.is_held("t"):
            assert time.monotonic() < until_s
            time.sleep(0.05)
        assert time.monotonic() - began > 4


def test_few_threads_of_a_server_wait_for_turns(tmp_path: Path) -> None:
    """The holder needs one to commit: were all of them waiting, it could not."""
    with behind("socket", tmp_path / "shop") as joined:
        make_table(joined)
        crew, began = Threads(), time.monotonic()

        def take() -> None:
            with joined.transaction(turns=["t"]):
                pass

        for _ in range(TURN_WAITS_MAX + 30):
            crew.start(take)
        crew.join()
        assert time.monotonic() - began < 20
