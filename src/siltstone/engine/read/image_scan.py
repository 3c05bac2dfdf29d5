"""Image scan: scans while writers continue, out of an image (see `engine.columns.image`).

A scan may be answered by an image if its columns are narrow and in base, it reads no writes of its
own, and no caller relies on the order of its rows. Any other one reads the levels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

from siltstone.engine.columns.image import Image, image_of, is_narrow
from siltstone.engine.columns.images import COLUMNS_MAX, Images
from siltstone.engine.levels.memtable import Memtable
from siltstone.engine.levels.sources import changes
from siltstone.engine.read.read_levels import ReadLevels
from siltstone.formats.keys import Codes

_SLOT_BYTES = 12
Scan: TypeAlias = Callable[[Sequence[str]], Iterator[pa.RecordBatch]]
"""Yields some columns of all rows of a reader."""


def image_for(
    levels: ReadLevels,
    seq: int,
    names: Sequence[str],
    scan: Scan,
) -> Image | None:
    """Return the image at the seq of a reader, with some columns; None: read the levels.

    It is made, or carried on, if it has to be, and kept for the next reader; the reader has no
    writes of its own.
    """
    images, kinds = levels.images, _kinds(levels, names)
    if images is None or not kinds:
        return None
    begun = images.before(seq, levels.merged_seq, kinds)
    if begun is not None:
        image = carried(levels, seq, begun)
    elif (
        not images.are_ahead(seq, kinds)
        and _has_rows_over_base(levels)
        and images.is_asked_again(kinds)
        and (wanted := _hot(levels, images, kinds))
        and _fits(levels, images, wanted)
    ):
        image = _made(levels, seq, wanted, scan)
    else:
        return None
    images.use()
    images.keep(image, levels.bytes_left)
    return image


def carry_images(levels: ReadLevels, seq: int, images: Images) -> None:
    """Carry the newest image on to the seq of a reader, before rows that it lacks become base."""
    begun = images.before(seq, levels.merged_seq, {})
    if begun is not None:
        images.keep(carried(levels, seq, begun), levels.bytes_left)
    elif not images.are_ahead(seq, {}):
        images.drop()  # rows that they lack are in base already


def carried(levels: ReadLevels, seq: int, image: Image) -> Image:
    """Return an image at a seq of some levels; it must not be below their `merged_seq`."""
    if image.seq == seq:
        return image
    added = [
        chunk
        for source in levels.sources
        if source.last_seq > image.seq
        for chunk in changes(source, image.seq, seq)
    ]
    return image.at(seq, levels.table_schema.codec, added, levels.table_schema.initials())


def _kinds(levels: ReadLevels, names: Sequence[str]) -> dict[int, pa.DataType] | None:
    """Return the types of some columns by their ids; None if an image cannot have them.

    The columns of base were committed. Others may be of the one transaction that asks, and another
    one may give their ids to its own columns.
    """
    table_schema, base = levels.table_schema, levels.base
    if base is None or not base.rows or not table_schema.codec.exact:
        return None
    kinds = {table_schema.ids[name]: table_schema.arrow.field(name).type for name in names}
    are_stored = len(table_schema.alike(names, base.table_schema)) == len(kinds)
    return kinds if are_stored and all(map(is_narrow, kinds.values())) else None


def _has_rows_over_base(levels: ReadLevels) -> bool:
    """Say whether a scan of the levels must leave rows of base out; else Lance is fast."""
    has_hidden = levels.base is not None and levels.base.hidden > 0
    return has_hidden or any(not isinstance(s, Memtable) or s.rows for s in levels.sources)


def _hot(
    levels: ReadLevels, images: Images, kinds: dict[int, pa.DataType]
) -> dict[int, pa.DataType]:
    """Return the types of the columns that a new image gets: `kinds`, and what else is hot.

    Nothing if they are too many: other columns may be hot, and the image is for who asks.
    """
    if len(kinds) > COLUMNS_MAX:
        return {}
    names = levels.table_schema.names
    stored = {} if levels.base is None else levels.base.table_schema.names
    hot = [number for number in images.hot if number in names and number in stored]
    numbers = list(dict.fromkeys([*kinds, *hot]))[:COLUMNS_MAX]
    return _kinds(levels, [names[number] for number in numbers]) or {}


def _fits(levels: ReadLevels, images: Images, kinds: dict[int, pa.DataType]) -> bool:
    """Say whether an image would have room, and a changed copy of it."""
    base = levels.base
    widths = sum((kind.bit_width + 7) // 8 + 1 for kind in kinds.values())
    rows = 0 if base is None else base.rows
    return 2 * rows * (_SLOT_BYTES + widths) <= levels.bytes_left() + images.nbytes


def _made(levels: ReadLevels, seq: int, kinds: dict[int, pa.DataType], scan: Scan) -> Image:
    table_schema = levels.table_schema
    (key,) = table_schema.codec.names
    names = [table_schema.names[number] for number in kinds]
    read = names if key in names else [key, *names]

    def batches() -> Iterator[tuple[Codes, list[pa.Array]]]:
        for batch in scan(read):
            yield table_schema.codec.codes(batch), [batch.column(name) for name in names]

    return image_of(seq, table_schema.codec, kinds, batches())
