"""Queries: the routes that read and write rows of one table.

A query answers with an Arrow IPC file, as the specification wants it: rows as they are read, so
that a whole table costs no more memory than a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from siltstone.engine.write.merge_insert import Merge, MergeInserted
from siltstone.local.transaction import LocalTransaction
from siltstone.server.http.replies import Reply
from siltstone.server.rest import rows as statements
from siltstone.server.rest.arrow_input import table_of as arrow_of
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.limits import Limits
from siltstone.server.rest.names import table_of
from siltstone.server.rest.refusals import Code, Refused, invalid, unsupported
from siltstone.server.rest.replies import arrow
from siltstone.server.rest.schemas import (
    ColumnNames,
    CountRequest,
    DeleteRequest,
    ExplainRequest,
    QueryRequest,
    QueryVector,
    RestoreRequest,
    UpdateRequest,
)
from siltstone.server.rest.scope import TRANSACTION_HEADER, Face, ReadTable, RequestScope
from siltstone.server.rest.tables import TableRoutes, seq_shown
from siltstone.server.rest.vector_search import vector_search
from siltstone.server.rest.versions import seq_of

_NOT_OFFERED = ("full_text_query", "with_row_id", "order_by", "lower_bound", "upper_bound")
_TRUTHS = {"true": True, "1": True, "false": False, "0": False, "": False}


@dataclass(frozen=True, slots=True)
class RowQuery:
    """What rows are asked for; `limit` None is all."""

    columns: list[str] | None
    filter: str | None
    limit: int | None
    offset: int
    vector: list[float]
    vector_column: str | None
    distance_type: str
    version: int | None

    @classmethod
    def of(cls, asked: QueryRequest) -> RowQuery:
        """Return the query of a body, of either kind of client.

        Raises:
            Refused: A member that is not offered.
        """
        refused = [name for name in _NOT_OFFERED if getattr(asked, name)]
        if refused:
            raise unsupported(f"a query with {', '.join(refused)} is not offered")
        return cls(
            columns=_columns(asked.columns),
            filter=asked.filter or None,
            limit=asked.k,
            offset=asked.offset or 0,
            vector=_vector(asked.vector),
            vector_column=asked.vector_column or None,
            distance_type=(asked.distance_type or "l2").lower(),
            version=asked.version,
        )


class QueryRoutes:
    """See the module. Any thread."""

    def __init__(self, scope: RequestScope, tables: TableRoutes) -> None:
        self._scope, self._tables = scope, tables

    # reading

    def query(self, call: RestCall) -> Reply:
        """Return the rows that match, as an Arrow IPC file."""
        return self._rows(call, is_file=True)

    def scan(self, call: RestCall) -> Reply:
        """Return the rows that match, as an Arrow IPC stream."""
        return self._rows(call, is_file=False)

    def _rows(self, call: RestCall, *, is_file: bool) -> Reply:
        name, wanted = table_of(call), RowQuery.of(call.asked)
        with ExitStack() as held:
            face = self._face(call, name, wanted.version, held)
            reader = self._read(face[name], wanted)
            if call.headers.get(TRANSACTION_HEADER):
                # The next statement of the transaction must not wait for this answer to be read.
                found = statements.collected(reader, self._scope.limits)
                reader = found.to_reader()
                return Reply(arrow(reader, lambda: None, is_file=is_file), seq_shown(face))
            later = held.pop_all()
            return Reply(arrow(reader, later.close, is_file=is_file), seq_shown(face))
        raise AssertionError

    def _face(self, call: RestCall, name: str, version: int | None, held: ExitStack) -> Face:
        if version is None:
            return self._scope.opened(call, held)
        seq = seq_of(self._scope.served, name, version)
        self._scope.served.settle()
        return held.enter_context(self._scope.served.db.snapshot(seq=seq))

    def _read(self, table: ReadTable, wanted: RowQuery) -> pa.RecordBatchReader:
        if wanted.vector:
            return vector_search(table, wanted, self._scope.limits).to_reader()
        most = None if wanted.limit is None else wanted.limit + wanted.offset
        reader = table.scan(wanted.columns, wanted.filter, most)
        if not wanted.offset:
            return reader
        return pa.RecordBatchReader.from_batches(reader.schema, _after(reader, wanted.offset))

    def count(self, call: RestCall) -> Reply:
        """Return how many rows there are, or how many match."""
        name, asked = table_of(call), cast("CountRequest", call.asked)
        with ExitStack() as held:
            face = self._face(call, name, asked.version, held)
            rows = face[name].count(asked.predicate or None)
            self._scope.served.settle()
            return Reply(rows, seq_shown(face))

    def explain(self, call: RestCall) -> Reply:
        """Return in words how a query is answered."""
        return self._explained(call, is_run=False)

    def analyze(self, call: RestCall) -> Reply:
        """Answer a query, and return in words how, and how many rows there were."""
        return self._explained(call, is_run=True)

    def _explained(self, call: RestCall, *, is_run: bool) -> Reply:
        name, asked = table_of(call), cast("ExplainRequest", call.asked)
        wanted = RowQuery.of(asked.query or asked)
        with ExitStack() as held:
            face = self._face(call, name, wanted.version, held)
            table = face[name]
            reader = table.scan(wanted.columns, wanted.filter, 0)
            kind = "base under the rows above it" if table.primary_key else "one Lance version"
            lines = [
                f"Scan {name} at seq {seq_shown(face)}: {kind}",
                f"  columns: {', '.join(reader.schema.names)}",
                f"  filter: {wanted.filter or 'none'}",
                f"  limit: {wanted.limit}, offset: {wanted.offset}",
            ]
            if wanted.vector:
                lines.append(f"  nearest: exact, {wanted.distance_type}, over all rows that match")
            if is_run:
                found = [batch.num_rows for batch in self._read(table, wanted)]
                lines.append(f"  answered with: {sum(found)} rows in {len(found)} batches")
            return Reply("\n".join(lines), seq_shown(face))

    # writing

    def insert(self, call: RestCall) -> Reply:
        """Add the rows of an Arrow stream."""
        name, rows = table_of(call), arrow_of(call.body, self._scope.limits)
        mode = (call.query.get("mode") or "append").lower()
        if mode not in {"append", "overwrite"}:
            raise invalid(f"mode is append or overwrite, not {mode[:80]!r}")
        _refuse_branch(call.query.get("branch"))
        overwrites = mode == "overwrite"
        seq = self._scope.write(
            call, lambda tx: statements.insert(tx, name, rows, overwrites=overwrites)
        )
        version = self._tables.version_now(name, seq)
        return Reply({"num_inserted_rows": rows.num_rows, "version": version}, seq)

    def merge_insert(self, call: RestCall) -> Reply:
        """Merge the rows of an Arrow stream: by the primary key, or by columns of a plain table."""
        name, how = table_of(call), _merge_of(call, self._scope.limits)
        rows = arrow_of(call.body, self._scope.limits)
        done = MergeInserted(0, 0, 0)

        def work(tx: LocalTransaction) -> None:
            nonlocal done
            _refuse_unknown(tx[name].schema, name, how.on)
            done = tx.merge_insert(name, rows, how)

        seq = self._scope.write(call, work)
        found = {
            "num_updated_rows": done.updated,
            "num_inserted_rows": done.inserted,
            "num_deleted_rows": done.deleted,
        }
        return Reply(found | {"version": self._tables.version_now(name, seq)}, seq)

    def update(self, call: RestCall) -> Reply:
        """Set columns to SQL expressions in the rows that match."""
        name, asked = table_of(call), cast("UpdateRequest", call.asked)
        predicate, count = asked.predicate or asked.only_if or None, 0
        if len({column for column, _ in asked.updates}) != len(asked.updates):
            raise invalid("a column is set twice")

        def work(tx: LocalTransaction) -> None:
            nonlocal count
            count = statements.assign(tx, name, asked.updates, predicate, self._scope.limits)

        seq = self._scope.write(call, work)
        found = {"updated_rows": count, "version": self._tables.version_now(name, seq)}
        return Reply(found | ({"rows_updated": count} if call.is_remote else {}), seq)

    def restore(self, call: RestCall) -> Reply:
        """Write the rows of an older version anew, as the newest one."""
        name, asked = table_of(call), cast("RestoreRequest", call.asked)
        _refuse_branch(asked.branch)

        def work(tx: LocalTransaction) -> None:
            seq = seq_of(self._scope.served, name, asked.version)
            with self._scope.served.db.snapshot(seq=seq) as past:
                statements.restore(tx, past[name], self._scope.limits)

        seq = self._scope.write(call, work)
        return Reply({"version": self._tables.version_now(name, seq)}, seq)

    def delete(self, call: RestCall) -> Reply:
        """Delete the rows that match."""
        name, asked, count = table_of(call), cast("DeleteRequest", call.asked), 0

        def work(tx: LocalTransaction) -> None:
            nonlocal count
            count = tx[name].delete_where(asked.predicate)

        seq = self._scope.write(call, work)
        version = self._tables.version_now(name, seq)
        return Reply({"version": version, "num_deleted_rows": count}, seq)


def _after(reader: pa.RecordBatchReader, offset: int) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        if offset < batch.num_rows:
            yield batch.slice(offset)
        offset = max(0, offset - batch.num_rows)


def _columns(given: list[str] | ColumnNames | None) -> list[str] | None:
    if not isinstance(given, ColumnNames):
        return given
    if given.column_aliases:
        raise unsupported("columns under other names, or computed, are not offered")
    return given.column_names


def _vector(given: list[float] | QueryVector | None) -> list[float]:
    if not isinstance(given, QueryVector):
        return given or []
    if given.multi_vector:
        raise unsupported("a query with several vectors is not offered")
    return given.single_vector or []


def _refuse_unknown(schema: pa.Schema, table: str, columns: Sequence[str]) -> None:
    for name in columns:
        if name not in schema.names:
            raise Refused(Code.COLUMN_NOT_FOUND, f"table {table!r} has no column {name[:128]!r}")


def _merge_of(call: RestCall, limits: Limits) -> Merge:
    query = call.query
    for name in ("when_matched_update_all_filt", "when_matched_delete"):
        if query.get(name):
            raise unsupported(f"{name} is not offered")
    _refuse_branch(query.get("branch"))
    on = tuple(name for name in (query.get("on") or "").split(",") if name)
    if not on:
        raise invalid("on names the columns that say which rows are the same")
    return Merge(
        on,
        _truth(query, "when_matched_update_all"),
        _truth(query, "when_not_matched_insert_all"),
        _truth(query, "when_not_matched_by_source_delete"),
        query.get("when_not_matched_by_source_delete_filt") or None,
        limits.collected_rows_max,
    )


def _truth(query: Any, name: str) -> bool:
    found = _TRUTHS.get(str(query.get(name) or "").lower())
    if found is None:
        raise invalid(f"{name} is true or false")
    return found


def _refuse_branch(name: str | None) -> None:
    if name and name != "main":
        raise Refused(Code.UNSUPPORTED, "branches are not offered")
