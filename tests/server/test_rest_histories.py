"""Clients of a server that is killed under them see isolation: lists they append to, and a bank."""

from __future__ import annotations

import http.client
import itertools
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import siltstone as st
from proof.isolation.histories import Append, Read, Status, Transaction, anomalies
from proof.isolation.journal import LEVELS
from tests.server.rest import Answer, Rest

TABLES, KEYS = ("x", "y"), 2
CLIENTS, COMMITS = 4, 45
ACCOUNTS, MONEY = 4, 100
GONE = (ConnectionError, http.client.HTTPException, TimeoutError)


class House:
    """A server process that dies, and the one that comes after it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._there = threading.Condition()
        self.port = 0
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "siltstone", "serve", "--db", str(self._path)]
        self._process = subprocess.Popen(
            [*command, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        port = urlsplit(self._process.stdout.readline().strip()).port
        assert port is not None
        with self._there:
            self.port = port
            self._there.notify_all()

    def again(self) -> None:
        """Kill the server; start the next one."""
        with self._there:
            self.port = 0
        self.close()
        self._start()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def client(self) -> Rest:
        """Return a client, once there is somebody to talk to."""
        with self._there:
            assert self._there.wait_for(lambda: self.port, 60)
            return Rest(self)  # type: ignore[arg-type]


@contextmanager
def house_of(path: Path) -> Iterator[House]:
    house = House(path)
    try:
        yield house
    finally:
        house.close()


class Lost(Exception):
    """A transaction that did not end well: it lost a race, or its server died."""


def done(answer: Answer) -> Answer:
    if answer.status in {404, 409, 503}:  # unknown since a restart; beaten; about to close
        raise Lost
    assert answer.status == 200, answer.body
    return answer


class Historian:
    """One client at a time for each thread; all of them write one history."""

    def __init__(self, house: House, isolation: str) -> None:
        self._house, self._isolation = house, isolation
        self._tables = [f"{name}_{isolation}" for name in TABLES]
        self._values, self._numbers = itertools.count(1), itertools.count()
        self._lock = threading.Lock()
        self.history: list[Transaction] = []

    @property
    def committed(self) -> int:
        return sum(each.status is Status.COMMITTED for each in self.history)

    def run(self, seed: int) -> None:
        chance = random.Random(seed)
        rest = self._house.client()
        while self.committed < COMMITS:
            step = self._look if chance.random() < 0.2 else self._write
            try:
                step(rest, chance)
            except GONE:
                rest.close()
                rest = self._house.client()
        rest.close()

    def finish(self) -> list[Transaction]:
        rest = self._house.client()
        self._look(rest, random.Random(0))
        rest.close()
        return self.history

    def _note(self, begun: float, status: Status, steps: Sequence[Read | Append]) -> None:
        with self._lock:
            number = len(self.history)
            now = time.monotonic()
            self.history.append(Transaction(number, begun, now, status, tuple(steps)))

    def _write(self, rest: Rest, chance: random.Random) -> None:
        """Read some lists and append to some of those, in a transaction by its header."""
        begun, steps, status = time.monotonic(), list[Read | Append](), Status.ABORTED
        keys = [(chance.choice(self._tables), chance.randrange(KEYS)) for _ in range(3)]
        try:
            body = {"isolation": self._isolation}
            key = done(rest.post("/v1/transaction/begin", body)).json["id"]
            for table, place in dict.fromkeys(keys):
                found = self._read(rest, table, place, x_siltstone_txn=key)
                steps.append(found)
                if chance.random() < 0.6:
                    steps.append(self._append(rest, found, key))
            status = Status.UNKNOWN
            end = rest.post(f"/v1/transaction/{key}/commit")
            status = Status.COMMITTED if end.status == 200 else Status.ABORTED
        except Lost:
            status = Status.ABORTED
        finally:
            self._note(begun, status, steps)

    def _append(self, rest: Rest, found: Read, transaction: str) -> Append:
        table, place = found.key  # type: ignore[misc]
        with self._lock:
            value = next(self._values)
        text = ",".join(map(str, (*found.values, value)))
        made = {"predicate": f"id = {place}", "updates": [["v", f"'{text}'"]]}
        done(rest.post(f"/v1/table/{table}/update", made, x_siltstone_txn=transaction))
        return Append(found.key, value)

    def _look(self, rest: Rest, _: random.Random) -> None:
        """Read every list at one seq, by the header of a snapshot."""
        begun = time.monotonic()
        with suppress(Lost):
            at = f"seq:{done(rest.get('/v1/status')).seq}"
            steps = [
                self._read(rest, table, place, x_siltstone_snapshot=at)
                for table in self._tables
                for place in range(KEYS)
            ]
            self._note(begun, Status.COMMITTED, steps)

    def _read(self, rest: Rest, table: str, place: int, **headers: str) -> Read:
        query = {"filter": f"id = {place}", "k": 1}
        (row,) = done(rest.post(f"/v1/table/{table}/query", query, **headers)).rows
        return Read((table, place), tuple(int(v) for v in row["v"].split(",") if v))


def meanwhile(house: House, is_over: Callable[[], bool], kill_at: Callable[[], bool]) -> None:
    """Flush, merge and optimize all the time, and kill the server once."""
    rest, is_killed = house.client(), False
    while not is_over():
        try:
            for verb in ("checkpoint", "merge", "optimize"):
                assert rest.post(f"/v1/{verb}", {}).status in {202, 429}
        except GONE:
            rest.close()
            rest = house.client()
        if not is_killed and kill_at():
            house.again()
            is_killed = True
        time.sleep(0.05)  # a pace, not a meeting: it leaves the two cores to the clients
    rest.close()
    assert is_killed


def together(works: Sequence[Callable[[], None]]) -> None:
    """Run all works in threads; raise what one of them raised."""
    failures: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures, failures
    assert not any(thread.is_alive() for thread in threads)


def test_lists_that_clients_append_to_tell_of_no_anomaly(tmp_path: Path) -> None:
    with st.connect(tmp_path / "shop") as db:
        for table in (f"{name}_{level}" for name in TABLES for level in LEVELS):
            db.create_table(table, {"id": "int64", "v": "string"}, primary_key="id")
            db[table].upsert([{"id": place, "v": ""} for place in range(KEYS)])
    with house_of(tmp_path / "shop") as house:
        told = [Historian(house, level) for level in LEVELS]

        def have_committed(count: int) -> bool:
            return all(each.committed >= count for each in told)

        together(
            [
                *(lambda n=n: told[n % 2].run(n) for n in range(2 * CLIENTS)),
                lambda: meanwhile(
                    house,
                    lambda: have_committed(COMMITS),
                    lambda: have_committed(COMMITS // 3),
                ),
            ]
        )
        histories = [each.finish() for each in told]
    for level, history in zip(LEVELS, histories, strict=True):
        assert anomalies(history, is_serializable=level == "serializable") == []
        assert any(each.status is Status.ABORTED for each in history)  # they did meet


class Bank:
    """Accounts in two tables, and clients that move money from one table to the other."""

    def __init__(self, house: House) -> None:
        self._house, self._lock = house, threading.Lock()
        self.transfers = 0

    def run(self, seed: int) -> None:
        chance, rest = random.Random(seed), self._house.client()
        while self.transfers < COMMITS:
            try:
                if chance.random() < 0.2:
                    self.count(rest)
                else:
                    self._transfer(rest, chance)
            except Lost:
                continue
            except GONE:
                rest.close()
                rest = self._house.client()
        rest.close()

    def _transfer(self, rest: Rest, chance: random.Random) -> None:
        key = done(rest.post("/v1/transaction/begin")).json["id"]
        amount = chance.randrange(1, 10)
        for table, sign in zip(chance.sample(TABLES, 2), "+-", strict=True):
            account = f"id = {chance.randrange(ACCOUNTS)}"
            change = {"predicate": account, "updates": [["v", f"v {sign} {amount}"]]}
            done(rest.post(f"/v1/table/{table}/update", change, x_siltstone_txn=key))
        done(rest.post(f"/v1/transaction/{key}/commit"))
        with self._lock:
            self.transfers += 1

    def count(self, rest: Rest) -> None:
        at = {"x_siltstone_snapshot": f"seq:{done(rest.get('/v1/status')).seq}"}
        rows = [done(rest.post(f"/v1/table/{table}/query", {}, **at)).rows for table in TABLES]
        assert sum(row["v"] for row in itertools.chain(*rows)) == 2 * ACCOUNTS * MONEY


def test_a_bank_keeps_its_money_whoever_dies(tmp_path: Path) -> None:
    with st.connect(tmp_path / "bank") as db:
        for table in TABLES:
            db.create_table(table, {"id": "int64", "v": "int64"}, primary_key="id")
            db[table].upsert([{"id": n, "v": MONEY} for n in range(ACCOUNTS)])
    with house_of(tmp_path / "bank") as house:
        bank = Bank(house)

        def has_moved(count: int) -> Callable[[], bool]:
            return lambda: bank.transfers >= count

        together(
            [
                *(lambda seed=seed: bank.run(seed) for seed in range(CLIENTS)),
                lambda: meanwhile(house, has_moved(COMMITS), has_moved(COMMITS // 3)),
            ]
        )
        rest = house.client()
        bank.count(rest)
        rest.close()
    with st.connect(tmp_path / "bank", background=False) as db:
        assert db.verify(deep=True).is_sound
