"""Running: one statement that writes, in its transaction: what it reads, and what its tables are.

DuckDB reads at the transaction's snapshot, and the transaction's own rows. What is read is in
memory before the first row is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.api.tables import TransactionTable
from siltstone.api.transaction import Transaction
from siltstone.choices import Missing, StagedOp
from siltstone.engine.commit.committer import FRAME_BYTES_MAX
from siltstone.engine.commit.core import Core
from siltstone.engine.write.stage_task import Staged, StageTask, begin
from siltstone.errors import LimitError, RequestError, SchemaMismatchError, TableNotFoundError
from siltstone.local.statements.fitted import fitted
from siltstone.local.statements.names import name_among
from siltstone.query.sql.shielded import folded, refuse_alike
from siltstone.query.sql.writes.constants import Given
from siltstone.query.sql.writes.queries import (
    ACTIONS,
    ROWS,
    Chosen,
    Listed,
    TypedColumn,
    Values,
    of_rows,
    types_query,
)
from siltstone.query.sql.writes.statements import Returning, Target
from siltstone.query.sql.writes.words import words_of

STAGED_BYTES_MIN = 64 << 20
"""Rows of a statement that commits by itself, from which on they are staged."""
_MISFITS = ("Conversion Error", "Invalid Input Error", "Out of Range Error")
_FEW = re.compile(r'table "q" has (\d+) columns available but (\d+) columns specified')
_NONE: Mapping[str, pa.Table] = MappingProxyType({})
_TYPES: dict[pa.Schema, tuple[str, ...]] = {}
"""DuckDB's types of some schemas, which it was asked for; any thread."""
_TYPES_MAX = 64
Read: TypeAlias = Callable[[str, Given, Mapping[str, pa.Table]], pa.RecordBatchReader]
"""Runs a query with parameters, and rows under names that no table has."""


