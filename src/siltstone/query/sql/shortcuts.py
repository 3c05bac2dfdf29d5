"""Shortcuts: parts of a statement that need few rows of a table, or none with values.

    SELECT count(*) FROM t             as many rows, without their values
    SELECT min(key), max(key) FROM t   the rows with the first and the last key

Each is one wherever it stands in a statement that reads the table nowhere else. DuckDB would read a
column of all rows. It gets these rows instead, so all else of the statement (names, types, what is
done with the number) remains its own. Keys in order are `pages`.
"""

# ruff: noqa: A002 (`filter` is pyarrow's word)

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.query.sql.dataset import Filter, Scannable
from siltstone.query.sql.shielded import folded

ROWS = ""
"""What a statement needs of a table that it counts; else the name of a column."""
_BATCH_ROWS = 122_880
_BATCH_BYTES = 4 << 20
_OF_A_TABLE = {"this", "db", "catalog", "alias"}


@runtime_checkable
class Countable(Scannable, Protocol):
    """A table that knows how many rows it has."""

    def count(self) -> int:
        """Return the number of rows."""
        ...


@dataclass(frozen=True, slots=True)
class Shortened:
    """A table of which a statement needs the `rows` alone, if it has no filter."""

    source: Scannable
    rows: Callable[[Sequence[str] | None], pa.RecordBatchReader]

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return self.source.schema

    def scan(
        self, columns: Sequence[str] | None, filter: Filter, limit: int | None
    ) -> pa.RecordBatchReader:
        """Return these rows; if there is a filter, all that match."""
        return self.rows(columns) if filter is None else self.source.scan(columns, filter, limit)


def _to_count(source: Countable, columns: Sequence[str] | None) -> pa.RecordBatchReader:
    """Return as many rows as a table has, of nulls."""
    names = source.schema.names if columns is None else columns
    fields = pa.schema([source.schema.field(name).with_nullable(True) for name in names])
    return pa.RecordBatchReader.from_batches(fields, _nulls(source, fields))


def _nulls(source: Countable, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
    left = source.count()
    row_bytes = 1 + sum(pa.nulls(1, field.type).nbytes for field in fields)
    rows = min(left, _BATCH_ROWS, max(1, _BATCH_BYTES // row_bytes))  # a vector has room, too
    nothing = [pa.nulls(rows, field.type) for field in fields]
    whole = pa.RecordBatch.from_arrays(nothing, schema=fields)
    while left:
        yield whole.slice(0, left)
        left -= min(left, rows)


@runtime_checkable
class Ordered(Scannable, Protocol):
    """A table that may find its rows in order."""

    @property
    def ordered_key(self) -> tuple[str, ...]:
        """The names of the key columns, if rows are found in their order; else none."""
        ...

    def scan_by(
        self,
        columns: Sequence[str] | None,
        filter: pc.Expression | None,
        *,
        column: str | None = None,
        ends: Sequence[tuple[str, object]] = (),
        descending: bool,
        limit: int | None,
        likely: int,
    ) -> pa.RecordBatchReader:
        """Return the rows by a column, or the key (None), of which so many are `likely` read.

        `ends`: how their keys compare with some, as (">", key).
        """
        ...


def _at_ends(source: Ordered, columns: Sequence[str] | None) -> pa.RecordBatchReader:
    """Return the rows with the first and the last key."""
    page: dict[str, Any] = {"limit": 1, "likely": 1}
    first, last = (
        source.scan_by(columns, None, descending=way, **page).read_all() for way in (False, True)
    )
    return pa.concat_tables([first, last]).to_reader()


def shortened(source: Scannable, needed: str | None) -> Scannable:
    """Return what has the rows that a statement needs of a table; None: all of them."""
    if needed is None:
        return source
    if needed == ROWS:
        counted = isinstance(source, Countable)
        return Shortened(source, partial(_to_count, source)) if counted else source
    if not isinstance(source, Ordered) or [*map(folded, source.ordered_key)] != [needed]:
        return source
    return Shortened(source, partial(_at_ends, source))


def needed_of(table: Any) -> str | None:
    """Return what is needed of a table in a tree of sqlglot: `ROWS`, a column, or None: all."""
    from sqlglot import exp  # noqa: PLC0415 (0.3 s)

    select = table.parent.parent if isinstance(table.parent, exp.From) else None
    is_plain = (
        isinstance(select, exp.Select)
        and _given(select) <= {"expressions", "from_", "with_"}
        and _given(table) <= _OF_A_TABLE
        and not (table.args.get("alias") and table.args["alias"].columns)  # they may swap names
    )
    chosen = cast("Any", select).expressions if is_plain else ()
    needed = {_needed_by(each.unalias()) for each in chosen}
    return needed.pop() if len(needed) == 1 else None


def _needed_by(node: Any) -> str | None:
    from sqlglot import exp  # noqa: PLC0415 (0.3 s)

    if isinstance(node, exp.Min | exp.Max) and _given(node) <= {"this"}:
        is_column = isinstance(node.this, exp.Column) and len(node.this.parts) == 1
        # With a dot it may be a field of a struct.
        return folded(node.this.name) if is_column else None
    is_count = isinstance(node, exp.Count) and _given(node) <= {"this", "big_int"}
    is_star = is_count and isinstance(node.this, exp.Star) and not _given(node.this)
    return ROWS if is_star or (is_count and node.this is None) else None


def _given(node: Any) -> set[str]:
    return {name for name, value in node.args.items() if value}
