"""Queries: the routes that read and write rows of one table.

A query answers with an Arrow IPC file, as the specification wants it: rows as they are read, so
that a whole table costs no more memory than a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from siltstone.engine.write.merge_insert import Merge, MergeInserted, merge
from siltstone.engine.write.transaction import Transaction
from siltstone.server.rest import rows as statements
from siltstone.server.rest.arrow_input import table_of as arrow_of
from siltstone.server.rest.exchange import Call
from siltstone.server.rest.limits import Limits
from siltstone.server.rest.names import table_of
from siltstone.server.rest.nearest import nearest
from siltstone.server.rest.reach import TRANSACTION_HEADER, Face, Reach, ReadTable
from siltstone.server.rest.refusals import Code, Refused, invalid, unsupported
from siltstone.server.rest.replies import Reply, arrow
from siltstone.server.rest.tables import Tables, seq_shown
from siltstone.server.rest.versions import seq_of

_NOT_OFFERED = ("full_text_query", "with_row_id", "order_by", "lower_bound", "upper_bound")
_TRUTHS = {"true": True, "1": True, "false": False, "0": False, "": False}


@dataclass(frozen=True, slots=True)
class Query:
    """What rows are asked for; `limit` None is all."""

    columns: list[str] | None
    filter: str | None
    limit: int | None
    offset: int
    vector: list[float]
    vector_column: str | None
    distance_type: str
    version: object

    @classmethod
    def of(cls, body: dict[str, Any]) -> Query:
        """Return the query of a body, of either kind of client.

        Raises:
            Refused: A member that is wrong, or that is not offered.
        """
        refused = [name for name in _NOT_OFFERED if body.get(name)]
        if refused:
            raise unsupported(f"a query with {', '.join(refused)} is not offered")
        return cls(
            columns=_columns(body.get("columns")),
            filter=_optional_text(body, "filter"),
            limit=_count(body, "k"),
            offset=_count(body, "offset") or 0,
            vector=_vector(body.get("vector")),
            vector_column=_optional_text(body, "vector_column"),
            distance_type=(_optional_text(body, "distance_type") or "l2").lower(),
            version=body.get("version"),
        )


class Queries:
    """See the module. Any thread."""

    def __init__(self, reach: Reach, tables: Tables) -> None:
        self._reach, self._tables = reach, tables

    # reading

    def query(self, call: Call) -> Reply:
        """Return the rows that match, as an Arrow IPC file."""
        return self._rows(call, call.json(), is_file=True)

    def scan(self, call: Call) -> Reply:
        """Return the rows that match, as an Arrow IPC stream."""
        return self._rows(call, call.json(), is_file=False)

    def _rows(self, call: Call, body: dict[str, Any], *, is_file: bool) -> Reply:
        name, wanted = table_of(call, body), Query.of(body)
        with ExitStack() as held:
            face = self._face(call, name, wanted.version, held)
            reader = self._read(face[name], wanted)
            if call.headers.get(TRANSACTION_HEADER):
                # The next statement of the transaction must not wait for this answer to be read.
                found = statements.collected(reader, self._reach.limits)
                reader = found.to_reader()
                return Reply(arrow(reader, lambda: None, is_file=is_file), seq_shown(face))
            later = held.pop_all()
            return Reply(arrow(reader, later.close, is_file=is_file), seq_shown(face))
        raise AssertionError

    def _face(self, call: Call, name: str, version: object, held: ExitStack) -> Face:
        if version is None:
            return self._reach.opened(call, held)
        seq = seq_of(self._reach.served, name, version)
        self._reach.served.settle()
        return held.enter_context(self._reach.served.db.snapshot(seq=seq))

    def _read(self, table: ReadTable, wanted: Query) -> pa.RecordBatchReader:
        if wanted.vector:
            return nearest(table, wanted, self._reach.limits).to_reader()
        most = None if wanted.limit is None else wanted.limit + wanted.offset
        reader = table.scan(wanted.columns, wanted.filter, most)
        if not wanted.offset:
            return reader
        return pa.RecordBatchReader.from_batches(reader.schema, _after(reader, wanted.offset))

    def count(self, call: Call) -> Reply:
        """Return how many rows there are, or how many match."""
        body = call.json()
        name = table_of(call, body)
        with ExitStack() as held:
            face = self._face(call, name, body.get("version"), held)
            rows = face[name].count(_optional_text(body, "predicate"))
            self._reach.served.settle()
            return Reply(rows, seq_shown(face))

    def explain(self, call: Call) -> Reply:
        """Return in words how a query is answered."""
        return self._explained(call, is_run=False)

    def analyze(self, call: Call) -> Reply:
        """Answer a query, and return in words how, and how many rows there were."""
        return self._explained(call, is_run=True)

    def _explained(self, call: Call, *, is_run: bool) -> Reply:
        body = call.json()
        name = table_of(call, body)
        asked = body.get("query", body)
        if not isinstance(asked, dict):
            raise invalid("query is an object")
        wanted = Query.of(asked)
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

    def insert(self, call: Call) -> Reply:
        """Add the rows of an Arrow stream."""
        name, rows = table_of(call), arrow_of(call.body, self._reach.limits)
        mode = (call.query.get("mode") or "append").lower()
        if mode not in {"append", "overwrite"}:
            raise invalid(f"mode is append or overwrite, not {mode[:80]!r}")
        _refuse_branch(call.query.get("branch"))
        overwrites = mode == "overwrite"
        seq = self._reach.write(
            call, lambda tx: statements.insert(tx, name, rows, overwrites=overwrites)
        )
        version = self._tables.version_now(name, seq)
        return Reply({"num_inserted_rows": rows.num_rows, "version": version}, seq)

    def merge_insert(self, call: Call) -> Reply:
        """Merge the rows of an Arrow stream: by the primary key, or by columns of a plain table."""
        name, how = table_of(call), _merge_of(call, self._reach.limits)
        rows = arrow_of(call.body, self._reach.limits)
        done = MergeInserted(0, 0, 0)

        def work(tx: Transaction) -> None:
            nonlocal done
            _refuse_unknown(tx[name].schema, name, how.on)
            done = merge(tx, name, rows, how)

        seq = self._reach.write(call, work)
        found = {
            "num_updated_rows": done.updated,
            "num_inserted_rows": done.inserted,
            "num_deleted_rows": done.deleted,
        }
        return Reply(found | {"version": self._tables.version_now(name, seq)}, seq)

    def update(self, call: Call) -> Reply:
        """Set columns to SQL expressions in the rows that match."""
        body = call.json()
        name, updates = table_of(call, body), _updates(body.get("updates"))
        predicate = _optional_text(body, "predicate") or _optional_text(body, "only_if")
        count = 0

        def work(tx: Transaction) -> None:
            nonlocal count
            count = statements.assign(tx, name, updates, predicate, self._reach.limits)

        seq = self._reach.write(call, work)
        found = {"updated_rows": count, "version": self._tables.version_now(name, seq)}
        return Reply(found | ({"rows_updated": count} if call.is_remote else {}), seq)

    def restore(self, call: Call) -> Reply:
        """Write the rows of an older version anew, as the newest one."""
        body = call.json()
        _refuse_branch(_optional_text(body, "branch"))
        name, version = table_of(call, body), body.get("version")
        if version is None:
            raise invalid("version is the one to restore")

        def work(tx: Transaction) -> None:
            seq = seq_of(self._reach.served, name, version)
            with self._reach.served.db.snapshot(seq=seq) as past:
                statements.restore(tx, past[name], self._reach.limits)

        seq = self._reach.write(call, work)
        return Reply({"version": self._tables.version_now(name, seq)}, seq)

    def delete(self, call: Call) -> Reply:
        """Delete the rows that match."""
        body = call.json()
        name, predicate = table_of(call, body), _optional_text(body, "predicate")
        if predicate is None:
            raise invalid("predicate is a SQL boolean expression; 'true' is all rows")
        count = 0

        def work(tx: Transaction) -> None:
            nonlocal count
            count = tx[name].delete_where(predicate)

        seq = self._reach.write(call, work)
        version = self._tables.version_now(name, seq)
        return Reply({"version": version, "num_deleted_rows": count}, seq)


def _after(reader: pa.RecordBatchReader, offset: int) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        if offset < batch.num_rows:
            yield batch.slice(offset)
        offset = max(0, offset - batch.num_rows)


def _columns(given: object) -> list[str] | None:
    if isinstance(given, dict):
        if given.get("column_aliases"):
            raise unsupported("columns under other names, or computed, are not offered")
        given = given.get("column_names")
    if given is None:
        return None
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise invalid("columns is a list of names")
    return given


def _vector(given: object) -> list[float]:
    if isinstance(given, dict):
        if given.get("multi_vector"):
            raise unsupported("a query with several vectors is not offered")
        given = given.get("single_vector")
    if given is None:
        return []
    if not isinstance(given, list) or not all(type(x) in {int, float} for x in given):
        raise invalid("vector is a list of numbers")
    return [float(x) for x in given]


def _optional_text(body: dict[str, Any], name: str) -> str | None:
    found = body.get(name)
    if found is not None and not isinstance(found, str):
        raise invalid(f"{name} is a string, not {found!r:.80}")
    return found or None


def _count(body: dict[str, Any], name: str) -> int | None:
    found = body.get(name)
    if found is None:
        return None
    if type(found) is not int or not 0 <= found < 1 << 62:
        raise invalid(f"{name} is an integer from 0, not {found!r:.80}")
    return found


def _updates(given: object) -> list[tuple[str, str]]:
    if not isinstance(given, list) or not given:
        raise invalid("updates is a list of [column, expression]")
    found: list[tuple[str, str]] = []
    for pair in given:
        is_pair = isinstance(pair, list) and len(pair) == 2
        if not is_pair or not all(isinstance(part, str) for part in pair):
            raise invalid(f"an update is [column, expression], not {pair!r:.80}")
        found.append((pair[0], pair[1]))
    if len({column for column, _ in found}) != len(found):
        raise invalid("a column is set twice")
    return found


def _refuse_unknown(schema: pa.Schema, table: str, columns: Sequence[str]) -> None:
    for name in columns:
        if name not in schema.names:
            raise Refused(Code.COLUMN_NOT_FOUND, f"table {table!r} has no column {name[:128]!r}")


def _merge_of(call: Call, limits: Limits) -> Merge:
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
