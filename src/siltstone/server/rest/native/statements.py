"""Statements: `POST /v1/sql`: one statement of SQL, in DuckDB's dialect, that reads or writes.

    {"sql": "select ...", "parameters": [7]}     or {"name": 7} for $name

It runs now, at a snapshot, or in a transaction, as the headers say. One that writes is its own
commit, or a part of the transaction. What it needs is the role of its kind, and decided before
anything of it runs: read, write, or admin for definitions.

As NDJSON a first line has the columns, each row is `{"row": {...}}` (a list, if two columns have
one name), and a last line says that nothing is missing: `{"rows", "written", "seq"}`. As an Arrow
stream, a CSV or a Parquet file it has the rows alone. Rows of a query are sent as they are read; in
a transaction they are held first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pyarrow as pa

from siltstone.lance_versions.errors import invalid
from siltstone.local.snapshot import LocalSnapshot
from siltstone.local.statements.running import Written
from siltstone.local.statements.sent import SentStatement, held, with_whole_numbers
from siltstone.server.http.replies import Pieces, Reply
from siltstone.server.rest import schemas as bodies
from siltstone.server.rest.call import TOKEN_HEADER, RestCall
from siltstone.server.rest.native.exports import CSV, PARQUET, exported
from siltstone.server.rest.native.lines import ARROW, LINES, form_of, pieces, rows_of
from siltstone.server.rest.scope import RequestScope
from siltstone.server.rest.wire import NDJSON_TYPE, arrow


class StatementRoutes:
    """See the module. Any thread."""

    def __init__(self, scope: RequestScope) -> None:
        self._scope = scope

    def run(self, call: RestCall[bodies.SqlRequest]) -> Reply[Pieces]:
        """Run one statement of SQL: a query, or one that writes or defines."""
        form = form_of(call, CSV, PARQUET)
        statement = SentStatement.of(call.asked.sql, call.asked.parameters)
        call.principal.require(statement.role)
        if statement.write is None:
            if call.token is not None:
                raise invalid(f"{TOKEN_HEADER} is for statements that write")
            return self._read(call, statement, form=form)
        return self._wrote(call, statement, form=form)

    def _read(self, call: RestCall[Any], statement: SentStatement, *, form: str) -> Reply[Pieces]:
        if call.transaction:
            return self._in_transaction(call, statement, form=form)
        opened = ExitStack()
        try:
            snapshot = self._scope.opened(call, opened)
            assert isinstance(snapshot, LocalSnapshot)
            given = statement.text, statement.parameters
            rows = snapshot.read_sql(*given, opened.close, variables=lambda _: None)
        except BaseException:
            opened.close()
            raise
        return Reply(_answer(rows, form=form, seq=snapshot.seq), snapshot.seq)

    def _in_transaction(
        self, call: RestCall[Any], statement: SentStatement, *, form: str
    ) -> Reply[Pieces]:
        with self._scope.querying(call) as (tx, alone):
            rows = tx.read_sql(statement.text, statement.parameters, lambda _: None, alone)
            found = held(rows, self._scope.limits.collected_bytes_max)
            return Reply(_answer(found.to_reader(), form=form, seq=tx.read_seq))

    def _wrote(self, call: RestCall[Any], statement: SentStatement, *, form: str) -> Reply[Pieces]:
        if statement.is_of_index and not call.transaction and not call.snapshot:
            return self._changed_index(call, statement, form=form)
        run = partial(statement.run, is_alone=not call.transaction)
        try:
            written, commit = self._scope.write(call, run, Written(0))
        finally:
            statement.discard()
        seq = commit.seq
        found = statement.result(written, seq)
        rows = found.to_arrow().to_reader()
        return Reply(_answer(rows, form=form, seq=seq, written=found.rows), seq)

    def _changed_index(
        self, call: RestCall[Any], statement: SentStatement, *, form: str
    ) -> Reply[Pieces]:
        if call.token is not None:
            raise invalid(f"{TOKEN_HEADER} is for commits, and an index is none")
        rows, _, found = self._scope.served.db.write_sql(statement.text, statement.parameters)
        return Reply(_answer(found.to_reader(), form=form, seq=None, written=rows))


def _answer(
    rows: pa.RecordBatchReader, *, form: str, seq: int | None, written: int | None = None
) -> Pieces:
    if form == ARROW:
        return arrow(rows, rows.close, is_file=False)
    if form != LINES:
        return exported(rows, form)
    return Pieces(NDJSON_TYPE, pieces(_lines(rows, seq, written)), rows.close)


def _lines(rows: pa.RecordBatchReader, seq: int | None, written: int | None) -> Iterator[object]:
    yield {"columns": [{"name": each.name, "type": str(each.type)} for each in rows.schema]}
    count, names = 0, rows.schema.names
    are_distinct = len(set(names)) == len(names)
    numbered = [str(place) for place in range(len(names))]
    batches = map(with_whole_numbers, rows)
    named = batches if are_distinct else (each.rename_columns(numbered) for each in batches)
    for row in rows_of(named):
        count += 1
        yield {"row": row if are_distinct else list(row.values())}
    yield {"rows": count, "written": written, "seq": seq}
