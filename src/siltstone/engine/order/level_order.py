"""Level order: the rows above base in the order of keys whose codes are hashes.

Each sorted run of codes over base (`visibility`) is sorted by its keys, too, when a read first asks
for their order. It keeps that as long as it lives: commits add short runs, and what was sorted is
sorted again only when runs are merged. So are the keys of a load, which has no ordered run before a
merge makes it a part of base.

That is for `ROWS_MAX` rows and `_BYTES_MAX` bytes of keys; where more lie above base, no order is
known, and who wants one sorts what a scan gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from siltstone.engine.levels.chunk import Run, SortedKeys
from siltstone.engine.levels.load_keys import LoadKeys, LoadSlice, Part
from siltstone.engine.levels.overlay import Overlay
from siltstone.engine.levels.visibility import keys_of_places
from siltstone.formats.keys import KeyCodec
from siltstone.formats.order.key_bytes import NO_KEYS, ByteKeys, joined_ranks

ROWS_MAX = 1 << 19
_BYTES_MAX = 64 << 20
_WEIGHED_ROWS_MIN = 4_096
"""The keys of shorter runs are in memory anyway, with their rows; a page needs not weigh them."""


def sorted_levels(overlay: Overlay, codec: KeyCodec) -> list[tuple[int, SortedKeys]] | None:
    """Return the keys above base, sorted in a few pieces, each with what its ordinals begin at.

    Places that no longer live are among them. None: they are too many.
    """
    visibility = overlay.visibility
    if visibility.live.length > ROWS_MAX:
        return None
    found: list[tuple[int, SortedKeys]] = []
    left = _BYTES_MAX
    for run in visibility.runs:
        is_long = run.by_key is None and len(run.ordinals) >= _WEIGHED_ROWS_MIN
        if is_long and _key_bytes(overlay.parts) > _BYTES_MAX:
            return None
        found.append((0, _of_run(run, overlay.parts, codec)))
    for start, load in visibility.loads:
        keys = _of_load(load, left)
        if keys is None:
            return None
        found.append((start, keys))
        left -= keys.nbytes
    return found


def _key_bytes(parts: Sequence[Part]) -> int:
    """Return the bytes of the keys of all rows above base but those of loads."""
    chunks = (chunk for part in parts if not isinstance(part, LoadSlice) for chunk in part.chunks)
    return sum(chunk.of_keys().batch.nbytes for chunk in chunks)


def _of_run(run: Run, parts: Sequence[Part], codec: KeyCodec) -> SortedKeys:
    found = run.by_key
    if found is None:
        places = run.ordinals
        keys = codec.ordered(keys_of_places(parts, places)) if len(places) else NO_KEYS
        found = SortedKeys.of(keys, places)
        object.__setattr__(run, "by_key", found)  # two threads make it alike
    return found


def _of_load(load: LoadKeys, bytes_max: int) -> SortedKeys | None:
    """Return the keys of a load by their positions; None: they are too many."""
    if not load.by_key:
        found: list[ByteKeys] = [NO_KEYS]
        left = bytes_max
        for keys in _keys_of(load):
            left -= keys.nbytes
            if left < 0:
                return None
            found.append(keys)
        whole = joined_ranks(found)
        load.by_key.append(SortedKeys.of(whole, np.arange(len(whole))))
    return load.by_key[0]


def _keys_of(load: LoadKeys) -> Iterator[ByteKeys]:
    codec = load.table_schema.history_codec
    for batch in load.table.scan_stored(list(codec.names)):
        yield codec.ordered_of(batch)
