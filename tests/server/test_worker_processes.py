"""Workers in processes of their own: their money is whole, whoever dies, sleeps or forks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from tests.nightly import by_day
from tests.server.owners import owner_of
from tests.server.stores import opened

ACCOUNTS, MONEY = 8, 100
ways = pytest.mark.parametrize("way", ["near", "asking"], indirect=True)


def filled(path: Path) -> None:
    with opened(path) as db:
        db.create_table("accounts", {"id": "int64", "balance": "int64"}, primary_key="id")
        db.create_table("moves", {"id": "int64", "amount": "int64"}, primary_key="id")
        db["accounts"].insert([{"id": n, "balance": MONEY} for n in range(ACCOUNTS)])


class Child:
    """A process that runs a script; it is told lines, and says lines of JSON."""

    def __init__(self, script: str, *given: object) -> None:
        command = [sys.executable, "-W", "ignore", "-c", script, *map(str, given)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def says(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def does(self, what: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        return self.says()

    @contextmanager
    def stopped(self) -> Generator[None]:
        """Let the process stand still for the block."""
        os.kill(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.process.pid, signal.SIGCONT)

    def ends(self) -> int:
        """Let the process end by itself; return its status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(60)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def children(script: str, count: int, *given: object) -> Generator[list[Child]]:
    with ExitStack() as ends:
        found: list[Child] = []
        for number in range(count):
            found.append(Child(script, *given, number))
            ends.callback(found[-1].end)
        yield found


# the bank

_TELLER = """
import json, random, sys
import siltstone as st

path, turns, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
GONE = (st.UnavailableError, st.ClosedError, st.OwnedError, st.PoisonedError, st.FencedError)
chance, made, doubts, sums = random.Random(number), 0, None, set()


def turn(db, step):
    one, two = chance.sample(range(8), 2)

    def move(tx):
        accounts = tx["accounts"]
        a, b = accounts.get(one)["balance"], accounts.get(two)["balance"]
        accounts.update(one, balance=a - step)
        accounts.update(two, balance=b + step)
        tx["moves"].insert({"id": 10_000 * number + step, "amount": step})

    db.run(move, attempts=10_000)


def look(db, step):
    with db.snapshot() as seen:
        rows = seen["accounts"].to_arrow()
        sums.add(sum(rows["balance"].to_pylist()))
        assert seen["moves"].get(10_000 * number + step) is not None


step = 1
while step <= turns:
    try:
        with st.connect(path, join=True) as db:
            if doubts is not None:
                made += db.outcome(doubts) == "committed"
                doubts, step = None, step + 1
            while step <= turns:
                turn(db, step)
                made, step = made + 1, step + 1  # whatever becomes of the look
                look(db, step - 1)
                if step == turns // 4:
                    print(json.dumps("quarter"), flush=True)
    except st.InDoubtError as error:
        doubts = error.transaction_id
    except GONE:
        if step > turns:  # its last move was answered, and the owner went as it closed
            break
print(json.dumps([made, sorted(sums)]), flush=True)
sys.stdin.readline()
"""


@ways
def test_four_processes_neither_make_nor_lose_money_though_their_owner_is_killed(
    tmp_path: Path,
) -> None:
    """Who joins next owns the store, and may be the next that goes; what is in doubt is asked."""
    path, turns = tmp_path / "s", by_day(40, 1_000)
    filled(path)
    with owner_of(path) as owner, children(_TELLER, 4, path, turns) as tellers:
        for teller in tellers:
            assert teller.says() == "quarter"
        owner.kill()
        found = [teller.says() for teller in tellers]
        assert [teller.ends() for teller in tellers] == [0] * 4
    assert [sums for _, sums in found] == [[ACCOUNTS * MONEY]] * 4
    with opened(path) as db:
        assert sum(db["accounts"].to_arrow()["balance"].to_pylist()) == ACCOUNTS * MONEY
        assert db["moves"].count() == sum(made for made, _ in found)


# one that sleeps

_SLEEPER = """
import json, sys, time
import siltstone as st

late_s, real = [0.0], time.monotonic
time.monotonic = lambda: real() + late_s[0]
with st.connect(sys.argv[1], join=True) as db:
    txs = {}
    for line in sys.stdin:
        what, *given = line.split()
        try:
            if what == "begin":
                tx = txs[given[0]] = db.transaction()
                key = int(given[1])
                tx["accounts"].update(key, balance=tx["accounts"].get(key)["balance"] + 1)
                said = tx["accounts"].get(key)["balance"]
            elif what == "later":
                late_s[0] += float(given[0])
                said = "later"
            elif what == "commit":
                said = txs[given[0]].commit().rows
            else:
                said = db["accounts"].get(int(given[0]))["balance"]
        except st.SiltstoneError as error:
            said = type(error).__name__
        print(json.dumps(said), flush=True)
"""


