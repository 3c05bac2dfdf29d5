"""Followed: a feed commit by commit, of all its tables, in the order of their seqs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

ROWS_MAX = 65_536


@dataclass(frozen=True, slots=True)
class Change:
    """One commit of a feed: its sequence number, and by table its rows, as `changes` has them.

    A commit with many rows comes in several changes, of which only the last `is_whole`. To go on
    later, follow from the `seq` of the last change that was whole.

    Examples:
        >>> change = next(iter(db.follow(0)))
        >>> change.seq, change.is_whole, change["orders"].select(["_op", "id"]).to_pylist()
        (2, True, [{'_op': 'upsert', 'id': 1}, {'_op': 'upsert', 'id': 2}])
    """

    seq: int
    tables: Mapping[str, pa.Table]
    is_whole: bool = True

    def __getitem__(self, name: str) -> pa.Table:
        """Return the rows of a table, with `_seq` and `_op`.

        Raises:
            KeyError: The commit wrote nothing to it.
        """
        return self.tables[name]


class _Rows:
    """The rows of one table that are left. One thread."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader = reader
        self._left: pa.RecordBatch | None = None
        self._seqs = np.zeros(0, np.int64)

    @property
    def seq(self) -> int | None:
        """The seq of the next row; None: there is none."""
        while self._left is None or not self._left.num_rows:
            found = next(self._reader, None)
            if found is None:
                return None
            self._left, self._seqs = found, found.column("_seq").to_numpy()
        return int(self._seqs[0])

    def take(self, rows_max: int) -> pa.RecordBatch:
        """Return the next rows of one seq; more of it may follow."""
        assert self._left is not None
        count = int(np.searchsorted(self._seqs, self._seqs[0], "right"))
        count = min(count, rows_max)
        taken = self._left.slice(0, count)
        self._left, self._seqs = self._left.slice(count), self._seqs[count:]
        return taken


def commits_of(
    readers: Mapping[str, pa.RecordBatchReader], rows_max: int = ROWS_MAX
) -> Iterator[Change]:
    """Yield the commits of feeds; in one change there are about `rows_max` rows at most."""
    left = {name: _Rows(reader) for name, reader in readers.items()}
    while True:
        seqs = {name: seq for name, rows in left.items() if (seq := rows.seq) is not None}
        if not seqs:
            return
        seq = min(seqs.values())
        names = [name for name, each in seqs.items() if each == seq]
        yield from _pieces(seq, {name: left[name] for name in names}, rows_max)


def _pieces(seq: int, tables: Mapping[str, _Rows], rows_max: int) -> Iterator[Change]:
    found: dict[str, list[pa.RecordBatch]] = {}
    count = 0
    for name, rows in tables.items():
        while rows.seq == seq:
            if count >= rows_max:
                yield Change(seq, _tables(found), is_whole=False)
                found, count = {}, 0
            batch = rows.take(rows_max - count)
            found.setdefault(name, []).append(batch)
            count += batch.num_rows
    yield Change(seq, _tables(found))


def _tables(found: Mapping[str, list[pa.RecordBatch]]) -> dict[str, pa.Table]:
    return {name: pa.Table.from_batches(batches) for name, batches in found.items()}
