"""Image scan: scans while writers continue, out of an image (see `engine.levels.image`).

A scan may be answered by an image if its columns are narrow and in base, it reads no writes of its
own, and no caller relies on the order of its rows. Any other one reads the levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from siltstone.engine.levels.history_run import changes
from siltstone.engine.levels.image import Image, image_of, is_narrow
from siltstone.engine.levels.images import COLUMNS_MAX, Images
from siltstone.engine.levels.memtable import Memtable
from siltstone.formats.keys import Codes

if TYPE_CHECKING:
    from siltstone.engine.read.read_union import KeyedReader

_SLOT_BYTES = 12


def image_for(reader: KeyedReader, names: Sequence[str]) -> Image | None:
    """Return the image at the seq of a reader, with some columns; None: read the levels.

    It is made, or carried on, if it has to be, and kept for the next reader.
    """
    images, kinds = reader.images, _kinds(reader, names)
    if images is None or not kinds or reader.own is not None:
        return None
    begun = images.before(reader.seq, reader.merged_seq, kinds)
    if begun is not None:
        image = carried(reader, begun)
    elif (
        not images.are_ahead(reader.seq, kinds)
        and _has_rows_over_base(reader)
        and images.is_asked_again(kinds)
        and (wanted := _hot(reader, images, kinds))
        and _fits(reader, images, wanted)
    ):
        image = _made(reader, wanted)
    else:
        return None
    images.use()
    images.keep(image, reader.bytes_left)
    return image


def carry_images(reader: KeyedReader, images: Images) -> None:
    """Carry the newest image on to the seq of a reader, before rows that it lacks become base."""
    begun = images.before(reader.seq, reader.merged_seq, ())
    if begun is not None:
        images.keep(carried(reader, begun), reader.bytes_left)
    elif not images.are_ahead(reader.seq, ()):
        images.drop()  # rows that they lack are in base already


def carried(reader: KeyedReader, image: Image) -> Image:
    """Return an image at the seq of a reader; it must not be below the reader's `merged_seq`."""
    if image.seq == reader.seq:
        return image
    added = [
        chunk
        for source in reader.sources
        if source.last_seq > image.seq
        for chunk in changes(source, image.seq, reader.seq)
    ]
    return image.at(reader.seq, reader.table_schema.codec, added)


def _kinds(reader: KeyedReader, names: Sequence[str]) -> dict[int, pa.DataType] | None:
    """Return the types of some columns by their ids; None if an image cannot have them.

    The columns of base were committed. Others may be of the one transaction that asks, and another
    one may give their ids to its own columns.
    """
    table_schema, base = reader.table_schema, reader.base
    if base is None or not base.rows or not table_schema.codec.exact:
        return None
    kinds = {table_schema.ids[name]: table_schema.arrow.field(name).type for name in names}
    are_stored = kinds.keys() <= base.table_schema.names.keys()
    return kinds if are_stored and all(map(is_narrow, kinds.values())) else None


def _has_rows_over_base(reader: KeyedReader) -> bool:
    """Say whether a scan of the levels must leave rows of base out; else Lance is fast."""
    return (reader.base is not None and reader.base.has_hidden) or any(
        bool(source.rows) if isinstance(source, Memtable) else True for source in reader.sources
    )


def _hot(
    reader: KeyedReader, images: Images, kinds: dict[int, pa.DataType]
) -> dict[int, pa.DataType]:
    """Return the types of the columns that a new image gets: `kinds`, and what else is hot.

    Nothing if they are too many: other columns may be hot, and the image is for who asks.
    """
    if len(kinds) > COLUMNS_MAX:
        return {}
    names = reader.table_schema.names
    stored = {} if reader.base is None else reader.base.table_schema.names
    hot = [number for number in images.hot if number in names and number in stored]
    numbers = list(dict.fromkeys([*kinds, *hot]))[:COLUMNS_MAX]
    return _kinds(reader, [names[number] for number in numbers]) or {}


def _fits(reader: KeyedReader, images: Images, kinds: dict[int, pa.DataType]) -> bool:
    """Say whether an image would have room, and a changed copy of it."""
    base = reader.base
    widths = sum((kind.bit_width + 7) // 8 + 1 for kind in kinds.values())
    rows = 0 if base is None else base.rows
    return 2 * rows * (_SLOT_BYTES + widths) <= reader.bytes_left() + images.nbytes


def _made(reader: KeyedReader, kinds: dict[int, pa.DataType]) -> Image:
    table_schema = reader.table_schema
    (key,) = table_schema.codec.names
    names = [table_schema.names[number] for number in kinds]
    read = names if key in names else [key, *names]

    def batches() -> Iterator[tuple[Codes, list[pa.Array]]]:
        for batch in reader.scan(read):
            yield table_schema.codec.codes(batch), [batch.column(name) for name in names]

    return image_of(reader.seq, table_schema.codec, kinds, batches())
