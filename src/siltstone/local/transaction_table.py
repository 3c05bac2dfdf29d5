"""Transaction table: one table in a transaction of this process: reads see its own writes.

Writes stay private until the commit. What reads and writes the table is found once, and again after
each statement that may change what it is (`TransactionRows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from siltstone.api.tables import TransactionTable
from siltstone.choices import UNCHANGED, Missing
from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog import definitions
from siltstone.engine.catalog.partial_rows import PartialRows, check_missing, partial_rows
from siltstone.engine.catalog.row_input import conformed, dicts_of, row_input, stream_of
from siltstone.engine.catalog.table_schema import TableSchema, table_schema_of
from siltstone.engine.commit.committer import FRAME_BYTES_MAX
from siltstone.engine.filter.assignments import Assignments, assignments, refuse_key
from siltstone.engine.filter.filters import Filter, filter_of, parse
from siltstone.engine.order.key_range import RangePredicate
from siltstone.engine.read.read_arguments import keyed
from siltstone.engine.read.read_union import KeyedReader, Row, beyond_python
from siltstone.engine.read.reader import Reader
from siltstone.engine.write.keyed_writes import KeyedWrites, chunk_of_batch, deletion
from siltstone.engine.write.plain_writes import ColumnChange, PlainWrites
from siltstone.engine.write.transaction import EngineTransaction, Phase
from siltstone.errors import DuplicateKeyError, RequestError, SchemaMismatchError
from siltstone.formats.conversion.conform import conform
from siltstone.formats.keys import Key
from siltstone.formats.log import group
from siltstone.formats.manifest import TableDefinition
from siltstone.formats.types.casts import UncastError, cast_column
from siltstone.local.readable import LocalReadable
from siltstone.storage.tables.values import POSITION


class LocalTransactionTable(LocalReadable, TransactionTable):
    """See the module. Writes return how many rows they wrote."""

    __slots__ = ("_id", "_rows", "_tx")

    def __init__(self, tx: EngineTransaction, table_id: int) -> None:
        self._tx, self._rows, self._id = tx, tx.rows, table_id

    def __repr__(self) -> str:
        return f"<table {self.name!r} in {self._tx!r}>"

    @property
    def id(self) -> int:
        return self._id

    @property
    def name(self) -> str:
        """The table's name, own renames included."""
        return catalogs.name_of(self._table())

    @property
    def has_key(self) -> bool:
        """Whether its rows have a key."""
        return bool(catalogs.schema_of(self._table()).key)

    def _table(self) -> TableDefinition:
        return self._tx.definition(self._id)

    def _table_schema(self) -> TableSchema:
        return table_schema_of(catalogs.schema_of(self._table()))

    def _reader(self) -> Reader:
        return self._rows.reader(self._table())

    def _keyed_reader(self) -> KeyedReader:
        """Return what reads the table.

        Raises:
            RequestError: It is a plain table.
        """
        tx, found = self._tx, self._rows.readers.get(self._id)
        if type(found) is KeyedReader and tx.phase is Phase.OPEN and tx.core.refusal is None:
            return found
        return keyed(self._reader())

    def _writes(self) -> KeyedWrites:
        """Return the private writes of the table.

        Raises:
            RequestError: It is a plain table.
        """
        tx, found = self._tx, self._rows.keyed_writes.get(self._id)
        if found is not None and tx.phase is Phase.OPEN and tx.core.refusal is None:
            return found
        return self._rows.keyed(self._table())

    def _note(
        self, reader: Reader, keys: Sequence[Key], wanted: Filter | RangePredicate | None
    ) -> None:
        if self._rows.is_strict:
            self._rows.note(self._table(), reader, keys, wanted)

    def _noted_reader(self, wanted: Filter) -> Reader:
        """Return the reader for a scan, which a serializable transaction remembers."""
        reader = self._reader()
        self._note(reader, (), wanted)
        return reader

    # columns

    def truncate(self) -> None:
        """Delete all rows at once; older snapshots still see them."""
        self._tx.truncate(self._table())

    def add_column(self, name: str, kind: object, default: object = None) -> None:
        """Add a column; rows that exist have the default, else null."""
        table = self._table()
        if self._tx.is_applied and definitions.has_column(table, name):
            return
        entry, field = definitions.add_column(table, name, kind, default)
        forbid = () if field.nullable else (name,)
        change = ColumnChange(add=[field.with_nullable(True)], forbid=forbid)
        self._alter(table, entry, change)

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

    def alter_column(
        self,
        name: str,
        *,
        type: object = None,  # noqa: A002 - the contract's name
        nullable: bool | None = None,
        default: object = UNCHANGED,
    ) -> None:
        """Change the type of a column, its default, and whether it takes null.

        Raises:
            SchemaMismatchError: It has a null and is to have none; or a value that has none in the
                type.
        """
        if self._tx.is_applied:  # others may have written nulls since, or dropped the column
            return
        if type is not None:
            self._retype(name, type)
        table = self._table()
        entry = definitions.alter_column(table, name, nullable, default)
        if entry is None:
            return
        before = catalogs.schema_of(table)
        forbid = definitions.forbidden(before, entry.schema)
        for column in forbid:
            self._refuse_null(column)
        relax = definitions.forbidden(entry.schema, before)
        change = ColumnChange(relax=relax, forbid=forbid) if relax or forbid else None
        self._alter(table, entry, change)

    def _retype(self, name: str, kind: object) -> None:
        """Give a column another type: that of what is stored, or of a new column in its place."""
        table = self._table()
        entry = definitions.retyped(table, name, kind)
        if entry is None:
            return
        made = table_schema_of(entry.schema)
        new = made.arrow.field(name).type
        is_wider = made.ids[name] == self._table_schema().ids[name]
        if not self.has_key:
            for _ in () if is_wider else self._cast(name, new, [name]):
                pass
            forbid = () if made.arrow.field(name).nullable else (name,)
            self._alter(table, entry, ColumnChange(retype={name: new}, forbid=forbid))
        elif is_wider:
            self._alter(table, entry, None)
        else:
            self._tx.note_check(table, self._keyed_reader(), None)
            rows = [*self._cast(name, new, None)]
            self._alter(table, entry, None)
            if rows:
                self.upsert(pa.Table.from_batches(rows))

    def _cast(
        self, name: str, kind: pa.DataType, columns: list[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows, one column in another type, as long as one commit can hold them.

        Raises:
            SchemaMismatchError: A value has none in that type.
            RequestError: They are more; of a table without a key nothing is held.
        """
        nbytes = 0
        for batch in self.scan(columns):
            try:
                column = cast_column(batch.column(name), kind)
            except UncastError as error:
                keys = [*self.primary_key, name]
                row = batch.slice(error.place, 1).select(keys).to_pylist()[0]
                raise SchemaMismatchError(
                    f"column {name!r} of {self.name!r} has a value that {kind} lacks in the row"
                    f" {str(row)[:200]}: change it first"
                ) from None
            at = batch.schema.get_field_index(name)
            made = batch.set_column(at, batch.schema.field(at).with_type(kind), column)
            nbytes += made.nbytes
            if self.has_key and nbytes > FRAME_BYTES_MAX:
                raise RequestError(
                    f"to rewrite column {name!r} of {self.name!r} takes more than"
                    f" {FRAME_BYTES_MAX} bytes of rows, which one commit cannot hold; add a column,"
                    " fill it in parts, and drop this one"
                )
            yield made

    def _refuse_null(self, column: str) -> None:
        """Refuse a null in a column; one that another commit writes meanwhile is a conflict."""
        quoted = column.replace('"', '""')
        text = f'"{quoted}" is null'
        if self.has_key:  # of any other table a commit meanwhile is a conflict
            reader = self._keyed_reader()
            self._tx.note_check(self._table(), reader, parse(text, reader.table_schema.arrow))
        shown = list(self.primary_key) or None
        found = next(iter(self.scan(shown, filter=text, limit=1)), None)
        if found is None or not found.num_rows:
            return
        raise SchemaMismatchError(
            f"column {column!r} of {self.name!r} has a null in the row"
            f" {str(found.to_pylist()[0])[:200]}: give it a value first"
        )

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
        self._rows.alter(table, entry.schema, change)
        self._tx.change(entry)

    # keyed tables

    def get(self, key: object) -> Row | None:
        reader = self._keyed_reader()
        wanted = reader.table_schema.codec.from_user(key)
        if self._rows.is_strict:
            self._note(reader, (wanted,), None)
        try:
            return reader.found(wanted)
        except OverflowError as error:
            raise beyond_python(wanted, error) from error

    def upsert(self, rows: object, missing: Missing = "refuse") -> int:
        """Insert or replace rows; for equal keys the last row wins.

        Raises:
            SchemaMismatchError: A column or value does not fit, or a column is missing and may not
                be; nothing was written.
        """
        writes = self._writes()
        table_schema = writes.table_schema
        is_whole = type(missing) is str and missing == "refuse"
        if is_whole and type(rows) is dict and table_schema.rows.is_packable:
            writes.upsert_row(table_schema.rows.whole(rows))
            return 1
        if check_missing(missing) == "keep":
            return self._lay_over(partial_rows(rows, table_schema), creates=True)
        given = row_input(rows, table_schema, "", may_repeat=True, is_whole=is_whole)
        writes.upsert(given)
        return given.count

    def _lay_over(self, given: PartialRows, *, creates: bool) -> int:
        """Write what some rows name, over the rows that exist; with `creates` also new ones."""
        if not given.keys:
            return 0
        if creates and given.are_whole:
            rows = given.batch
        else:
            reader = self._keyed_reader()
            self._note(reader, given.keys, None)
            rows = given.over(reader.many(given.keys), creates=creates)
        self._writes().upsert(row_input(rows, given.table_schema, "", may_repeat=False))
        return rows.num_rows

    def insert(self, rows: object) -> int:
        """Insert rows with new keys.

        Raises:
            DuplicateKeyError: A key exists already, or appears twice; nothing was written.
            SchemaMismatchError: A column or value does not fit; nothing was written.
        """
        writes = self._writes()
        table_schema = writes.table_schema
        given = row_input(rows, table_schema, self.name, may_repeat=False)
        if given.count == 0:
            return 0
        if self._tx.is_applied:  # the rows that live are its own
            writes.upsert(given)
            return given.count
        keys = given.keys
        if given.batch is not None and self._rows.is_strict:
            keys = table_schema.codec.keys(given.batch)
        reader = self._keyed_reader()
        if keys and self._rows.is_strict:
            self._note(reader, keys, None)
        if given.batch is None:
            found = next((key for key in given.keys if reader.get(key) is not None), None)
        else:
            found = reader.first_existing(chunk_of_batch(given.batch, table_schema, given.codes))
        if found is not None:
            raise DuplicateKeyError(self.name, table_schema.codec.to_user(found))
        writes.upsert(given)
        return given.count

    def update(self, key: object, /, **values: object) -> int:
        """Change the named columns of one row; return 1, or 0 if the key does not live.

        Raises:
            SchemaMismatchError: A column or value that does not fit, whether the key lives or not.
        """
        writes, reader = self._writes(), self._keyed_reader()
        keys, codec = writes.table_schema.codec, writes.table_schema.rows
        if not values.keys().isdisjoint(keys.names):
            refuse_key(list(values), keys.names)
        changed = None
        try:
            wanted = keys.from_user(key)
            row = reader.found(wanted) if codec.is_patchable else None
            if row is not None:
                row.update(values)
                changed = codec.from_user(row)
        except SchemaMismatchError:
            codec.check(values)  # what is wrong with them comes first
            raise
        except OverflowError as error:
            codec.check(values)
            raise beyond_python(keys.from_user(key), error) from error
        if changed is None:
            codec.check(values)
        if self._rows.is_strict:
            self._note(reader, (wanted,), None)
        if changed is None:
            return 0 if codec.is_patchable else self._patch(wanted, values)
        writes.upsert_row(changed)
        return 1

    def _patch(self, key: Key, values: Mapping[str, object]) -> int:
        """Do the same to a row of which a dict would lose something, with checked values."""
        writes = self._writes()
        found = self._keyed_reader().many((key,))
        if found.num_rows:
            changed = writes.table_schema.rows.patched(found, values)
            writes.upsert(row_input(changed, writes.table_schema, "", may_repeat=True))
        return found.num_rows

    def update_many(self, rows: object) -> int:
        """Change the named columns of rows by key; return how many of the keys have a row.

        Raises:
            SchemaMismatchError: A column or value that does not fit, or no key; nothing was
                written.
        """
        return self._lay_over(partial_rows(rows, self._writes().table_schema), creates=False)

    def delete(self, keys: object) -> int | None:
        """Delete rows by key, one or a list; return how many lived, None if they were not counted.

        Raises:
            RequestError: It is a text that reads as a filter, and no row has it as its key.
            SchemaMismatchError: A key is of another type.
        """
        writes = self._writes()
        found = deletion(keys, self._keyed_reader(), is_again=self._tx.is_applied)
        writes.delete(found.keys)
        return found.lived

    # plain tables

    def append(self, rows: object) -> int:
        """Add rows to a plain table."""
        writes = self._rows.plain(self._table())
        return writes.append(_batches(rows, writes.table_schema))

    def overwrite(self, rows: object) -> int:
        """Replace all rows of a plain table."""
        writes = self._rows.plain(self._table())
        return writes.overwrite(_batches(rows, writes.table_schema))

    # both

    def delete_where(self, filter: str) -> int:  # noqa: A002 - the contract's name
        """Delete the rows that match a SQL boolean expression; return how many."""
        table = self._table()
        wanted = filter_of(filter, self._table_schema().arrow)
        if wanted is None:
            raise RequestError("delete_where needs a filter; truncate empties the table")
        reader = self._noted_reader(wanted)
        if not catalogs.schema_of(table).key:
            return self._rows.plain(table).delete_where(wanted)
        codec = reader.table_schema.codec
        keys: list[Key] = []
        for batch in reader.scan(list(codec.names), wanted):
            keys += codec.keys(batch)
        if keys:
            self._rows.keyed(table).delete(keys)
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
        reader = self._noted_reader(wanted)
        if not key:
            return _update_plain(self._rows.plain(table), wanted, change)
        batches = list(_bounded(reader.scan(None, wanted)))
        rows = pa.Table.from_batches(batches, table_schema.arrow)
        if rows.num_rows:
            changed = row_input(change.of(rows), table_schema, "", may_repeat=False)
            self._rows.keyed(table).upsert(changed)
        return rows.num_rows


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