@dataclass(frozen=True, slots=True)
class Written:
    """How many rows a statement wrote, and what it returns of them."""

    rows: int
    returned: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """See the module. `is_alone`: the statement is all of its transaction. One thread.

    `frame` returns the rows of a data frame of the caller by its name.
    """

    tx: Transaction
    core: Core
    read: Read
    frame: Callable[[str], pa.Table | None]
    given: Given
    is_alone: bool
    staged: list[tuple[StageTask, list[Staged]]] = field(
        default_factory=list[tuple[StageTask, list[Staged]]]
    )

    # tables

    def table(self, target: Target) -> TransactionTable:
        """Return the table that a statement writes.

        Raises:
            TableNotFoundError: There is none of that name.
        """
        return self.tx[self.name(target)]

    def rows_in(self, target: Target) -> TransactionTable:
        """Return the table, with columns that a statement calls by their names; see `table`.

        Raises:
            RequestError: DuckDB does not tell two of them apart.
        """
        table = self.table(target)
        refuse_alike(table.name, table.schema)
        return table

    def name(self, target: Target) -> str:
        """Return the name of the table that a statement writes; see `table`."""
        names = self.tx.tables()
        found = name_among(target, names)
        if found is None:
            raise TableNotFoundError(".".join(target.parts), names)
        return found

    # queries

    def batches(self, sql: str, rows: Mapping[str, pa.Table] = _NONE) -> pa.RecordBatchReader:
        """Run a query; return its rows as they are read."""
        used = self.given
        if used:
            names = {folded(each.text[1:]) for each in words_of(sql) if each.kind == "parameter"}
            used = {name: value for name, value in used.items() if name in names}
        return self.read(sql, used, rows)

    def rows(self, sql: str, rows: Mapping[str, pa.Table] = _NONE) -> pa.Table:
        """Run a query; return its rows.

        Raises:
            LimitError: They take more than one commit holds.
        """
        found = self.batches(sql, rows)
        return pa.Table.from_batches(self.bounded(found), found.schema)

    def bounded(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches as long as they are no more than the statement may write."""
        nbytes, most = 0, self.bytes_max
        for batch in batches:
            nbytes += batch.nbytes
            if nbytes > most:
                instead = (
                    "raise it" if self.is_alone else "commit it by itself, with sql() of the store"
                )
                raise LimitError(
                    f"the statement writes more than {most} bytes of rows; {instead}, or write"
                    " them in parts",
                    most,
                )
            yield batch

    @property
    def bytes_max(self) -> int:
        """What the rows of the statement may take: alone as much as any statement, else a frame."""
        return self.core.sql.memory_bytes_max if self.is_alone else FRAME_BYTES_MAX

    def values(self, query: Values | Listed, fields: pa.Schema) -> pa.Table:
        """Return the rows for columns of a table, which `fields` are those that are written.

        Raises:
            SchemaMismatchError: A value does not fit: its column and its row.
        """
        return checked(self.rows_of(query, fields), query.columns, fields)

    def rows_of(
        self,
        query: Values | Listed | Chosen,
        fields: pa.Schema,
        rows: Mapping[str, pa.Table] = _NONE,
    ) -> pa.Table:
        """Return the rows of a query as DuckDB names their columns; see `values`."""
        try:
            found = self.rows(query.sql, rows)
        except RequestError as error:
            few = _FEW.search(str(error))
            if few is not None:
                raise _other_width(int(few[2]), int(few[1])) from error
            if any(each in str(error) for each in _MISFITS):
                self._refuse_unfit(query, fields, rows, error)
            raise
        if query.width not in {None, found.num_columns}:
            raise RequestError("each expression of the statement is one value: no * and no COLUMNS")
        return found

    def _refuse_unfit(
        self,
        query: Values | Listed | Chosen,
        fields: pa.Schema,
        rows: Mapping[str, pa.Table],
        error: RequestError,
    ) -> None:
        for place, column in enumerate(query.columns):
            try:
                found = self.rows(query.unfit(place), rows).to_pylist()
            except RequestError:
                continue  # the expression has no value at all: DuckDB has said why
            if found:
                row, value = found[0].values()
                kind = fields.field(column.name).type
                raise SchemaMismatchError(
                    f"row {row} of the statement: column {column.name!r} is {kind}, not {value!r}"
                ) from error

    def columns(self, fields: pa.Schema) -> dict[str, TypedColumn]:
        """Return the columns of a table with DuckDB's types, by their names."""
        key = fields.remove_metadata()
        found = _TYPES.get(key)
        if found is None:
            one = pa.Table.from_arrays(
                [pa.nulls(1, each.type) for each in key],
                schema=pa.schema([each.with_nullable(True) for each in key]),
            )
            types = self.read(types_query(key.names), {}, {ROWS: one}).read_all()
            if len(_TYPES) >= _TYPES_MAX:
                _TYPES.clear()
            found = _TYPES[key] = tuple(column[0].as_py() for column in types.columns)
        pairs = zip(fields.names, found, strict=True)
        return {name: TypedColumn(name, kind) for name, kind in pairs}

    def returned(
        self, statement: Returning, rows: Callable[[], pa.Table], actions: pa.Table | None = None
    ) -> pa.Table | None:
        """Return what RETURNING asks for of some rows; None: it asks for nothing, also for no rows.

        `actions`: what became of each of the rows, which it may ask for, too.
        """
        asked, name, given = statement.returning, statement.target.name, statement.given
        if not asked:
            return None
        if actions is None:
            return self.rows(of_rows(asked, name, given), {ROWS: rows()})
        query = of_rows(asked, name, given, ACTIONS)
        return self.rows(query, {ROWS: rows(), ACTIONS: actions})

    def check_returned(
        self, statement: Returning, fields: pa.Schema, actions: pa.Table | None = None
    ) -> None:
        """Refuse what DuckDB cannot return, before the first row is written.

        Raises:
            RequestError: It is no expression over columns of `fields`.
        """
        if statement.returning and not self.is_alone:  # else its transaction ends with it
            plain = [each.with_nullable(True) for each in fields.remove_metadata()]
            self.returned(statement, pa.schema(plain).empty_table, actions)

    # many rows

    def stage(
        self,
        table: TransactionTable,
        op: StagedOp,
        rows: object,
        missing: Missing = "refuse",
        *,
        keeps_last: bool = False,
    ) -> int:
        """Write many rows as a bulk commit; return how many.

        `keeps_last`: of rows with equal keys the last one counts; else they are refused.
        """
        task = begin(self.core, table.name, op, missing=missing)
        task = replace(task, keeps_last=keeps_last)
        pieces = list[Staged]()
        self.staged.append((task, pieces))
        pieces.append(task.run(rows))
        return self.tx.attach(task, pieces)

    def discard(self) -> None:
        """Delete what is left of bulk commits, after the commit or without it."""
        for task, pieces in self.staged:
            task.discard(pieces)
        self.staged.clear()


def checked(
    found: pa.Table, columns: Sequence[TypedColumn], fields: pa.Schema, before: int = 0
) -> pa.Table:
    """Return rows under the names of their columns; `before` them the statement has so many.

    Raises:
        SchemaMismatchError: There are more of them than columns, or a value may not be null.
    """
    if found.num_columns != len(columns):
        raise _other_width(len(columns), found.num_columns)
    found = found.rename_columns([column.name for column in columns])
    refuse_nulls(found, fields, before)
    return fitted(found, fields, before)


def _other_width(wanted: int, found: int) -> SchemaMismatchError:
    text = f"the statement writes {wanted} columns, and its query gives {found}"
    return SchemaMismatchError(text)


def refuse_nulls(rows: pa.Table, fields: pa.Schema, before: int = 0) -> None:
    """Refuse rows with a null where their table takes none; see `checked`.

    Raises:
        SchemaMismatchError: There is one: its column and its row.
    """
    for name in rows.column_names:
        column = rows.column(name)
        if column.null_count and not fields.field(name).nullable:
            row = before + pc.index(pc.is_null(column), pa.scalar(True)).as_py() + 1
            raise SchemaMismatchError(f"row {row} of the statement: column {name!r} takes no null")
