"""Images of one incarnation of a table: of the columns that are asked for again and again.

    asked      how often scans asked for each column, while rows lay over base
    image      made by the scan that finds its columns asked for `HOT_SCANS` times
    kept       the newest images, `KEPT_MAX` of them: readers come in any order, and may be at
               slightly older seqs; they share the blocks that no row has touched in between
    dropped    when `IDLE_VIEWS_MAX` views were made without a scan, or when it does not fit

An image has one seq and serves that alone. It is carried on to the seq of a reader by the rows
since, which the reader's levels must have: it is not below `merged_seq`. Maintenance carries it on
before it takes rows out of the levels.

No lock: all that is kept is replaced in one assignment; a count that is lost costs one scan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

import pyarrow as pa

from siltstone.engine.columns.image import Image, bytes_of

Kinds: TypeAlias = Mapping[int, pa.DataType]
HOT_SCANS = 3
KEPT_MAX = 2
IDLE_VIEWS_MAX = 8
COLUMNS_MAX = 16


class Images:
    """See the module."""

    __slots__ = ("__weakref__", "_asked", "_idle_views", "_kept")

    def __init__(self) -> None:
        self._asked: dict[int, int] = {}
        self._kept: tuple[Image, ...] = ()
        self._idle_views = 0

    @property
    def nbytes(self) -> int:
        """Bytes in memory; blocks that images share count once."""
        return bytes_of(self._kept)

    def before(self, seq: int, merged_seq: int, kinds: Kinds) -> Image | None:
        """Return the newest image that a reader at `seq` can begin with; it has these columns.

        Of these types: the type of a column may have been widened since.
        """
        for image in self._kept:
            if merged_seq <= image.seq <= seq and image.kinds.items() >= kinds.items():
                return image
        return None

    def are_ahead(self, seq: int, kinds: Kinds) -> bool:
        """Return whether an image with these columns is above `seq`: another reader was faster."""
        return any(i.seq > seq and i.kinds.items() >= kinds.items() for i in self._kept)

    def is_asked_again(self, numbers: Collection[int]) -> bool:
        """Count a scan of some columns; return whether an image of them is worth its cost."""
        for number in numbers:
            self._asked[number] = self._asked.get(number, 0) + 1
        return all(self._asked[number] >= HOT_SCANS for number in numbers)

    @property
    def hot(self) -> list[int]:
        """The ids of the columns that an image made now should have, the hottest first."""
        hot = [number for number, count in self._asked.items() if count >= HOT_SCANS]
        return sorted(hot, key=lambda number: -self._asked[number])[:COLUMNS_MAX]

    def keep(self, image: Image, bytes_left: Callable[[], int]) -> None:
        """Keep an image if it is the newest, and if there is room for it and a changed copy."""
        kept = self._kept
        if kept and kept[0].kinds.items() > image.kinds.items():
            return  # it was begun before the other columns were asked for
        if kept and kept[0].seq >= image.seq and kept[0].kinds == image.kinds:
            return
        if 2 * image.nbytes > bytes_left() + self.nbytes:
            self.drop()
            return
        same = tuple(i for i in kept if [*i.kinds.items()] == [*image.kinds.items()])
        self._kept = (image, *same)[:KEPT_MAX]

    def use(self) -> None:
        """Hear that a scan asked for the image."""
        self._idle_views = 0

    def begin_view(self) -> bool:
        """Hear that the next view is made; return whether there are images to carry into it."""
        self._idle_views += 1
        if self._idle_views > IDLE_VIEWS_MAX:
            self.drop()
        return bool(self._kept)

    def drop(self) -> None:
        """Forget all images, and what was asked for."""
        self._kept, self._asked, self._idle_views = (), {}, 0
