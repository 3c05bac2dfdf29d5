"""Queries: the operations that read rows of one table, or say how a query is answered."""

from __future__ import annotations

from contextlib import ExitStack

import msgspec
import pyarrow as pa

from siltstone.lance_namespace.rows.row_query import RowQuery
from siltstone.lance_namespace.rows.selection import Selection
from siltstone.lance_namespace.rows.version_numbers import past_of
from siltstone.lance_namespace.scope import Scope, seq_shown
from siltstone.lance_namespace.specification import bodies, ids
from siltstone.lance_namespace.specification.members import kinds
from siltstone.lance_versions.errors import invalid
from siltstone.local.readable import LocalReadable

_OF_QUERIES = tuple(kinds(bodies.QueryRequest).keys() - kinds(bodies.TableRequest).keys())


def query_table(scope: Scope, asked: bodies.QueryRequest) -> tuple[bodies.QueryAnswer, int]:
    """Return the rows that match, as an Arrow IPC file.

    Raises:
        Refused: It is more bytes than one statement may hold.
    """
    most = scope.limits.collected_bytes_max
    with ExitStack() as held:
        reader, seq = read(scope, asked, held)
        held.callback(reader.close)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)
                if sink.tell() > most:
                    raise invalid(
                        f"the rows are more than {most} bytes; ask for them in parts, with limit"
                        " and offset, or for fewer columns"
                    )
        return bodies.QueryAnswer(sink.getvalue().to_pybytes()), seq


def read(
    scope: Scope, asked: bodies.QueryRequest, held: ExitStack
) -> tuple[pa.RecordBatchReader, int]:
    """Return the rows of a query, as they are read until `held` closes, and their seq."""
    name, wanted = ids.table_of(asked), RowQuery.of(asked)
    table, seq = _opened(scope, name, asked.version, held)
    return _noted(wanted.read(table, scope.limits), wanted.chosen(table.schema), table.schema), seq


def _noted(
    reader: pa.RecordBatchReader, chosen: Selection, shown: pa.Schema
) -> pa.RecordBatchReader:
    """Return rows whose schema has the metadata of the table, and of the columns as they are."""
    if not shown.metadata and not any(field.metadata for field in shown):
        return reader
    known = {field.name: field for field in chosen.schema}
    fields = [known.get(field.name, field) for field in reader.schema]
    schema = pa.schema(fields).with_metadata(shown.metadata)
    return pa.RecordBatchReader.from_batches(schema, reader)


def _opened(
    scope: Scope, name: str, version: int | None, held: ExitStack
) -> tuple[LocalReadable, int]:
    """Return a table, perhaps in an older version, until `held` closes, and the seq of it."""
    if version is None:
        found = scope.opened(held)
        return found[name], seq_shown(found)
    past = past_of(scope.db.core, name, version)
    scope.settle()
    return held.enter_context(scope.db.snapshot(seq=past.seq))[past.name], past.seq


def count_table_rows(scope: Scope, asked: bodies.CountRequest) -> tuple[bodies.CountAnswer, int]:
    """Return how many rows there are, or how many match."""
    name = ids.table_of(asked)
    with ExitStack() as held:
        table, seq = _opened(scope, name, asked.version, held)
        rows = table.count(asked.predicate or None)
        scope.settle()
        return bodies.CountAnswer(rows), seq


def explain_table_query_plan(
    scope: Scope, asked: bodies.ExplainRequest
) -> tuple[bodies.PlanAnswer, int]:
    """Return in words how a query is answered."""
    return _explained(scope, asked, is_run=False)


def analyze_table_query_plan(
    scope: Scope, asked: bodies.ExplainRequest
) -> tuple[bodies.PlanAnswer, int]:
    """Answer a query, and return in words how, and how many rows there were."""
    return _explained(scope, asked, is_run=True)


def _explained(
    scope: Scope, asked: bodies.ExplainRequest, *, is_run: bool
) -> tuple[bodies.PlanAnswer, int]:
    name, wanted = ids.table_of(asked), RowQuery.of(_query_of(asked))
    with ExitStack() as held:
        table, seq = _opened(scope, name, wanted.asked.version, held)
        chosen = wanted.chosen(table.schema)
        order = {} if wanted.order is None else wanted.order.by_key(table.primary_key)
        table.scan(chosen.read, wanted.filter, 0, **order).close()
        kind = "base under the rows above it" if table.primary_key else "one Lance version"
        lines = [
            f"Scan {name} at seq {seq}: {kind}",
            f"  columns: {', '.join(chosen.schema.names)}",
            f"  filter: {wanted.asked.filter or 'none'}",
            f"  limit: {wanted.limit}, offset: {wanted.offset}",
        ]
        if wanted.order is not None:
            direction = "descending" if wanted.order.descending else "ascending"
            lines.append(f"  order: {', '.join(wanted.order.columns)}, {direction}")
        if wanted.vector:
            lines.append(f"  nearest: {wanted.search_told(table.schema, scope.limits)}")
        if wanted.words is not None:
            wanted.check_words(table.schema)
            lines.append(f"  words: {wanted.words.told()}")
        if is_run:
            rows = [batch.num_rows for batch in wanted.read(table, scope.limits)]
            lines.append(f"  answered with: {sum(rows)} rows in {len(rows)} batches")
        return bodies.PlanAnswer("\n".join(lines)), seq


def _query_of(asked: bodies.ExplainRequest) -> bodies.QueryRequest:
    """Return the query to explain: `query`, or the request itself.

    Raises:
        Refused: It is in both, or another table's.
    """
    if asked.query is None:
        return asked
    if asked.query.id is not None and asked.query.id != asked.id:
        raise invalid(f"the id of the query, {asked.query.id!r:.200}, is not {asked.id!r:.200}")
    given = msgspec.structs.asdict(asked)
    own = [name for name in _OF_QUERIES if given[name] is not None]
    if own:
        raise invalid(f"the query is in `query`: put {', '.join(own)} there")
    return asked.query
