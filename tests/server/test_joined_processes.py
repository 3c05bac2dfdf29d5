"""Processes share a store: one owns it, the others join; whoever comes first owns it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import siltstone as st
from siltstone.joined.store import JoinedStore
from tests.server.owners import owner_of
from tests.server.stores import eventually, joined_to, opened, served

_TRANSFERS = """
import sys
import siltstone as st

with st.connect(sys.argv[1], join=True) as db:
    seed, moves = int(sys.argv[2]), 0
    for step in range(25):
        one, two = (seed * 7 + step) % 8, (seed * 3 + step * 5 + 1) % 8
        if one == two:
            continue

        def move(tx):
            a, b = tx["accounts"].get(one), tx["accounts"].get(two)
            tx["accounts"].update(one, balance=a["balance"] - step)
            tx["accounts"].update(two, balance=b["balance"] + step)
            tx["moves"].insert({"id": seed * 1000 + step, "amount": step})

        db.run(move, attempts=1000)
        moves += 1
    print(moves)
"""


def test_money_is_neither_made_nor_lost_by_concurrent_processes(tmp_path: Path) -> None:
    path = tmp_path / "bank"
    with opened(path) as db:
        db.create_table("accounts", {"id": "int64", "balance": "int64"}, primary_key="id")
        db.create_table("moves", {"id": "int64", "amount": "int64"}, primary_key="id")
        db["accounts"].insert([{"id": i, "balance": 100} for i in range(8)])
        db.serve_local()
        tellers = [
            subprocess.Popen(
                [sys.executable, "-c", _TRANSFERS, str(path), str(seed)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for seed in (1, 2)
        ]
        stop = threading.Event()
        sums: list[int] = []

        def watch() -> None:
            with joined_to(db) as joined:
                while not stop.is_set():
                    found = joined.sql("select sum(balance) from accounts").fetchall()
                    sums.append(found[0][0])

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            moves = [int(teller.communicate(timeout=100)[0]) for teller in tellers]
        finally:
            stop.set()
            watcher.join()
        assert [teller.returncode for teller in tellers] == [0, 0]
        assert set(sums) == {800}
        assert sum(db["accounts"].to_arrow()["balance"].to_pylist()) == 800
        assert db["moves"].count() == sum(moves)


def test_a_joined_process_works_on_a_store_that_another_one_owns(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    with owner_of(path) as owner:
        with st.connect(path, join=True) as joined:
            assert isinstance(joined, JoinedStore)
            joined["t"].insert({"id": 3, "v": 30})
            assert joined["t"].count() == 3
            with st.connect(path, read_only=True) as reader:
                assert reader["t"].get(3) == {"id": 3, "v": 30}
        owner.stop()
        assert not owner.address.exists()
    with opened(path) as db:
        assert db["t"].count() == 3


def test_who_joins_a_store_that_nobody_owns_owns_and_serves_it(tmp_path: Path) -> None:
    with st.connect(tmp_path / "shop", join=True) as first:
        assert isinstance(first, st.Store)
        first.create_table("t", {"id": "int64"}, primary_key="id")
        with joined_to(first) as second:
            assert second.tables() == ["t"]
        with st.connect(tmp_path / "shop", join=True) as third:  # in the process that owns
            assert isinstance(third, st.Store)
            assert third.tables() == ["t"]


def test_all_who_join_at_once_share_one_owner(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    script = (
        "import sys, siltstone as st\n"
        "with st.connect(sys.argv[1], join=True) as db:\n"
        "    print(type(db).__name__, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    try:
        kinds = [process.stdout.readline().strip() for process in started]
        assert sorted(kinds) == ["JoinedStore", "JoinedStore", "LocalStore"]
        for kind in ("JoinedStore", "LocalStore"):  # the owner last
            for process, found in zip(started, kinds, strict=True):
                if found == kind:
                    process.stdin.close()
                    assert process.wait(60) == 0
    finally:
        for process in started:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def test_an_owner_that_does_not_serve_is_named_with_what_to_call(
    tmp_path: Path,
) -> None:
    script = (
        "import sys, siltstone as st\n"
        "with st.connect(sys.argv[1]): print('open', flush=True), sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "shop")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout.readline() == "open\n"
        with pytest.raises(st.OwnedError, match=r"serve_local\(\)") as caught:
            st.connect(tmp_path / "shop", join=True)
        assert caught.value.pid == owner.pid
        owner.stdin.close()


def test_after_its_owner_was_killed_a_store_is_owned_by_who_joins_next(
    tmp_path: Path, way: str
) -> None:
    path = tmp_path / "shop"
    with owner_of(path) as owner:
        joined = st.connect(path, join=True)
        past = joined.snapshot()
        owner.kill()
        assert owner.address.exists()  # its socket stays, and nobody is behind it
        if way == "near":
            assert joined["t"].get(1) == past["t"].get(1) == {"id": 1, "v": 10}
        else:
            with pytest.raises(st.UnavailableError):
                joined.tables()
            with pytest.raises(st.UnavailableError):
                past["t"]
        with pytest.raises(st.UnavailableError):
            joined.create_table("other", {"id": "int64"}, "id")
        with st.connect(path, join=True) as db:
            assert isinstance(db, st.Store)
            assert db["t"].count() == 2
            with st.connect(path, join=True) as again:
                assert again["t"].count() == 2
        joined.close()


def test_a_process_that_dies_takes_its_open_transactions_with_it(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    script = (
        "import os, sys, siltstone as st\n"
        "db = st.connect(sys.argv[1], join=True)\n"
        "tx = db.transaction()\n"
        "tx['t'].upsert({'id': 1, 'v': 11})\n"
        "os.kill(os.getpid(), 9)\n"
    )
    with served(path) as (owner, _):
        owner.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        died = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
        assert died.returncode == -9
        eventually(lambda: owner.status().open_transactions == 0)
        assert owner["t"].count() == 0


def run_beside_an_owner(folder: Path, script: str) -> None:
    """Run a script, which gets the path of a store that this process serves."""
    with served(folder / "shop") as (owner, _):
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", script, str(owner.path)], check=True, timeout=60
        )


def test_a_forked_child_of_a_joined_process_is_refused(tmp_path: Path) -> None:
    script = (
        "import os, sys, siltstone as st\n"
        "db = st.connect(sys.argv[1], join=True)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    try:\n"
        "        db.tables()\n"
        "    except st.ClosedError:\n"
        "        os._exit(7)\n"
        "    os._exit(1)\n"
        "_, status = os.waitpid(child, 0)\n"
        "assert os.waitstatus_to_exitcode(status) == 7\n"
        "assert db.tables() == []\n"
        "db.close()\n"
    )
    run_beside_an_owner(tmp_path, script)


def test_a_forked_child_may_close_what_another_thread_was_using(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys, siltstone as st\n"
        "db = st.connect(sys.argv[1], join=True)\n"
        "with db.pool._lock:\n"  # as a thread that is just taking a connection
        "    child = os.fork()\n"
        "    if not child:\n"
        "        signal.alarm(20)\n"
        "        db.close()\n"
        "        os._exit(7)\n"
        "_, status = os.waitpid(child, 0)\n"
        "assert os.waitstatus_to_exitcode(status) == 7\n"
        "assert db.tables() == []\n"
        "db.close()\n"
    )
    run_beside_an_owner(tmp_path, script)


def test_a_forked_child_of_the_owner_does_not_hold_its_socket(tmp_path: Path) -> None:
    """Else a client would wait on a socket that nobody serves any more."""
    script = (
        "import os, sys, time, siltstone as st\n"
        "db = st.connect(sys.argv[1], background=False, segment_bytes=65536)\n"
        "db.serve_local()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os.close(1)\n"
        "    sys.stdin.read()\n"
        "    os._exit(0)\n"
        "print(child, flush=True)\n"
        "os._exit(0)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "shop")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        process.stdout.readline()
        process.wait(60)
        with st.connect(tmp_path / "shop", join=True) as db:
            assert isinstance(db, st.Store)
    finally:
        process.stdin.close()  # the grandchild ends
        process.stdout.close()
