"""Read arguments: what callers may ask of a reader: a key, columns, a filter that names one row."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.arguments import count_of, flag_of
from siltstone.engine.order.column_order import ByColumn
from siltstone.engine.order.key_range import KeyRange
from siltstone.engine.order.ordered_rows import Page
from siltstone.engine.read.read_union import KeyedReader, Order
from siltstone.engine.read.reader import Reader
from siltstone.errors import RequestError, SchemaMismatchError, no_such
from siltstone.formats.keys import Key, KeyCodec

_POINT = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*(?:(-?\d{1,19})|'([^'\\]*)')\s*", re.ASCII)
_PUSHED_POINT = re.compile(r"\(([A-Za-z_]\w*) == (-?\d{1,19})\)", re.ASCII)


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


def page_asked(limit: object, offset: object) -> Page:
    """Return which of the rows in order a caller wants.

    Raises:
        RequestError: One is not an integer from 0.
    """
    at_most = None if limit is None else count_of("limit", limit, 0)
    return Page(count_of("offset", offset, 0), at_most)


def order_asked(reader: Reader, order_by: object, *, descending: object) -> Order:
    """Return the order that a caller names: that of the key, or of a column with a btree index.

    Raises:
        RequestError: It is no name and no list of names, the table is plain, or has no such order.
    """
    names = [order_by] if isinstance(order_by, str) else order_by
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise RequestError(f"order_by must be a column or a list of columns; got {order_by!r:.80}")
    if not isinstance(reader, KeyedReader):
        raise RequestError("order_by takes the columns of the key, and a plain table has no key")
    known_columns(reader.table_schema.arrow, names)
    is_descending = flag_of("descending", descending)
    key, names = reader.table_schema.codec.names, tuple(names)
    if names and names == key[: len(names)]:
        return KeyRange(descending=is_descending)
    columns, behind = reader.ordered_columns, names[1:]
    if names and names[0] in columns and behind == key[: len(behind)]:
        return ByColumn(names[0], is_descending)
    others = f", or one of {[*columns]}, which have a btree index" if columns else ""
    raise RequestError(
        f"order_by takes the columns of the key {[*key]}, or the first ones of them, in that"
        f" order{others}; got {[*names]}"
    )


def key_named(text: object, codec: KeyCodec) -> Key | None:
    """Return the key that a filter names, None if the filter has another form.

    Clients without another way to read a row send `id = 7` or `name = 'x'`. The lookup takes 0.2 ms
    instead of 4 over 300,000 rows. Any filter that may mean something else goes to the parser.
    """
    return _key_of(_POINT.fullmatch(text), codec) if isinstance(text, str) else None


def key_pushed(text: object, codec: KeyCodec) -> Key | None:
    """Return the whole number that a filter of DuckDB names as the key, None if it does not.

    As `key_named`, for an expression whose constant has the type of its column: only its text tells
    what it is, and the text of a duration is that of a number.
    """
    if not isinstance(text, pc.Expression) or not pa.types.is_integer(codec.user_types[0]):
        return None
    return _key_of(_PUSHED_POINT.fullmatch(str(text)), codec)


def _key_of(found: re.Match[str] | None, codec: KeyCodec) -> Key | None:
    if found is None or codec.names != (found[1],):
        return None
    kind, is_number = codec.user_types[0], found[2] is not None
    fits = pa.types.is_integer(kind) if is_number else pa.types.is_string(kind)
    if not fits:
        return None
    try:
        return codec.from_user(int(found[2]) if is_number else found.group(found.lastindex or 0))
    except SchemaMismatchError:  # beyond what the type holds: the parser says what is wrong
        return None
