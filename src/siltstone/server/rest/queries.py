"""Queries: the routes that read and write rows of one table.

A query answers with an Arrow IPC file, as the specification wants it: rows as they are read, so
that a whole table costs no more memory than a batch.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from siltstone.engine.write.merge_insert import Merge, MergeInserted
from siltstone.local.transaction import LocalTransaction
from siltstone.server.http.replies import Pieces, Reply
from siltstone.server.rest import rows as statements
from siltstone.server.rest import schemas as bodies
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.limits import Limits
from siltstone.server.rest.members import kinds
from siltstone.server.rest.refusals import invalid, no_column, unsupported
from siltstone.server.rest.row_input import arrow_rows
from siltstone.server.rest.row_query import RowQuery
from siltstone.server.rest.scope import Face, RequestScope, seq_shown
from siltstone.server.rest.versions import seq_of, version_now
from siltstone.server.rest.wire import arrow


class QueryRoutes:
    """See the module. Any thread."""

    def __init__(self, scope: RequestScope) -> None:
        self._scope, self._served = scope, scope.served

    # reading

    def query(self, call: RestCall[bodies.QueryRequest]) -> Reply[Pieces]:
        """Return the rows that match, as an Arrow IPC file."""
        return self._rows(call, is_file=True)

    def scan(self, call: RestCall[bodies.QueryRequest]) -> Reply[Pieces]:
        """Return the rows that match, as an Arrow IPC stream."""
        return self._rows(call, is_file=False)

    def _rows(self, call: RestCall[bodies.QueryRequest], *, is_file: bool) -> Reply[Pieces]:
        name, wanted = call.table, RowQuery.of(call.asked)
        with ExitStack() as held:
            face = self._face(call, name, wanted.asked.version, held)
            reader, seq = wanted.read(face[name], self._scope.limits), seq_shown(face)
            if call.transaction:
                # The next statement of the transaction must not wait for this answer to be read.
                reader = statements.collected(reader, self._scope.limits).to_reader()
                return Reply(arrow(reader, reader.close, is_file=is_file), seq)
            held.callback(reader.close)
            return Reply(arrow(reader, held.pop_all().close, is_file=is_file), seq)
        raise AssertionError

    def _face(self, call: RestCall[Any], name: str, version: int | None, held: ExitStack) -> Face:
        if version is None:
            return self._scope.opened(call, held)
        seq = seq_of(self._served, name, version)
        self._served.settle()
        return held.enter_context(self._served.db.snapshot(seq=seq))

    def count(self, call: RestCall[bodies.CountRequest]) -> Reply[int]:
        """Return how many rows there are, or how many match."""
        name, asked = call.table, call.asked
        with ExitStack() as held:
            face = self._face(call, name, asked.version, held)
            rows = face[name].count(asked.predicate or None)
            self._served.settle()
            return Reply(rows, seq_shown(face))

    def explain(self, call: RestCall[bodies.ExplainRequest]) -> Reply[str]:
        """Return in words how a query is answered."""
        return self._explained(call, is_run=False)

    def analyze(self, call: RestCall[bodies.ExplainRequest]) -> Reply[str]:
        """Answer a query, and return in words how, and how many rows there were."""
        return self._explained(call, is_run=True)

    def _explained(self, call: RestCall[bodies.ExplainRequest], *, is_run: bool) -> Reply[str]:
        name, wanted = call.table, RowQuery.of(_explained(call))
        with ExitStack() as held:
            face = self._face(call, name, wanted.asked.version, held)
            table = face[name]
            chosen = wanted.chosen(table.schema)
            table.scan(chosen.read, wanted.filter, 0).close()
            kind = "base under the rows above it" if table.primary_key else "one Lance version"
            lines = [
                f"Scan {name} at seq {seq_shown(face)}: {kind}",
                f"  columns: {', '.join(chosen.schema.names)}",
                f"  filter: {wanted.filter or 'none'}",
                f"  limit: {wanted.limit}, offset: {wanted.offset}",
            ]
            if wanted.vector:
                lines.append(f"  nearest: exact, {wanted.distance_type}, over all rows that match")
            if is_run:
                found = [batch.num_rows for batch in wanted.read(table, self._scope.limits)]
                lines.append(f"  answered with: {sum(found)} rows in {len(found)} batches")
            return Reply("\n".join(lines), seq_shown(face))

    # writing

    def insert(self, call: RestCall[None]) -> Reply[bodies.InsertAnswer]:
        """Add the rows of an Arrow stream."""
        name, rows = call.table, arrow_rows(call.body, self._scope.limits)
        mode = (call.query.get("mode") or "append").lower()
        if mode not in {"append", "overwrite"}:
            raise invalid(f"mode is append or overwrite, not {mode[:80]!r}")

        def work(tx: LocalTransaction) -> None:
            statements.insert(tx, name, rows, overwrites=mode == "overwrite")

        _, seq = self._scope.write(call, work, None)
        return Reply(bodies.InsertAnswer(self._version(call, seq), rows.num_rows), seq)

    def merge_insert(self, call: RestCall[None]) -> Reply[bodies.MergeInsertAnswer]:
        """Merge the rows of an Arrow stream: by the primary key, or by columns of a plain table."""
        name, how = call.table, _merge_of(call, self._scope.limits)
        rows = arrow_rows(call.body, self._scope.limits)

        def work(tx: LocalTransaction) -> MergeInserted:
            for column in how.on:
                if column not in tx[name].schema.names:
                    raise no_column(name, column)
            return tx.merge_insert(name, rows, how)

        done, seq = self._scope.write(call, work, MergeInserted(0, 0, 0))
        counts = done.updated, done.inserted, done.deleted
        return Reply(bodies.MergeInsertAnswer(self._version(call, seq), *counts), seq)

    def update(self, call: RestCall[bodies.UpdateRequest]) -> Reply[bodies.UpdateAnswer]:
        """Set columns to SQL expressions in the rows that match."""
        name, asked, limits = call.table, call.asked, self._scope.limits
        predicate = asked.predicate or asked.only_if or None
        if len({column for column, _ in asked.updates}) != len(asked.updates):
            raise invalid("a column is set twice")

        def work(tx: LocalTransaction) -> int:
            return statements.assign(tx, name, asked.updates, predicate, limits)

        count, seq = self._scope.write(call, work, 0)
        shown = count if call.is_remote else None
        return Reply(bodies.UpdateAnswer(self._version(call, seq), count, shown), seq)

    def restore(self, call: RestCall[bodies.RestoreRequest]) -> Reply[bodies.VersionAnswer]:
        """Write the rows of an older version anew, as the newest one."""
        name, asked = call.table, call.asked

        def work(tx: LocalTransaction) -> None:
            seq = seq_of(self._served, name, asked.version)
            with self._served.db.snapshot(seq=seq) as past:
                statements.restore(tx, past[name], self._scope.limits)

        _, seq = self._scope.write(call, work, None)
        return Reply(bodies.VersionAnswer(self._version(call, seq)), seq)

    def delete(self, call: RestCall[bodies.DeleteRequest]) -> Reply[bodies.DeleteAnswer]:
        """Delete the rows that match."""
        name, predicate = call.table, call.asked.predicate
        count, seq = self._scope.write(call, lambda tx: tx[name].delete_where(predicate), 0)
        return Reply(bodies.DeleteAnswer(self._version(call, seq), count), seq)

    def _version(self, call: RestCall[Any], seq: int | None) -> int:
        return version_now(self._served, call.table, seq)


def _merge_of(call: RestCall[None], limits: Limits) -> Merge:
    query = call.query
    for name in ("when_matched_update_all_filt", "when_matched_delete", "timeout"):
        if query.get(name):
            raise unsupported(f"{name} is not offered")
    call.truth("use_index")  # no index changes what is merged
    on = tuple(name for name in (query.get("on") or "").split(",") if name)
    if not on:
        raise invalid("on names the columns that say which rows are the same")
    return Merge(
        on,
        call.truth("when_matched_update_all"),
        call.truth("when_not_matched_insert_all"),
        call.truth("when_not_matched_by_source_delete"),
        query.get("when_not_matched_by_source_delete_filt") or None,
        limits.collected_rows_max,
    )


def _explained(call: RestCall[bodies.ExplainRequest]) -> bodies.QueryRequest:
    """Return the query to explain: `query`, or the request itself.

    Raises:
        Refused: It is in both, or another table's.
    """
    asked = call.asked
    if asked.query is None:
        return asked
    call.named(asked.query.id)
    own = [name for name in _OF_QUERIES if getattr(asked, name) is not None]
    if own:
        raise invalid(f"the query is in `query`: put {', '.join(own)} there")
    return asked.query


_OF_QUERIES = tuple(kinds(bodies.QueryRequest).keys() - kinds(bodies.TableRequest).keys())