@ways
def test_a_worker_that_slept_with_open_transactions_commits_or_conflicts(tmp_path: Path) -> None:
    """As others wrote what it did, or not; all is merged and vacuumed meanwhile."""
    filled(tmp_path / "s")
    with opened(tmp_path / "s") as owner:
        owner.serve_local()
        with children(_SLEEPER, 1, owner.path) as (worker,):
            assert worker.does("begin mine 1") == MONEY + 1
            assert worker.does("begin lost 2") == MONEY + 1
            with worker.stopped():
                for n in range(20):
                    owner["accounts"].upsert({"id": 2, "balance": n})
                    owner["moves"].upsert([{"id": m, "amount": n} for m in range(500)])
                    if n % 5 == 0:
                        owner.merge()
                        owner.vacuum(dry_run=False, grace_s=0)
                if by_day(short=False, long=True):
                    with pytest.raises(subprocess.TimeoutExpired):
                        worker.process.wait(55)
            assert worker.does("commit mine") == 1
            assert worker.does("commit lost") == "ConflictError"
            assert worker.does("get 1") == MONEY + 1
            assert worker.does("begin again 2") == 19 + 1
            assert worker.does("commit again") == 1


def test_a_transaction_of_a_worker_that_slept_for_a_minute_is_over(tmp_path: Path) -> None:
    filled(tmp_path / "s")
    with opened(tmp_path / "s") as owner:
        owner.serve_local()
        with children(_SLEEPER, 1, owner.path) as (worker,):
            worker.does("begin late 3")
            with worker.stopped():
                owner["accounts"].upsert({"id": 4, "balance": 0})
            worker.does("later 61")
            assert worker.does("commit late") == "ClosedError"
            assert owner["accounts"].get(3)["balance"] == MONEY
            assert worker.does("get 4") == 0


# many

_ONE_OF_MANY = """
import json, sys
import siltstone as st
with st.connect(sys.argv[1], join=True) as db:
    number = int(sys.argv[2])
    db["moves"].upsert({"id": number, "amount": 1})
    print(json.dumps("joined"), flush=True)
    sys.stdin.readline()
    with db.transaction() as tx:
        tx["moves"].update(number, amount=1 + tx["moves"].get(number)["amount"])
    print(json.dumps([db["moves"].get(number)["amount"], db["moves"].count()]), flush=True)
    sys.stdin.readline()
"""


def test_a_hundred_processes_join_and_all_of_them_read_and_write(tmp_path: Path) -> None:
    many = by_day(6, 100)
    filled(tmp_path / "s")
    with opened(tmp_path / "s") as owner:
        owner.serve_local()
        with children(_ONE_OF_MANY, many, owner.path) as workers:
            for worker in workers:
                assert worker.says() == "joined"
            for worker in workers:
                assert worker.process.stdin is not None
                worker.process.stdin.write("\n")
            assert [worker.says() for worker in workers] == [[2, many]] * many
        assert owner["moves"].to_arrow()["amount"].to_pylist() == [2] * many


# a fork

_FORKS = """
import json, os, sys
import siltstone as st
with st.connect(sys.argv[1], join=True) as db:
    tx = db.transaction()
    tx["accounts"].update(1, balance=tx["accounts"].get(1)["balance"] + 1)
    child = os.fork()
    if not child:
        refused = 0
        for call in (lambda: tx["accounts"].get(1), lambda: tx["accounts"].update(1, balance=0),
                     tx.commit, lambda: db["accounts"].upsert({"id": 1, "balance": 0}),
                     lambda: db.transaction()):
            try:
                call()
            except st.ClosedError:
                refused += 1
        os._exit(refused)
    _, status = os.waitpid(child, 0)
    print(json.dumps([os.waitstatus_to_exitcode(status), tx.commit().rows]), flush=True)
    print(json.dumps(db["accounts"].get(1)["balance"]), flush=True)
"""


@ways
def test_a_child_of_a_fork_does_nothing_to_a_transaction_of_its_parent(tmp_path: Path) -> None:
    filled(tmp_path / "s")
    with opened(tmp_path / "s") as owner:
        owner.serve_local()
        with children(_FORKS, 1, owner.path) as (worker,):
            assert worker.says() == [5, 1]
            assert worker.says() == MONEY + 1
        assert owner["accounts"].get(1)["balance"] == MONEY + 1


