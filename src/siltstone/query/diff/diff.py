"""Diff: what differs between two seqs of a store, counted table by table, and the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from siltstone.query.held_rows import HeldRows
from siltstone.text import shown

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import polars as pl

ReadRows = Callable[[str], pa.RecordBatchReader]
"""Returns the rows of the diff of a table by its name."""


RowCounts: TypeAlias = tuple[int, int, int]
"""How many rows of a table were added, removed, and changed."""
_COLUMNS = ("table", "added", "removed", "changed")


@dataclass(frozen=True, slots=True)
class TableDiff:
    """The diff of one table: its counts, and its rows, which are read when they are asked for.

    A row has `_change` ("added", "removed" or "changed"), the columns of the key, and the others as
    two structs: `_old`, null if it was added, and `_new`, null if it was removed. Rows come in the
    order of the key; without a key those that are gone come first.
    """

    name: str
    added: int
    removed: int
    changed: int
    _read: ReadRows = field(repr=False, compare=False)

    def __len__(self) -> int:
        """Return how many rows differ."""
        return self.added + self.removed + self.changed

    def scan(self) -> pa.RecordBatchReader:
        """Return the rows as they are read.

        Raises:
            SnapshotExpiredError: The store does not keep one of the two seqs any more.
        """
        return self._read(self.name)

    def to_arrow(self) -> pa.Table:
        """Return the rows as a table of Arrow."""
        return self.scan().read_all()

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas data frame."""
        return HeldRows(self.to_arrow()).to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Return the rows as a Polars data frame."""
        return HeldRows(self.to_arrow()).to_polars()

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return the rows as dicts."""
        return self.to_arrow().to_pylist()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.scan().__arrow_c_stream__(requested_schema)


class Diff(Mapping[str, TableDiff]):
    """The tables at either of two seqs, `a` and `b`, by name. Immutable."""

    def __init__(self, a: int, b: int, counts: Mapping[str, RowCounts], read: ReadRows) -> None:
        """`counts` are by name; `read` returns the rows of a table, streamed."""
        self.a, self.b = a, b
        self._tables = {name: TableDiff(name, *each, read) for name, each in counts.items()}

    def __getitem__(self, name: str) -> TableDiff:
        return self._tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    @property
    def rows(self) -> int:
        """How many rows of all tables differ."""
        return sum(map(len, self._tables.values()))

    def __repr__(self) -> str:
        below = f"(seq {self.a} to seq {self.b})"
        return shown.as_text(_COLUMNS, self._lines(), below)

    def _repr_html_(self) -> str:
        below = f"seq {self.a} to seq {self.b}"
        return shown.as_html(_COLUMNS, self._lines(), below)

    def _lines(self) -> list[tuple[Any, ...]]:
        return [(each.name, each.added, each.removed, each.changed) for each in self.values()]
