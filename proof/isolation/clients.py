"""Clients: each plays against all others on one store, and writes down what it saw.

    lists       a transaction reads some lists and appends to some of those; x and y are tables
    registers   a row is read, written blindly, or read and written in one transaction
    forks       a transaction counts one row up; a snapshot looks at all of them at once
    pairs       a serializable transaction inserts a row if it counts none of its pair

A client is the same whatever it plays on: a store that it owns, one that it joined by a socket or
a URL, and, to look only, one that it reads beside the owner. Rows are left behind after `ROTATE_S`,
so that no list grows long; all clients of a run count from the same moment.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import siltstone as st
from proof.isolation.journal import LEVELS, Entry, Journal

ROTATE_S = 2.0
LISTS, REGISTERS, FORKS, PAIRS = 3, 2, 3, 2
TABLES = tuple(f"{name}_{level}" for level in LEVELS for name in "xy")
_RUN, _ROTATION, _CLIENT = 1_000_000, 10, 1_000_000


def create(db: st.Store) -> None:
    """Make the tables of all games."""
    with db.transaction() as tx:
        for name in TABLES:
            tx.create_table(name, {"id": "int64", "v": "string"}, "id")
        tx.create_table("registers", {"id": "int64", "v": "int64"}, "id")
        tx.create_table("forks", {"id": "int64", "v": "int64"}, "id")
        tx.create_table("pairs", {"id": "int64", "pair": "int64"}, "id")


def lists_in(source: Any) -> dict[tuple[str, int], list[int]]:
    """Return all lists of a store or a snapshot."""
    return {
        (name, row["id"]): _values(row)
        for name in TABLES
        for row in source[name].to_arrow().to_pylist()
    }


def crowded_pairs(source: Any) -> list[str]:
    """Return the pairs that have more than one row: what two counted none of."""
    seen = source["pairs"].to_arrow()["pair"].to_pylist()
    return [f"phantom: pair {pair} is there twice" for pair in {*seen} if seen.count(pair) > 1]


def _values(row: dict[str, Any] | None) -> list[int]:
    return [int(value) for value in (row or {"v": ""})["v"].split(",") if value]


class Client:
    """One client; one thread at a time.

    Args:
        number: No other client of the run has it, also none that was killed.
        run: Number of the run over this store; its rows are its own.
        begun: When the run began, by the monotonic clock of the machine.
        rotate_s: How long it uses the same rows.
        linger_s: How long at most it lets others come between what it reads and its commit.
    """

    def __init__(
        self,
        db: Any,
        journal: Journal,
        *,
        number: int,
        seed: int,
        run: int,
        begun: float,
        rotate_s: float = ROTATE_S,
        linger_s: float = 0.002,
    ) -> None:
        self.db, self._journal, self._number = db, journal, number
        self._chance = random.Random(f"{seed} {number}")
        self._run, self._begun = run, begun
        self._rotate_s, self._linger_s = rotate_s, linger_s
        self._numbers = itertools.count()
        self._values = itertools.count(number * _CLIENT + 1)
        self._in_doubt: list[tuple[str, Entry]] = []

    def play(self) -> None:
        """Play one turn of a game.

        Raises:
            SiltstoneError: The store is out of reach, or refuses; never that another one won, or
                that the turn is in doubt.
        """
        turn = self._chance.choices(
            (self._append, self.look, self._use_register, self._count_up, self._take_pair),
            (55, 12, 18, 10, 5),
        )[0]
        with contextlib.suppress(st.ConflictError, st.InDoubtError):
            turn()

    def look(self, *, is_beside: bool = False) -> None:
        """Look at all lists and counts of now at once.

        Args:
            is_beside: The store is read beside its owner.
        """
        places, forks = self._places(LISTS), self._places(FORKS)
        told = [self._entry(level, steps=[], is_beside=is_beside) for level in LEVELS]
        fork = self._entry("fork", place=forks[0])
        with self.db.snapshot() as snapshot:
            for entry in told:
                for name in "xy":
                    table = f"{name}_{entry['what']}"
                    entry["steps"] += self._seen(snapshot[table], table, places)
            found = snapshot["forks"].get_many([*forks]).to_pylist()
        counts = {row["id"]: row["v"] for row in found}
        for entry in (*told, fork | {"seen": [counts.get(place, 0) for place in forks]}):
            self._end(entry, "committed")

    def resolve(self) -> None:
        """Ask what became of the commits whose answers were lost, on the store as it is now."""
        while self._in_doubt:
            transaction_id, entry = self._in_doubt[0]
            try:
                outcome = self.db.outcome(transaction_id)
            except st.SnapshotExpiredError:  # nobody knows any more
                outcome = "in doubt"
            self._in_doubt.pop(0)
            if outcome != "in doubt":
                status = "committed" if outcome == "committed" else "aborted"
                self._end(entry, status)

    def cross(self, other: Client) -> None:
        """Have two transactions of each level overlap, that read two lists and append to one each.

        Under snapshot isolation both commit: that is write skew. In series one of them is refused,
        and so is one of two that count the rows of a pair and then insert one.
        """
        places = self._places(LISTS)
        for level in LEVELS:
            keys = [(f"{name}_{level}", places[0]) for name in "xy"]

            def then(level: str = level, keys: list[tuple[str, int]] = keys) -> None:
                other._read_all_and_append_to_one(level, keys[::-1], lambda: None)

            self._read_all_and_append_to_one(level, keys, then)
        pair = self._places(PAIRS)[0]
        with contextlib.suppress(st.ConflictError):
            self._take(pair, lambda: other._take(pair))

    def _read_all_and_append_to_one(
        self, level: str, keys: list[tuple[str, int]], then: Callable[[], None]
    ) -> None:
        entry = self._entry(level, steps=[], is_beside=False)

        def work(tx: Any) -> bool:
            for place, (table, number) in enumerate(keys):
                self._visit(tx, table, number, entry["steps"], appends=place == 0)
            then()
            return True

        self._transact(entry, level, work)

    # how a turn is noted

    def _entry(self, what: str, **more: object) -> Entry:
        begun = time.monotonic()
        return {
            "client": self._number,
            "n": next(self._numbers),
            "what": what,
            "begun": begun,
            "ended": begun,
            "status": "aborted",
            **more,
        }

    def _end(self, entry: Entry, status: str) -> None:
        self._journal.note(entry | {"status": status, "ended": time.monotonic()})

    def _commit(self, entry: Entry, commit: Callable[[], object]) -> None:
        """Commit what is noted in `entry`; note before that it is tried, and then how it ended."""
        self._journal.note(entry | {"status": "unknown"})
        try:
            commit()
        except st.InDoubtError as error:
            self._end(entry, "unknown")
            self._in_doubt.append((error.transaction_id, entry))
            return
        except st.ConflictError:
            self._end(entry, "aborted")
            return
        except st.SiltstoneError:
            self._end(entry, "aborted")
            raise
        self._end(entry, "committed")

    def _transact(self, entry: Entry, isolation: str, work: Callable[[Any], bool]) -> None:
        """Run `work` in a transaction; it is committed if that says so, else taken back."""
        tx = self.db.transaction(isolation=isolation)
        try:
            if work(tx):
                self._commit(entry, tx.commit)
            else:
                tx.rollback()
                self._end(entry, "aborted")
        except st.ConflictError:
            self._end(entry, "aborted")
        finally:
            tx.rollback()

    def _places(self, count: int) -> range:
        rotation = int((time.monotonic() - self._begun) / self._rotate_s)
        first = self._run * _RUN + rotation * _ROTATION
        return range(first, first + count)

    # lists

    def _append(self) -> None:
        level = self._chance.choice(LEVELS)
        keys = list(itertools.product((f"x_{level}", f"y_{level}"), self._places(LISTS)))
        chosen = self._chance.sample(keys, self._chance.randint(1, 3))
        entry = self._entry(level, steps=[], is_beside=False)

        def work(tx: Any) -> bool:
            for table, place in chosen:
                appends = self._chance.choices((0, 1, 2), (35, 55, 10))[0]
                self._visit(tx, table, place, entry["steps"], appends=appends)
            if self._chance.random() < 0.3:
                table, place = chosen[0]  # own writes are seen, and nobody else's
                entry["steps"].append([table, place, _values(tx[table].get(place))])
            time.sleep(self._chance.uniform(0, self._linger_s))
            return self._chance.random() < 0.95

        self._transact(entry, level, work)

    def _visit(
        self, tx: Any, table: str, place: int, steps: list[list[object]], *, appends: int
    ) -> None:
        values = _values(tx[table].get(place))
        steps.append([table, place, values])
        for _ in range(appends):
            value = next(self._values)
            values = [*values, value]
            tx[table].upsert({"id": place, "v": ",".join(map(str, values))})
            steps.append([table, place, value])

    def _seen(self, table: Any, name: str, places: Sequence[int]) -> Iterable[list[object]]:
        way = self._chance.randrange(3)
        if way == 0:
            rows = [row for place in places if (row := table.get(place))]
        elif way == 1:
            rows = table.get_many([*places]).to_pylist()
        else:
            between = f"id >= {places[0]} and id <= {places[-1]}"
            rows = table.to_arrow(filter=between).to_pylist()
        found = {row["id"]: _values(row) for row in rows}
        return [[name, place, found.get(place, [])] for place in places]

    # the other games

    def _use_register(self) -> None:
        place = self._chance.choice(self._places(REGISTERS))
        kind = self._chance.choice(("read", "write", "swap"))
        entry = self._entry("register", place=place, kind=kind, value=0, expected=0)
        registers = self.db["registers"]
        if kind == "read":
            entry["value"] = (registers.get(place) or {"v": 0})["v"]
            self._end(entry, "committed")
            return
        entry["value"] = next(self._values)
        row = {"id": place, "v": entry["value"]}
        if kind == "write":
            self._commit(entry, lambda: registers.upsert(row))
            return

        def swap(tx: Any) -> bool:
            entry["expected"] = (tx["registers"].get(place) or {"v": 0})["v"]
            tx["registers"].upsert(row)
            return True

        self._transact(entry, "snapshot", swap)

    def _count_up(self) -> None:
        place = self._places(FORKS)[self._number % FORKS]
        with self.db.transaction() as tx:
            count = (tx["forks"].get(place) or {"v": 0})["v"]
            tx["forks"].upsert({"id": place, "v": count + 1})

    def _take_pair(self) -> None:
        self._take(self._chance.choice(self._places(PAIRS)))

    def _take(self, pair: int, then: Callable[[], None] = lambda: None) -> None:
        with self.db.transaction(isolation="serializable") as tx:
            if not tx["pairs"].count(f"pair = {pair}"):
                then()
                tx["pairs"].insert({"id": next(self._values), "pair": pair})
