"""Tables: the routes that list, describe, create, drop, rename and alter tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import methodcaller
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.engine.filter.filters import compile_value
from siltstone.errors import TableNotFoundError, UnavailableError
from siltstone.lance_namespace import requests
from siltstone.local.transaction import LocalTransaction
from siltstone.server.http.replies import Reply
from siltstone.server.rest import schemas as bodies
from siltstone.server.rest.arrow_schemas import schema_json
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.namespaces import NamespaceRoutes
from siltstone.server.rest.refusals import invalid, no_column, unsupported
from siltstone.server.rest.row_input import arrow_rows
from siltstone.server.rest.rows import assign
from siltstone.server.rest.scope import Face, RequestScope, seq_shown
from siltstone.server.rest.versions import seq_of, version_now

PRIMARY_KEY = "primary_key"
LANCE_KEY = b"lance-schema:unenforced-primary-key"
PAGE_MAX = 10_000
_SMALL_ROWS = 100_000  # what Lance calls a small fragment
_MODES = {"create": "create", "existok": "existok", "overwrite": "overwrite"}


class TableRoutes:
    """See the module. Any thread."""

    def __init__(self, scope: RequestScope, spaces: NamespaceRoutes) -> None:
        self._scope, self._spaces = scope, spaces
        self._served = scope.served

    # looking

    def list_all(self, call: RestCall[None]) -> Reply[bodies.TablesAnswer]:
        """Return the names of all tables, a page at a time."""
        with self._scope.reading(call) as face:
            names = face.tables()
            if call.query.get("include_declared") and not call.truth("include_declared"):
                names = [name for name in names if len(face[name].schema)]
            return Reply(_page(names, call), seq_shown(face))

    def describe(self, call: RestCall[bodies.DescribeTableRequest]) -> Reply[bodies.TableAnswer]:
        """Return where a table is, its version and its columns."""
        if not call.is_remote:
            return self._spaces.table(call)
        name, version = call.table, call.asked.version
        with self._scope.reading(call) as face:
            seq, table = seq_shown(face), face[name]
            schema = table.schema
            if version is not None:
                seq = seq_of(self._served, name, version)
                with self._served.db.snapshot(seq=seq) as past:
                    schema = past[name].schema
            found = bodies.TableAnswer(
                table=requests.ids_of(name)[-1],
                namespace=requests.ids_of(name)[:-1],
                location=self._shown(face, name),
                properties={PRIMARY_KEY: ",".join(table.primary_key)},
                is_only_declared=False,
                version=version_now(self._served, name, seq),
                schema=schema_json(schema, is_remote=True),
            )
            return Reply(found, seq)

    def _location(self, tx: LocalTransaction, name: str) -> str:
        """Return the URL of the folder that a Lance client opens."""
        return (self._served.db.path / tx.lance.folder(name)).as_uri()

    def _shown(self, face: Face, name: str) -> str:
        """Return the same, for a client that opens the folder by its path.

        There a version of a plain table has a name from the next checkpoint on, or from now.
        """
        seen = face.lance.versions(name)
        if not seen.is_keyed and seen.committed:
            with suppress(UnavailableError):  # it opens an older one, as every reader of a path
                newest = seen.committed[-1].pin
                self._served.parts.core.tables.names.show(seen.folder, [newest])
        return (self._served.db.path / seen.folder).as_uri()

    @property
    def _root(self) -> str:
        """The URL of the store: what a token that was applied before did, it does not say."""
        return self._served.db.path.as_uri()

    def exists(self, call: RestCall[bodies.TableExistsRequest]) -> Reply[bytes]:
        """Answer nothing, or that there is no such table, or not in that version."""
        with self._scope.reading(call) as face:
            _ = face[call.table].name
            if call.asked.version is not None:
                seq_of(self._served, call.table, call.asked.version)
            return Reply(b"", seq_shown(face))

    def stats(self, call: RestCall[bodies.TableRequest]) -> Reply[bodies.TableStatsAnswer]:
        """Return how many rows a table has, and the size of the version that clients open."""
        name = call.table
        with self._scope.reading(call) as face:
            rows, seen = face[name].count(), face.lance.versions(name)
            newest, lengths, nbytes = seen.newest, list[int](), 0
            if newest is not None:
                tables = self._served.parts.core.tables.reader
                spans = tables.open(newest.pin).spans
                lengths = [end - first for first, end in spans]
                nbytes = sum(file.size for file in tables.files(newest.pin))
            fragments, indexes = _fragments(lengths), self._indexes(name)
            found = bodies.TableStatsAnswer(nbytes, rows, indexes, fragments)
            return Reply(found, seq_shown(face))

    def _indexes(self, name: str) -> int:
        try:
            table = self._served.db[name]
        except TableNotFoundError:  # made, or named so, by the transaction that asks
            return 0
        return len(table.indexes()) if table.primary_key else 0

    # changing

    def create(self, call: RestCall[None]) -> Reply[bodies.CreateTableAnswer]:
        """Create a table with the rows of an Arrow stream."""
        name, mode = call.table, _mode(call)
        if not call.body:
            raise invalid("the body is an Arrow IPC stream: a schema, and rows if there are some")
        rows = arrow_rows(call.body, self._scope.limits)
        key = _key(call, rows.schema)

        def work(tx: LocalTransaction) -> str:
            if name in tx.tables():
                if mode == "existok":
                    return self._location(tx, name)
                if mode == "overwrite":
                    tx.drop_table(name)
            made = tx.create_table(name, _plain(rows.schema), key)
            if rows.num_rows:
                (made.insert if key else made.append)(rows)
            elif not key:
                tx.lance.begin_versions(name)
            return self._created(tx, name)

        location, seq = self._scope.write(call, work, self._root)
        version = version_now(self._served, name, seq)
        return Reply(bodies.CreateTableAnswer(version, location), seq)

    def _created(self, tx: LocalTransaction, name: str) -> str:
        """Return where a created table lies; if the token was applied before, where it is now."""
        if not tx.lance.tx.is_applied:
            return self._location(tx, name)
        with self._served.db.transaction() as now:
            return self._location(now, name) if name in now.tables() else self._root

    def drop(self, call: RestCall[bodies.TableRequest]) -> Reply[bodies.DropTableAnswer]:
        """Drop a table with its rows; older snapshots still see it."""
        name = call.table

        def work(tx: LocalTransaction) -> str:
            location = self._location(tx, name)
            tx.drop_table(name)
            return location

        location, seq = self._scope.write(call, work, self._root)
        return Reply(bodies.DropTableAnswer(list(call.named()), location), seq)

    def rename(self, call: RestCall[bodies.RenameTableRequest]) -> Reply[bodies.NoMembers]:
        """Rename a table, in its namespace or into the one that is named."""
        name, asked = call.table, call.asked
        members = {
            "new_table_name": asked.new_table_name,
            "new_namespace_id": asked.new_namespace or None,
        }
        if asked.new_namespace_id is not None:
            members["new_namespace_id"] = asked.new_namespace_id
        rename = methodcaller("rename_table", name, requests.renamed(name, members))
        return Reply(bodies.NoMembers(), self._scope.write(call, rename, None)[1])

    def add_columns(self, call: RestCall[bodies.AddColumnsRequest]) -> Reply[bodies.VersionAnswer]:
        """Add columns, each the value of a SQL expression over the old ones."""
        name, asked = call.table, call.asked

        def work(tx: LocalTransaction) -> None:
            for entry in asked.new_columns:
                self._add(tx, name, entry)

        return self._altered(call, work)

    def _add(self, tx: LocalTransaction, name: str, entry: bodies.NewColumn) -> None:
        column, text = entry.name, entry.expression
        if text is None:
            raise invalid(f"column {column[:128]!r} has an expression: its value over the old ones")
        table = tx[name]
        value = compile_value(text, table.schema)
        table.add_column(column, value.type)
        if not value.is_null:
            assign(tx, name, [(column, text)], None, self._scope.limits)

    def alter_columns(
        self, call: RestCall[bodies.AlterColumnsRequest]
    ) -> Reply[bodies.VersionAnswer]:
        """Rename columns."""
        name, names = call.table, list[tuple[str, str]]()
        for entry in call.asked.alterations:
            if entry.data_type is not None or entry.nullable is not None:
                raise unsupported("the type of a column does not change; add another column")
            if entry.rename is None:
                raise invalid(f"rename is the new name of column {entry.path[:128]!r}")
            names.append((entry.path, entry.rename))

        def work(tx: LocalTransaction) -> None:
            for old, new in names:
                _require_column(tx, name, old)
                tx[name].rename_column(old, new)

        return self._altered(call, work)

    def drop_columns(
        self, call: RestCall[bodies.DropColumnsRequest]
    ) -> Reply[bodies.VersionAnswer]:
        """Drop columns."""
        name, asked = call.table, call.asked

        def work(tx: LocalTransaction) -> None:
            for column in asked.columns:
                _require_column(tx, name, column)
                tx[name].drop_column(column)

        return self._altered(call, work)

    def _altered(
        self, call: RestCall[Any], work: Callable[[LocalTransaction], None]
    ) -> Reply[bodies.VersionAnswer]:
        _, seq = self._scope.write(call, work, None)
        return Reply(bodies.VersionAnswer(version_now(self._served, call.table, seq)), seq)


def _require_column(tx: LocalTransaction, table: str, column: str) -> None:
    if column not in tx[table].schema.names:
        raise no_column(table, column)


def _fragments(lengths: Sequence[int]) -> bodies.FragmentStats:
    """Return how long the fragments of a version are, in rows."""
    known = np.array(lengths or [0])
    parts = {f"p{part}": int(np.percentile(known, part)) for part in (25, 50, 75, 99)}
    least, most, mean = int(known.min()), int(known.max()), int(known.mean())
    small = sum(length < _SMALL_ROWS for length in lengths)
    shown = bodies.FragmentLengths(min=least, max=most, mean=mean, **parts)
    return bodies.FragmentStats(len(lengths), small, shown)


def _page(names: Sequence[str], call: RestCall[None]) -> bodies.TablesAnswer:
    """Return the names after the page token, which is the last name of the page before."""
    after = call.query.get("page_token") or ""
    most = min(call.number("limit") or PAGE_MAX, PAGE_MAX)
    left = [name for name in sorted(names) if name > after]
    token = left[most - 1] if len(left) > most else None
    return bodies.TablesAnswer(left[:most], page_token=token)


def _mode(call: RestCall[None]) -> str:
    text = call.query.get("mode") or "create"
    mode = _MODES.get(text.replace("_", "").lower())
    if mode is None:
        raise invalid(f"mode is create, exist_ok or overwrite, not {text[:80]!r}")
    return mode


def _key(call: RestCall[None], schema: pa.Schema) -> list[str]:
    """Return the primary key: of the query, the properties, or the schema's own words for it."""
    properties = _properties(call)
    others = sorted(properties.keys() - {PRIMARY_KEY})
    if others:
        raise unsupported(f"of the properties of a table only {PRIMARY_KEY}, not {others!r:.200}")
    if call.query.get("storage_options"):
        raise unsupported("storage_options is not offered: the server knows its storage")
    text = call.query.get(PRIMARY_KEY) or properties.get(PRIMARY_KEY)
    if text is not None:
        return [name.strip() for name in str(text).split(",") if name.strip()]
    return [field.name for field in schema if (field.metadata or {}).get(LANCE_KEY) == b"true"]


def _properties(call: RestCall[None]) -> dict[str, Any]:
    text = call.query.get("properties") or call.headers.get("x-lance-table-properties")
    if not text:
        return {}
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        found = None
    if not isinstance(found, dict):
        raise invalid("properties is a JSON object of strings")
    return found


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return the columns without what clients noted on them."""
    return pa.schema([field.remove_metadata() for field in schema])
