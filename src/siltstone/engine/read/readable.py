"""Readable: the reads of a table, the same through a store, a snapshot and a transaction.

The three differ only in their reader, so this is the one base class of the engine: each of them
implements `_reader`, and a transaction records its reads there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.catalog.row_input import key_input
from siltstone.engine.filter.filters import Filter, filter_of
from siltstone.engine.read.read_union import KeyedReader, Row
from siltstone.engine.read.reader import Reader
from siltstone.engine.read.row_ids import ROW_ID, rows_with_ids, scan_with_ids
from siltstone.errors import RequestError, SchemaMismatchError, no_such
from siltstone.formats.keys import Key, KeyCodec

_POINT = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*(?:(-?\d{1,19})|'([^'\\]*)')\s*", re.ASCII)


class Readable:
    """A table that can be read. Any thread."""

    __slots__ = ()
    _in_any_order = False
    """Whether each scan may have its own order: true where each reads another seq."""

    def _reader(self) -> Reader:
        """Return what answers one call: asked once in it, so that it sees one seq."""
        raise NotImplementedError

    def _note(self, reader: Reader, keys: Sequence[Key], wanted: Filter | None) -> None:
        """Hear what is read: `keys` if there are some, else a scan of `wanted`."""

    @property
    def schema(self) -> pa.Schema:
        """The columns, with their names and types at the seq of this reader."""
        return self._reader().table_schema.shown

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The names of the key columns, in key order; empty for a plain table."""
        keys = self._reader().table_schema.keys
        return () if keys is None else keys.names

    def get(self, key: object) -> Row | None:
        """Return the row of `key` as a dict, None if there is none.

        Python's times have microseconds. A timestamp with nanoseconds becomes a pandas timestamp; a
        time of day loses its nanoseconds. `get_many` and `scan` return all of them.

        Args:
            key: A value; for a composite key a tuple in key order or a dict by column.

        Raises:
            SchemaMismatchError: The key has another type.
            ValueError: The row has a timestamp with nanoseconds, and pandas is not installed.
        """
        reader = keyed(self._reader())
        wanted = reader.table_schema.codec.from_user(key)
        self._note(reader, (wanted,), None)
        return reader.get(wanted)

    def get_many(self, keys: object) -> pa.Table:
        """Return the rows of the existing `keys`, each once, in the order of the keys.

        Args:
            keys: An iterable of keys; a column of them (of Arrow, pandas, Polars or NumPy); or
                Arrow data with the key columns.
        """
        reader = keyed(self._reader())
        wanted = key_input(keys, reader.table_schema)
        if wanted:
            self._note(reader, wanted, None)
        return reader.many(wanted)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: str | pc.Expression | None = None,  # noqa: A002 - the contract's name
        limit: int | None = None,
    ) -> pa.RecordBatchReader:
        """Return a stream of the rows, in no order.

        Args:
            columns: The columns in their order; None: all.
            filter: A SQL boolean expression, or an Arrow expression.
            limit: The maximum number of rows.

        Raises:
            RequestError: A column is unknown, or the filter is invalid.
        """
        reader = self._reader()
        arrow = reader.table_schema.arrow
        shown = known_columns(arrow, columns)
        if limit is not None and (type(limit) is not int or limit < 0):
            raise RequestError(f"limit must be an integer from 0; got {limit!r}")
        fields = reader.table_schema.fields(shown)
        batches = self._matching(reader, filter, shown, limit)
        if limit is not None:
            batches = _limited(batches, limit)
        return pa.RecordBatchReader.from_batches(fields, batches)

    def scan_with_ids(
        self,
        columns: Sequence[str],
        filter: str | None,  # noqa: A002 - the contract's name
        limit: int | None,
    ) -> pa.RecordBatchReader:
        """Return the rows of `scan`, and last their `_rowid`: see `row_ids`."""
        reader = self._reader()
        shown = known_columns(reader.table_schema.arrow, columns) or []
        wanted = filter_of(filter, reader.table_schema.arrow)
        self._note(reader, (), wanted)
        fields = reader.table_schema.fields(shown).append(ROW_ID)
        batches = scan_with_ids(reader, shown, wanted)
        batches = batches if limit is None else _limited(batches, limit)
        return pa.RecordBatchReader.from_batches(fields, batches)

    def rows_with_ids(self, ids: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Return the rows that have some `_rowid`, with some columns, and last their `_rowid`."""
        reader = self._reader()
        shown = known_columns(reader.table_schema.arrow, columns) or []
        self._note(reader, (), None)
        return rows_with_ids(reader, ids, shown)

    def _matching(
        self,
        reader: Reader,
        wanted: str | pc.Expression | None,
        shown: list[str] | None,
        limit: int | None,
    ) -> Iterator[pa.RecordBatch]:
        if isinstance(reader, KeyedReader):
            key = key_named(wanted, reader.table_schema.codec)
            if key is not None:
                self._note(reader, (key,), None)
                found = reader.many((key,))
                return iter((found if shown is None else found.select(shown)).to_batches())
        parsed = filter_of(wanted, reader.table_schema.arrow)
        self._note(reader, (), parsed)
        if isinstance(reader, KeyedReader):
            in_any_order = limit is None and self._in_any_order
            return reader.scan(shown, parsed, in_any_order=in_any_order, limit=limit)
        return reader.scan(shown, parsed, limit=limit)

    def count(self, filter: str | pc.Expression | None = None) -> int:  # noqa: A002
        """Return the number of rows, or of the rows that match `filter`."""
        reader = self._reader()
        wanted = filter_of(filter, reader.table_schema.arrow)
        self._note(reader, (), wanted)
        if wanted is None:
            return reader.count()
        return sum(batch.num_rows for batch in reader.scan([], wanted))


def keyed(reader: Reader) -> KeyedReader:
    """Return the reader of a table with a key.

    Raises:
        RequestError: It is of a plain table.
    """
    if not isinstance(reader, KeyedReader):
        raise RequestError("a plain table has no key; use scan with a filter")
    return reader


def known_columns(arrow: pa.Schema, columns: object) -> list[str] | None:
    """Return the columns that a caller names; None for all.

    Raises:
        RequestError: `columns` is not a list of different names, or a name is unknown.
    """
    if columns is None:
        return None
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise RequestError(f"columns must be a list of names; got {columns!r}")
    columns = list(columns)
    unknown = [name for name in columns if name not in arrow.names]
    if unknown:
        raise SchemaMismatchError(no_such("column", unknown, arrow.names))
    if len(set(columns)) != len(columns):
        raise RequestError(f"columns appear twice in {columns}")
    return columns


def _limited(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    left = limit
    while left > 0 and (batch := next(batches, None)) is not None:
        rows = min(left, batch.num_rows)
        yield batch.slice(0, rows)
        left -= rows


def key_named(text: object, codec: KeyCodec) -> Key | None:
    """Return the key that a filter names, None if the filter has another form.

    Clients without another way to read a row send `id = 7` or `name = 'x'`. The lookup takes 0.2 ms
    instead of 4 over 300,000 rows. Any filter that may mean something else goes to the parser.
    """
    if not isinstance(text, str) or len(codec.names) != 1:
        return None
    found = _POINT.fullmatch(text)
    if found is None or found[1] != codec.names[0]:
        return None
    kind, is_number = codec.user_types[0], found[2] is not None
    fits = pa.types.is_integer(kind) if is_number else pa.types.is_string(kind)
    if not fits:
        return None
    try:
        return codec.from_user(int(found[2]) if is_number else found[3])
    except SchemaMismatchError:  # beyond what the type holds: the parser says what is wrong
        return None
