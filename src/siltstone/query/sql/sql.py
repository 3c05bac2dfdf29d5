"""SQL: one statement, run by DuckDB over the tables of one snapshot.

    find the tables and searches in it ─▶ register them ─▶ lock DuckDB's settings ─▶ run ─▶ Arrow

Statements that are not queries are refused; what a statement may use is in `statement`. DuckDB
pushes filters and columns into the scans of the tables; a search may stand for a table
(`searches`), and a table of then (`taken.moments`). A table in a namespace has its parts as name
(`sales.orders`) and its whole name in quotes (`"sales.orders"`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import cast

import pyarrow as pa

from siltstone.arguments import is_text
from siltstone.errors import RequestError, TableNotFoundError
from siltstone.formats.types.unfit_types import refuse_decimal256
from siltstone.options import Options, SqlBounds
from siltstone.process.spares import Spares
from siltstone.query.sql.allowed import MADE_LENGTH_MAX, TEXT_BYTES_MAX, refuse_all_but_one_query
from siltstone.query.sql.dataset import Scannable
from siltstone.query.sql.frames import Variables, rows_of
from siltstone.query.sql.names import Reads, lists_tables, reads_of
from siltstone.query.sql.pages import Tables, paged
from siltstone.query.sql.result import Result
from siltstone.query.sql.searches import SearchCall, Searched, SearchedRows, taken_out
from siltstone.query.sql.shielded import refuse_alike
from siltstone.query.sql.statement import HUGEINT_KEY, Statement
from siltstone.query.sql.taken.moments import PastName, moments_out, without_past
from siltstone.query.sql.taken.values import Parameters


def collected(rows: pa.RecordBatchReader, rows_max: int | None = None) -> Result:
    """Return all rows that `read` gives, sums of whole numbers as int64 if they fit.

    With `rows_max` the first ones; no more of them are read than one batch.
    """
    if rows_max is None:
        return Result(_settled(rows.read_all()))
    found = pa.Table.from_batches(_first(rows, rows_max), rows.schema)
    return Result(_settled(found))


def _first(rows: pa.RecordBatchReader, rows_max: int) -> Iterator[pa.RecordBatch]:
    left = rows_max
    try:
        while left > 0 and (batch := next(rows, None)) is not None:
            yield batch.slice(0, left)
            left -= batch.num_rows
    finally:
        rows.close()


def read(
    sql: str,
    tables: Tables,
    names: Sequence[str],
    parameters: Parameters = None,
    *,
    check: Callable[[], object] = lambda: None,
    bounds: SqlBounds | None = None,
    spares: Spares | None = None,
    at_end: Callable[[], object] = lambda: None,
    variables: Variables = lambda _: None,
    rows: Mapping[str, pa.Table] | None = None,
    past: Callable[[PastName], Scannable] = without_past,
) -> pa.RecordBatchReader:
    """Run one query, and return its rows as they are read.

    It stops when the deadline of the thread that asks for it, or for its next rows, is over.

    Args:
        sql: A SELECT or EXPLAIN in DuckDB's dialect, or SHOW TABLES, DESCRIBE, SUMMARIZE.
        tables: Returns a table by its name; called for the tables in the statement.
        names: All names that `tables` accepts.
        parameters: For `?` or `$1` a sequence, for `$name` a mapping.
        check: Raises if the query must stop; another thread calls it now and then.
        bounds: What the query may use; by default that of a store without options.
        spares: Keeps DuckDBs that other statements with these bounds used; by default none.
        at_end: Called when the rows were read, or dropped; not if this raises.
        variables: The data frames of the caller; a table of the same name wins.
        rows: Rows under names that no table can have, for a query that is made of a statement that
            writes: it may be longer than the statement was. None: the query is the caller's own.
        past: Returns a table at a moment; by default it refuses.

    Raises:
        TableNotFoundError: Neither a table nor a data frame has a name.
        RequestError: DuckDB refuses the statement, it is not one query, or it took too long.
        LimitError: It needs more than `bounds`; also while rows are read.
        UnavailableError: DuckDB is not installed.
    """
    if not isinstance(sql, str):
        raise RequestError(f"a statement must be a string; got {sql!r}")
    if not is_text(sql):
        raise RequestError(f"a statement has half of a surrogate pair: {sql!r:.80}")
    length_max = TEXT_BYTES_MAX if rows is None else MADE_LENGTH_MAX
    if len(sql) > length_max:
        raise RequestError(f"the statement is longer than {length_max} characters")
    kept = Spares(0) if spares is None else spares
    statement = Statement(bounds or Options().sql, check, names, kept)
    try:
        with statement.step():
            sql, parameters, searches = taken_out(sql, parameters)
            sql, parameters, moments = moments_out(sql, parameters)
            refuse_all_but_one_query(statement.connection, sql)
            then = {each.written: past(each) for each in moments}
            tables = _with_then(tables, then)
            sql, tables = paged(sql, parameters, tables)
            for call in searches:
                statement.register(call.name, _searched(call, tables, names))
            reads = reads_of(sql)
            _register_tables(statement, reads, tables, [*names, *then])
            known = [*names, *then, *(call.name for call in searches)]
            made = rows or {}
            _register_frames(statement, reads.others([*known, *made]), variables)
            for name, given in made.items():
                statement.register_frame(name, given)
            found = statement.rows(sql, parameters, says_what_is_lost=rows is not None)
    except BaseException:
        statement.close()
        raise
    statement.at_end(at_end)
    return found


def _with_then(tables: Tables, then: Mapping[str, Scannable]) -> Tables:
    return (lambda name: then.get(name) or tables(name)) if then else tables


def _searched(call: SearchCall, tables: Tables, names: Sequence[str]) -> SearchedRows:
    source = tables(call.table)
    if source is None:
        raise TableNotFoundError(call.table, names)
    found = SearchedRows(cast("Searched", source), call)
    _refuse_unfit(call.table, found.schema)
    return found


def _register_tables(
    statement: Statement, reads: Reads, tables: Tables, names: Sequence[str]
) -> None:
    for name in reads.mentioned(names):
        source = tables(name)
        if source is None:
            raise TableNotFoundError(name, names)
        if not lists_tables(reads.sql):
            _refuse_unfit(name, source.schema)
        statement.register(name, reads.shortened(name, source), may_filter=reads.may_filter)


def _register_frames(statement: Statement, names: Sequence[str], variables: Variables) -> None:
    for name in names:
        frame = rows_of(variables, name)
        if frame is not None:
            _refuse_unfit(name, frame.schema)
            statement.register_frame(name, frame)


def _refuse_unfit(name: str, schema: pa.Schema) -> None:
    refuse_decimal256(schema, "DuckDB")
    refuse_alike(name, schema)


def _settled(table: pa.Table) -> pa.Table:
    for place, column in enumerate(table.schema):
        if HUGEINT_KEY in (column.metadata or {}):
            table = _without_hugeint(table, place)
    return table


def _without_hugeint(table: pa.Table, place: int) -> pa.Table:
    column, plain = table.column(place), table.schema.field(place).remove_metadata()
    with suppress(pa.ArrowInvalid):  # too large for int64: the decimal stays
        column = column.cast(pa.int64())
    return table.set_column(place, plain.with_type(column.type), column)
