"""Filed rows: the rows of a base in part files, one file for each part (ADR 100).

    OPEN      a read finds its row in a block of some KiB
    ABSENT    it does not: Lance is asked, and after some more reads of the part the file is made

The reader makes it, in its own thread; other readers ask Lance meanwhile. A file that could not be
made, or was there and went, is not made again before `rows / ROWS_PER_MISS` further reads of its
part: by then Lance has cost as much as it would.

No lock: counts may lose some, and which file is there decides nothing but the time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter

import numpy as np
import pyarrow as pa

from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.errors import SiltstoneError
from siltstone.formats.parts.part_file import PartIdentity
from siltstone.storage.cache.part_cache import PartCache
from siltstone.storage.cache.part_file import PartFile, Place
from siltstone.storage.tables.tables import PinnedTable
from siltstone.storage.tables.values import Span

ROWS_PER_MISS = 512
"""Lance takes a row in the time in which a file gets so many (250 us, 0.5 us each)."""
TAKEN_MAX = 1_024
"""More rows at once are cheaper from Lance, which decodes whole pages."""

_NOWHERE: Place = (b"", 0)


class FiledRows:
    """The part files of one base; see the module."""

    __slots__ = (
        "_cache",
        "_identities",
        "_names",
        "_schema",
        "_spans",
        "_starts",
        "_table",
        "_wait",
    )

    def __init__(self, table: PinnedTable, table_schema: TableSchema, cache: PartCache) -> None:
        self._table, self._schema, self._cache = table, table_schema.arrow, cache
        self._identities = identities_of(table, table_schema, cache.store_id)
        self._names = [identity.name for identity in self._identities]
        self._spans: Sequence[Span] = table.spans
        self._starts = [first for first, _ in self._spans]
        self._wait: dict[int, int] = {}

    def row(self, position: int, *, may_make: bool) -> dict[str, object] | None:
        """Return one row as Python values; None: ask Lance.

        Raises:
            OverflowError, ValueError: Python has no value for one in it.
        """
        index = bisect_right(self._starts, position) - 1
        file = self._file(index, may_make=may_make)
        if file is None:
            return None
        self._cache.hits += 1
        return file.row(position - self._starts[index])

    def has(self, position: int, *, may_make: bool) -> bool:
        """Say whether the part of a row has a file."""
        return self._file(bisect_right(self._starts, position) - 1, may_make=may_make) is not None

    @property
    def is_whole(self) -> bool:
        """Whether the files of all parts are open."""
        opened = self._cache.opened
        return all(opened(name) is not None for name in self._names)

    def take(
        self, positions: np.ndarray, names: Sequence[str], *, may_make: bool = False
    ) -> pa.Table | None:
        """Return columns of some rows, in the order of `positions`; None: ask Lance.

        `may_make`: one file of those that they need; the caller waits for it.
        """
        if not 0 < len(positions) <= TAKEN_MAX or not names:
            return None
        parts = np.searchsorted(self._starts, positions, "right") - 1
        found: dict[int, list[Place]] = {}
        file: PartFile | None = None
        for index in np.unique(parts).tolist():
            mine = np.flatnonzero(parts == index)
            offsets = (positions[mine] - self._starts[index]).tolist()
            opened = self._cache.opened(self._names[index])
            file = opened or self._missed(index, may_make=may_make)
            may_make = may_make and opened is not None
            places = None if file is None else file.places(offsets, names)
            if places is None:
                return None
            _put(found, places, mine.tolist(), len(positions))
        batch = None if file is None else file.columns(found, names)
        self._cache.hits += 0 if batch is None else batch.num_rows
        return None if batch is None else pa.Table.from_batches([batch])

    def make(self) -> None:
        """Make the files of all parts that have none, as far as it goes."""
        for index, identity in enumerate(self._identities):
            if self._cache.open(identity, self._schema) is None:
                self._made(index)

    @property
    def share(self) -> float:
        """The share of the rows that files have."""
        sizes = [end - first for first, end in self._spans]
        there = [self._cache.open(each, self._schema) is not None for each in self._identities]
        return sum(n for n, is_there in zip(sizes, there, strict=True) if is_there) / sum(sizes)

    def _file(self, index: int, *, may_make: bool) -> PartFile | None:
        return self._cache.opened(self._names[index]) or self._missed(index, may_make=may_make)

    def _missed(self, index: int, *, may_make: bool) -> PartFile | None:
        found = self._looked_for(index, may_make=may_make)
        self._cache.misses += found is None
        return found

    def _looked_for(self, index: int, *, may_make: bool) -> PartFile | None:
        wait, identity = self._wait.get(index), self._identities[index]
        if self._cache.was_closed(self._names[index]):
            return self._cache.open(identity, self._schema)
        if wait:
            self._wait[index] = wait - 1
            return None
        may_make = may_make and not self._cache.is_writing
        if wait is None or may_make:
            found = self._cache.open(identity, self._schema)
            if found is None and may_make:
                found = self._made(index)
            self._wait[index] = 0
            if found is not None or may_make:  # before it is made, or made again
                self._wait[index] = identity.rows // ROWS_PER_MISS
            return found
        return None

    def _made(self, index: int) -> PartFile | None:
        scan = partial(self._scanned, self._spans[index])
        try:
            return self._cache.make(self._identities[index], self._schema, scan)
        except SiltstoneError:  # who reads the damaged row gets the error
            return None

    def _scanned(self, within: Span, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield rows to copy; their part is checked behind them, since the copy outlives it."""
        yield from self._table.scan(columns, within=within, with_hidden=True)
        self._table.check_again(within)


def _put(
    found: dict[int, list[Place]], places: Mapping[int, Sequence[Place]], at: list[int], count: int
) -> None:
    """Put the places of the rows of a part where they were asked for, among `count`, by group."""
    for group, each in places.items():
        rows = found.setdefault(group, [_NOWHERE] * count)
        for row, place in zip(at, each, strict=True):
            rows[row] = place


def identities_of(
    table: PinnedTable, table_schema: TableSchema, store_id: str
) -> list[PartIdentity]:
    """Return whose rows the files of the parts of a base have."""
    columns = tuple(map(attrgetter("id", "name", "type"), table_schema.schema.columns))
    folder = table.pin.folder
    return [
        PartIdentity(store_id, folder, part.number, part.paths, end - first, columns)
        for part, (first, end) in zip(table.part_ids, table.spans, strict=True)
    ]
