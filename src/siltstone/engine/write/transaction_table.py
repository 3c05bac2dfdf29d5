"""Transaction table: one table in one transaction: reads see own writes, writes stay private."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from siltstone.choices import Missing
from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog import definitions
from siltstone.engine.catalog.partial_rows import PartialRows, check_missing, partial_rows
from siltstone.engine.catalog.row_input import (
    conformed,
    dicts_of,
    row_input,
    stream_of,
)
from siltstone.engine.catalog.table_schema import TableSchema, table_schema_of
from siltstone.engine.commit.committer import FRAME_BYTES_MAX
from siltstone.engine.filter.assignments import Assignments, assignments, refuse_key
from siltstone.engine.filter.filters import Filter, filter_of
from siltstone.engine.read.read_union import KeyedReader
from siltstone.engine.read.readable import Readable, keyed
from siltstone.engine.read.reader import Reader
from siltstone.engine.write.keyed_writes import chunk_of_batch, deletion
from siltstone.engine.write.plain_writes import ColumnChange, PlainWrites
from siltstone.errors import DuplicateKeyError, RequestError, SchemaMismatchError
from siltstone.formats.conversion.conform import conform
from siltstone.formats.keys import Key
from siltstone.formats.log import group
from siltstone.formats.manifest import TableDefinition
from siltstone.storage.tables.values import POSITION

if TYPE_CHECKING:
    from siltstone.engine.write.transaction import EngineTransaction


class TransactionTableColumns(Readable):
    """The columns of a table in one transaction, and all that is not about single rows."""

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

    def allow_null(self, name: str) -> None:
        """Let a column be null from now on; one that may be stays as it is."""
        entry = definitions.allow_null(self._table(), name)
        if entry is not None:
            self._alter(self._table(), entry, ColumnChange(relax=[name]))

    def note(self, metadata: Mapping[str, str]) -> None:
        """Replace the metadata of the table."""
        table = self._table()
        entry = definitions.note(table, metadata)
        if entry is not None:
            self._alter(table, entry, None)

    def note_column(self, name: str, metadata: Mapping[str, str | None], *, replaces: bool) -> None:
        """Lay metadata over that of a column, or put it in its place; None removes a name."""
        table = self._table()
        entry = definitions.note_column(table, name, metadata, replaces=replaces)
        if entry is not None:
            self._alter(table, entry, None)

    def _alter(
        self, table: TableDefinition, entry: group.Alter, change: ColumnChange | None
    ) -> None:
        self._tx.rows.alter(table, entry.schema, change)
        self._tx.change(entry)


class EngineTransactionTable(TransactionTableColumns):
    """See the module. Writes return how many rows they wrote."""

    __slots__ = ()

    # keyed tables

    def upsert(self, rows: object, missing: Missing = "refuse") -> int:
        """Insert or replace rows; for equal keys the last row wins.

        Raises:
            SchemaMismatchError: A column or value does not fit, or a column is missing and may not
                be; nothing was written.
        """
        writes = self._tx.rows.keyed(self._table())
        is_whole = type(missing) is str and missing == "refuse"
        if is_whole and type(rows) is dict and writes.table_schema.rows.is_packable:
            writes.upsert_row(writes.table_schema.rows.whole(rows))
            return 1
        if check_missing(missing) == "keep":
            return self._lay_over(partial_rows(rows, writes.table_schema), creates=True)
        given = row_input(rows, writes.table_schema, "", may_repeat=True, is_whole=is_whole)
        writes.upsert(given)
        return given.count

    def _lay_over(self, given: PartialRows, *, creates: bool) -> int:
        """Write what some rows name, over the rows that exist; with `creates` also new ones."""
        if not given.keys:
            return 0
        if creates and given.are_whole:
            rows = given.batch
        else:
            reader = keyed(self._reader())
            self._note(reader, given.keys, None)
            rows = given.over(reader.many(given.keys), creates=creates)
        self._tx.rows.keyed(self._table()).upsert(
            row_input(rows, given.table_schema, "", may_repeat=False)
        )
        return rows.num_rows

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
            found = next((key for key in given.keys if reader.get(key) is not None), None)
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
        refuse_key(list(values), table_schema.codec.names)
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

    def update_many(self, rows: object) -> int:
        """Change the named columns of rows by key; return how many of the keys have a row.

        Raises:
            SchemaMismatchError: A column or value that does not fit, or no key; nothing was
                written.
        """
        writes = self._tx.rows.keyed(self._table())
        return self._lay_over(partial_rows(rows, writes.table_schema), creates=False)

    def delete(self, keys: object) -> int | None:
        """Delete rows by key, one or a list; return how many lived, None if they were not counted.

        Raises:
            RequestError: It is a text that reads as a filter, and no row has it as its key.
            SchemaMismatchError: A key is of another type.
        """
        writes = self._tx.rows.keyed(self._table())
        found = deletion(keys, keyed(self._reader()), is_again=self._tx.is_applied)
        writes.delete(found.keys)
        return found.lived

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
        reader = self._noted(table, wanted)
        if not catalogs.schema_of(table).key:
            return self._tx.rows.plain(table).delete_where(wanted)
        codec = reader.table_schema.codec
        keys: list[Key] = []
        for batch in reader.scan(list(codec.names), wanted):
            keys += codec.keys(batch)
        if keys:
            self._tx.rows.keyed(table).delete(keys)
        return len(keys)

    def update_where(
        self,
        filter: str,  # noqa: A002 - the contract's name
        values: Mapping[str, object] | None = None,
        sql: Mapping[str, str] | None = None,
    ) -> int:
        """Set columns in the rows that match a SQL boolean expression; return how many match."""
        table, table_schema = self._table(), self._table_schema()
        key = () if table_schema.keys is None else table_schema.keys.names
        change = assignments(values, sql, table_schema.rows, key)
        wanted = filter_of(filter, table_schema.arrow)
        if wanted is None:
            raise RequestError("update_where needs a filter; 'true' matches every row")
        reader = self._noted(table, wanted)
        if not key:
            return _update_plain(self._tx.rows.plain(table), wanted, change)
        batches = list(_bounded(reader.scan(None, wanted)))
        rows = pa.Table.from_batches(batches, table_schema.arrow)
        if rows.num_rows:
            changed = row_input(change.of(rows), table_schema, "", may_repeat=False)
            self._tx.rows.keyed(table).upsert(changed)
        return rows.num_rows

    def _noted(self, table: TableDefinition, wanted: Filter) -> Reader:
        """Return the reader for a scan, which a serializable transaction remembers."""
        reader = self._tx.rows.reader(table)
        self._tx.rows.note(table, reader, (), wanted)
        return reader


def _update_plain(writes: PlainWrites, wanted: Filter, change: Assignments) -> int:
    """Change the matching rows of a plain table, as one version of it; return how many."""
    schema, fields = writes.table_schema.schema, writes.table_schema.arrow
    located = writes.located(fields.names, wanted)
    found = list(_bounded(batch for each in located if (batch := wanted.keep(each)).num_rows))
    changed: list[pa.RecordBatch] = []
    for batch in found:
        rows = change.of(pa.Table.from_batches([batch.select(fields.names)]))
        changed += [conform(each, schema, fields) for each in rows.to_batches()]
    at = [batch.column(POSITION).to_numpy() for batch in found]
    drop = np.concatenate(at) if at else np.zeros(0, np.int64)
    again = partial(_update_plain, writes, wanted, change)
    writes.replace(drop, changed, again=again, updated=len(drop))
    return len(drop)


def _bounded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a statement changes, as long as one commit can hold them.

    Raises:
        RequestError: They are more.
    """
    nbytes = 0
    for batch in batches:
        nbytes += batch.nbytes
        if nbytes > FRAME_BYTES_MAX:
            raise RequestError(
                f"the filter matches more than {FRAME_BYTES_MAX} bytes of rows, which one commit"
                " cannot hold; update them in parts"
            )
        yield batch


def _batches(rows: object, table_schema: TableSchema) -> Iterator[pa.RecordBatch]:
    stream = stream_of(rows)
    if stream is not None:
        yield from conformed(stream, table_schema)
        return
    converted = [table_schema.rows.from_user(row) for row in dicts_of(rows)]
    if converted:
        batch = table_schema.rows.to_batch(converted)
        yield pa.RecordBatch.from_arrays(batch.columns, schema=table_schema.arrow)
