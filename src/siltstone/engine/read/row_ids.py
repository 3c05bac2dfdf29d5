"""Row ids: a number below 2**64 for each row, as Lance's clients ask for it, in `_rowid`.

    with a key      the key itself where it is one number (also a date, a time or a bool), as 64
                    bits in two's complement; else a hash of it
    without a key   Lance's number of the row in the version that is read

So in a keyed table a row keeps its id through updates, merges and optimizes, at every seq and in
every process. Lance's own numbers of base would change with each update and merge, and rows above
base have none. Two keys may have one hash, in one of 2**64 pairs: who gives ids out compares them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from siltstone.engine.filter.filters import Filter
from siltstone.engine.order.ordered_rows import Page
from siltstone.engine.read.read_union import KeyedReader, Order
from siltstone.engine.read.reader import PlainReader, Reader
from siltstone.formats.keys import Key, KeyCodec

ROW_ID = pa.field("_rowid", pa.uint64())
_SEED = 0x5117_570E
"""The hash of a key is the same in all stores and processes: a client may keep it."""


def read_for_ids(reader: Reader, columns: Sequence[str]) -> list[str]:
    """Return the columns to read if rows with some are to have their ids, too."""
    keys = () if isinstance(reader, PlainReader) else reader.table_schema.codec.names
    return list(dict.fromkeys([*columns, *keys]))


def with_ids(
    reader: Reader, rows: pa.Table | pa.RecordBatch, columns: Sequence[str], places: np.ndarray
) -> pa.Table:
    """Return some columns of rows, and last their ids.

    Args:
        reader: The table at the seq.
        rows: They have the columns of `read_for_ids`.
        columns: The columns.
        places: Of a table without a key: their positions.
    """
    if isinstance(reader, PlainReader):
        assert reader.table is not None
        ids = reader.table.search.row_ids(places)
    else:
        ids = reader.table_schema.codec.seeded_codes(rows, _SEED)
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    return table.select(list(columns)).append_column(ROW_ID, pa.array(ids.view(np.uint64)))


def scan_with_ids(
    reader: Reader,
    columns: Sequence[str],
    wanted: Filter | None,
    order: tuple[Order, Page] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that match, with some columns, and last their ids.

    `order`: a page of them, of a table with a key.
    """
    read = read_for_ids(reader, columns)
    if isinstance(reader, PlainReader):
        for places, rows in reader.scan_placed(read, wanted):
            yield from with_ids(reader, rows, columns, places).to_batches()
        return
    found = reader.scan(read, wanted) if order is None else reader.in_order(*order, read, wanted)
    for rows in found:
        yield from with_ids(reader, rows, columns, _NO_PLACES).to_batches()


def rows_with_ids(reader: Reader, ids: Sequence[int], columns: Sequence[str]) -> pa.Table:
    """Return the rows that have some ids, with some columns, and last their ids.

    Of hashed keys all are read once.
    """
    fields = reader.table_schema.fields(list(columns)).append(ROW_ID)
    wanted = np.unique(np.array(ids, np.uint64)).view(np.int64)
    if isinstance(reader, PlainReader):
        if reader.table is None:
            return fields.empty_table()
        places = np.sort(reader.table.search.places_of(wanted))
        rows = reader.table.take(places, list(columns))
        return with_ids(reader, rows, columns, places).cast(fields)
    codec = reader.table_schema.codec
    keys = _keys_of(codec, wanted) if codec.exact else _keys_with(reader, wanted)
    rows = reader.many(keys)
    return with_ids(reader, rows, columns, _NO_PLACES).cast(fields)


def _keys_of(codec: KeyCodec, codes: np.ndarray) -> list[Key]:
    """Return the keys with some codes; a code that no key of this type has is left out."""
    kind = codec.user_types[0]
    least, most = _NUMBERS
    if pa.types.is_boolean(kind):
        least, most = 0, 1
    elif pa.types.is_integer(kind) and kind.bit_width < 64:
        bits = kind.bit_width
        signed = pa.types.is_signed_integer(kind)
        least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    elif pa.types.is_date32(kind):
        least, most = -(1 << 31), (1 << 31) - 1
    return [codec.key_of_code(code) for code in codes.tolist() if least <= code <= most]


def _keys_with(reader: KeyedReader, codes: np.ndarray) -> list[Key]:
    """Return the keys, by a look at each, that have some hashes (ascending)."""
    codec, found = reader.table_schema.codec, list[Key]()
    for rows in reader.scan(list(codec.names)):
        mine = np.isin(codec.seeded_codes(rows, _SEED), codes)
        if mine.any():
            found += codec.keys(rows.filter(pa.array(mine)))
    return found


_NO_PLACES = np.zeros(0, np.int64)
_NUMBERS = (-(1 << 63), (1 << 63) - 1)
