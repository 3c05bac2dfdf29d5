"""Commit log: time, transaction, token, tables and rows of each commit of one generation.

It has compact columns next to the memtables (about 40 bytes per commit). The flush writes them to
the store's dataset `commits`. `at=` and `outcome()` look here first, then there. The leader appends
and raises `count` last; readers read `count` first.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

import msgspec
import pyarrow as pa

from siltstone.formats.log.group import Token

COMMITS_SCHEMA = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("transaction", pa.string(), nullable=False),
        pa.field("app", pa.string()),
        pa.field("batch", pa.int64()),
        pa.field("tables", pa.list_(pa.int64()), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
    ]
)


class Commit(msgspec.Struct, frozen=True):
    """One commit: `time_us` since 1970 UTC, `tables` by incarnation."""

    seq: int
    time_us: int
    transaction: str
    token: Token | None
    tables: tuple[int, ...]
    rows: int


def transaction_id(epoch: int, number: int) -> str:
    """Return the id of a transaction for `outcome`: unique in a store for ever."""
    return f"{epoch}-{number}"


class CommitLog:
    """The commits of one generation, in seq order and without gaps."""

    __slots__ = ("_epochs", "_numbers", "_rows", "_tables", "_times", "_tokens", "count", "first")

    def __init__(self, first: int) -> None:
        self.first, self.count = first, 0
        self._times, self._epochs = array("q"), array("q")
        self._numbers, self._rows = array("q"), array("q")
        self._tables: list[tuple[int, ...]] = []
        self._tokens: dict[int, Token] = {}

    def append(
        self,
        time_us: int,
        epoch: int,
        number: int,
        token: Token | None,
        tables: tuple[int, ...],
        rows: int,
    ) -> None:
        """Add the next commit."""
        if token is not None:
            self._tokens[self.count] = token
        self._times.append(time_us)
        self._epochs.append(epoch)
        self._numbers.append(number)
        self._tables.append(tables)
        self._rows.append(rows)
        self.count += 1

    def above(self, seq: int) -> CommitLog:
        """Return the commits with a seq above `seq`, at least that before the first."""
        found, cut = CommitLog(seq + 1), seq + 1 - self.first
        found._times, found._epochs = self._times[cut:], self._epochs[cut:]
        found._numbers, found._rows = self._numbers[cut:], self._rows[cut:]
        found._tables = self._tables[cut:]
        found._tokens = {at - cut: token for at, token in self._tokens.items() if at >= cut}
        found.count = self.count - cut
        return found

    def commit(self, index: int) -> Commit:
        """Return the commit at `index` from the first."""
        return Commit(
            self.first + index,
            self._times[index],
            transaction_id(self._epochs[index], self._numbers[index]),
            self._tokens.get(index),
            self._tables[index],
            self._rows[index],
        )

    def seq_at(self, time_us: int) -> int | None:
        """Return the seq of the last commit with a time <= `time_us`; None if all are later."""
        index = bisect_right(self._times, time_us, 0, self.count)
        return self.first + index - 1 if index else None

    def find(self, epoch: int, number: int) -> int | None:
        """Return the seq of a transaction, None if it is not here."""
        for index in range(self.count - 1, -1, -1):
            if self._numbers[index] == number and self._epochs[index] == epoch:
                return self.first + index
        return None

    def token(self, token: Token, since: int = 0) -> Commit | None:
        """Return the commit with `token` above the seq `since`, None if it is not here."""
        first, count = since + 1 - self.first, self.count
        for index in list(self._tokens):  # at once: the leader adds to them meanwhile
            if first <= index < count and self._tokens[index] == token:
                return self.commit(index)
        return None

    def to_batch(self) -> pa.RecordBatch:
        """Return all commits as rows of `commits`."""
        count = self.count
        commits = [self.commit(index) for index in range(count)]
        tokens = [commit.token for commit in commits]
        return pa.RecordBatch.from_arrays(
            [
                pa.array(range(self.first, self.first + count), pa.int64()),
                pa.array(self._times[:count], pa.int64()).view(COMMITS_SCHEMA.field("time").type),
                pa.array([commit.transaction for commit in commits], pa.string()),
                pa.array([t.app if t else None for t in tokens], pa.string()),
                pa.array([t.batch if t else None for t in tokens], pa.int64()),
                pa.array([list(c.tables) for c in commits], pa.list_(pa.int64())),
                pa.array(self._rows[:count], pa.int64()),
            ],
            schema=COMMITS_SCHEMA,
        )
