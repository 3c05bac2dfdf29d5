"""Transaction table: one table in one transaction: reads see own writes, writes stay private."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog import definitions
from siltstone.engine.catalog.row_input import (
    conformed,
    dicts_of,
    key_input,
    row_input,
    stream_of,
)
from siltstone.engine.catalog.table_schema import TableSchema, table_schema_of
from siltstone.engine.filter.filters import Filter, filter_of
from siltstone.engine.read.read_union import KeyedReader
from siltstone.engine.read.readable import Readable
from siltstone.engine.read.reader import Reader
from siltstone.engine.write.keyed_writes import chunk_of_batch
from siltstone.engine.write.plain_writes import ColumnChange
from siltstone.errors import DuplicateKeyError, RequestError, SchemaMismatchError
from siltstone.formats import group
from siltstone.formats.keys import Key
from siltstone.formats.manifest import TableDefinition

if TYPE_CHECKING:
    from siltstone.engine.write.transaction import EngineTransaction


class EngineTransactionTable(Readable):
    """See the module. Writes return how many rows they wrote."""

    __slots__ = ("_id", "_tx")

    def __init__(self, tx: EngineTransaction, table_id: int) -> None:
        self._tx, self._id = tx, table_id

    def __repr__(self) -> str:
        return f"<table {self.name!r} in {self._tx!r}>"

    @property
    def name(self) -> str:
        """The table's name, own renames included."""
        return catalogs.name_of(self._table())

    def _table(self) -> TableDefinition:
        return self._tx.definition(self._id)

    def _reader(self) -> Reader:
        return self._tx.rows.reader(self._table())

    def _note(self, reader: Reader, keys: Sequence[Key], wanted: Filter | None) -> None:
        if self._tx.rows.is_strict:
            self._tx.rows.note(self._table(), reader, keys, wanted)

    def _table_schema(self) -> TableSchema:
        return table_schema_of(catalogs.schema_of(self._table()))

    # keyed tables

    def upsert(self, rows: object) -> int:
        """Insert or replace whole rows; for equal keys the last row wins.

        Raises:
            SchemaMismatchError: A column or value does not fit; nothing was written.
        """
        writes = self._tx.rows.keyed(self._table())
        if type(rows) is dict and writes.table_schema.rows.is_packable:
            writes.upsert_row(writes.table_schema.rows.from_user(rows))
            return 1
        given = row_input(rows, writes.table_schema, "", may_repeat=True)
        writes.upsert(given)
        return given.count

    def insert(self, rows: object) -> int:
        """Insert rows with new keys.

        Raises:
            DuplicateKeyError: A key exists already, or appears twice; nothing was written.
            SchemaMismatchError: A column or value does not fit; nothing was written.
        """
        table = self._table()
        writes = self._tx.rows.keyed(table)
        given = row_input(rows, writes.table_schema, catalogs.name_of(table), may_repeat=False)
        if given.count == 0:
            return 0
        if self._tx.is_applied:  # the rows that live are its own
            writes.upsert(given)
            return given.count
        keys = given.keys
        if given.batch is not None and self._tx.rows.is_strict:
            keys = writes.table_schema.codec.keys(given.batch)
        reader = self._tx.rows.reader(table)
        assert isinstance(reader, KeyedReader)
        if keys and self._tx.rows.is_strict:
            self._tx.rows.note(table, reader, keys, None)
        if given.batch is None:
            found = reader.first_of(given.keys)
        else:
            found = reader.first_existing(
                chunk_of_batch(given.batch, writes.table_schema, given.codes)
            )
        if found is not None:
            raise DuplicateKeyError(self.name, writes.table_schema.codec.to_user(found))
        writes.upsert(given)
        return given.count

    def update(self, key: object, /, **values: object) -> int:
        """Change the named columns of one row; return 1, or 0 if the key does not live.

        Raises:
            SchemaMismatchError: A column or value that does not fit, whether the key lives or not.
        """
        rows = self._tx.rows
        writes = rows.keyed(self._table())
        reader, table_schema = rows.readers.get(self._id), writes.table_schema
        codec = table_schema.rows
        if type(reader) is not KeyedReader or not codec.is_patchable or rows.is_strict:
            return self._update(key, values)
        try:
            row = reader.found(table_schema.codec.from_user(key))
            if row is None or not values.keys().isdisjoint(table_schema.codec.names):
                return self._update(key, values)
            row.update(values)
            writes.upsert_row(codec.from_user(row))
        except (SchemaMismatchError, OverflowError):  # the general way says what is wrong first
            return self._update(key, values)
        return 1

    def _update(self, key: object, values: dict[str, object]) -> int:
        writes = self._tx.rows.keyed(self._table())
        table_schema = writes.table_schema
        if not values.keys().isdisjoint(table_schema.codec.names):
            keys = sorted(set(table_schema.codec.names) & set(values))
            raise RequestError(f"{keys} are the key; delete the row and insert another")
        table_schema.rows.check(values)
        changed: object = None
        if table_schema.rows.has_nanosecond_times:
            found = self.get_many([key])
            changed = table_schema.rows.patched(found, values) if found.num_rows else None
        elif row := self.get(key):
            changed = {**row, **values}
        if changed is None:
            return 0
        if type(changed) is dict and table_schema.rows.is_packable:
            writes.upsert_row(table_schema.rows.from_user(changed))
        else:
            writes.upsert(row_input(changed, table_schema, "", may_repeat=True))
        return 1

    def delete(self, keys: object) -> int:
        """Delete rows by key, one or a list; return how many keys were given."""
        writes = self._tx.rows.keyed(self._table())
        wanted = key_input(keys, writes.table_schema)
        writes.delete(wanted)
        return len(wanted)

    # plain tables

    def append(self, rows: object) -> int:
        """Add rows to a plain table."""
        writes = self._tx.rows.plain(self._table())
        return writes.append(_batches(rows, writes.table_schema))

    def overwrite(self, rows: object) -> int:
        """Replace all rows of a plain table."""
        writes = self._tx.rows.plain(self._table())
        return writes.overwrite(_batches(rows, writes.table_schema))

    # both

    def delete_where(self, filter: str) -> int:  # noqa: A002 - the contract's name
        """Delete the rows that match a SQL boolean expression; return how many."""
        table = self._table()
        wanted = filter_of(filter, self._table_schema().arrow)
        if wanted is None:
            raise RequestError("delete_where needs a filter; truncate empties the table")
        reader = self._tx.rows.reader(table)
        self._tx.rows.note(table, reader, (), wanted)
        if not catalogs.schema_of(table).key:
            return self._tx.rows.plain(table).delete_where(wanted)
        codec = reader.table_schema.codec
        keys: list[Key] = []
        for batch in reader.scan(list(codec.names), wanted):
            keys += codec.keys(batch)
        if keys:
            self._tx.rows.keyed(table).delete(keys)
        return len(keys)

    def truncate(self) -> None:
        """Delete all rows at once; older snapshots still see them."""
        self._tx.truncate(self._table())

    def add_column(self, name: str, kind: object) -> None:
        """Add a nullable column."""
        table = self._table()
        if self._tx.is_applied and definitions.has_column(table, name):
            return
        entry, field = definitions.add_column(table, name, kind)
        self._alter(table, entry, ColumnChange(add=[field]))

    def drop_column(self, name: str) -> None:
        """Drop a column; adding the same name later makes a new one."""
        table = self._table()
        if self._tx.is_applied and not definitions.has_column(table, name):
            return
        entry = definitions.drop_column(table, name)
        self._alter(table, entry, ColumnChange(drop=[name]))

    def rename_column(self, name: str, new_name: str) -> None:
        """Rename a column."""
        table = self._table()
        if self._tx.is_applied and definitions.is_column_renamed(table, name, new_name):
            return
        entry = definitions.rename_column(table, name, new_name)
        self._alter(table, entry, ColumnChange(rename={name: new_name}))

    def _alter(self, table: TableDefinition, entry: group.Alter, change: ColumnChange) -> None:
        self._tx.rows.alter(table, entry.schema, change)
        self._tx.change(entry)


def _batches(rows: object, table_schema: TableSchema) -> Iterator[pa.RecordBatch]:
    stream = stream_of(rows)
    if stream is not None:
        yield from conformed(stream, table_schema)
        return
    converted = [table_schema.rows.from_user(row) for row in dicts_of(rows)]
    if converted:
        batch = table_schema.rows.to_batch(converted)
        yield pa.RecordBatch.from_arrays(batch.columns, schema=table_schema.arrow)