# a mount that may not be written

_MOUNTED = """
import ctypes, json, os, subprocess, sys
import pyarrow as pa
import siltstone as st
from siltstone.joined.transactions import large_writes

path = sys.argv[1]
NEWNS = 0x20000
if ctypes.CDLL(None, use_errno=True).unshare(NEWNS):
    print(json.dumps("not here"), flush=True)
    sys.exit()
for words in (["--make-rprivate", "/"], ["--bind", path, path],
              ["-o", "remount,bind,ro", path]):
    if subprocess.run(["mount", *words], capture_output=True).returncode:
        print(json.dumps("not here"), flush=True)
        sys.exit()
try:
    open(path + "/probe", "w")
except OSError:
    with st.connect(path, join=True) as db:
        found = [type(db).__name__, db["accounts"].get(1)["balance"], db["accounts"].count()]
        with db.transaction() as tx:
            tx["accounts"].update(1, balance=tx["accounts"].get(1)["balance"] + 1)
        db["accounts"].upsert({"id": 2, "balance": 7})
        found += [db["accounts"].get(1)["balance"], db["accounts"].get(2)["balance"]]
        found += db.sql("select count(*) from accounts").fetchall()[0]
        large_writes.STAGED_BYTES_MIN = 1_000  # files are refused: they are sent
        with db.transaction() as tx:
            tx["moves"].upsert(pa.table({"id": range(5_000), "amount": range(5_000)}))
        found.append(db["moves"].count())
        print(json.dumps(found), flush=True)
"""


def test_a_worker_whose_mount_may_not_be_written_reads_it_and_commits_by_its_owner(
    tmp_path: Path,
) -> None:
    filled(tmp_path / "s")
    with opened(tmp_path / "s") as owner:
        owner.merge()
        owner.serve_local()
        with children(_MOUNTED, 1, owner.path) as (worker,):
            found = worker.says()
        if found == "not here":
            pytest.skip("this user may not mount")
        assert found == ["JoinedStore", MONEY, ACCOUNTS, MONEY + 1, 7, ACCOUNTS, 5_000]
        assert owner["accounts"].get(1)["balance"] == MONEY + 1


# everything at once

_MAINTAINER = """
import json, sys
import siltstone as st
from siltstone import admin
works = {
    "merge": lambda: admin.merge_store(sys.argv[1]),
    "optimize": lambda: admin.optimize_store(sys.argv[1], "moves", target_rows=100),
    "vacuum": lambda: admin.vacuum_store(sys.argv[1], dry_run=False, grace_s=0),
}
for line in sys.stdin:
    try:
        said = type(works[line.strip()]()).__name__
    except st.BusyError as error:
        said = "BusyError"
    print(json.dumps(said), flush=True)
"""


def _steps(owner: st.Store, maintainer: Child) -> list[Callable[[], object]]:
    """Return what an owner and another process do with definitions and files meanwhile."""
    moves = owner["moves"]
    return [
        lambda: moves.add_column("note", "string"),
        lambda: maintainer.does("merge"),
        lambda: moves.rename_column("note", "text"),
        owner.checkpoint,
        lambda: owner.rename_table("other", "renamed"),
        lambda: maintainer.does("optimize"),
        lambda: moves.drop_column("text"),
        lambda: maintainer.does("vacuum"),
        lambda: owner.drop_table("renamed"),
        lambda: owner.create_table("other", {"id": "int64"}, primary_key="id").upsert({"id": 1}),
    ]


def test_the_bank_is_whole_beside_foreign_merges_optimizes_vacuums_definitions_and_renames(
    tmp_path: Path,
) -> None:
    turns = by_day(200, 2_000)
    filled(tmp_path / "s")
    with opened(tmp_path / "s") as owner:
        owner.create_table("other", {"id": "int64"}, primary_key="id").upsert({"id": 1})
        owner.serve_local()
        with (
            children(_TELLER, 2, owner.path, turns) as tellers,
            children(_MAINTAINER, 1, owner.path) as (maintainer,),
        ):
            for teller in tellers:
                assert teller.says() == "quarter"
            for _ in range(by_day(3, 30)):
                for step in _steps(owner, maintainer):
                    step()
            found = [teller.says() for teller in tellers]
        assert found == [[turns, [ACCOUNTS * MONEY]]] * 2
        assert sum(owner["accounts"].to_arrow()["balance"].to_pylist()) == ACCOUNTS * MONEY
        assert owner["moves"].count() == 2 * turns
