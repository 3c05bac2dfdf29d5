"""Value runs: the values of a column in order, as the segments of an index (a btree) have them.

    page_data.lance      values, the nulls first, then ascending; ids: the row address of each
    page_lookup.lance    of each `batch_size` rows of it: min, max, null_count, page_idx

Lance says of these files no more than what lies in them, so that is looked at when one is opened,
and some of the values are compared with those of their rows. An index in another form has no runs:
then rows are sorted by a scan.

A run has an entry for each row that it was built over. Those of parts that the index no longer
covers, or that are gone, have no position (-1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.storage.lance.files.dataset_files import DatasetFiles
from siltstone.storage.lance.files.parts import Part
from siltstone.storage.lance.files.row_addresses import OFFSET_BITS
from siltstone.storage.tables.tables import PinnedTable
from siltstone.storage.tables.values import Segment, Span

_DATA, _LOOKUP = "page_data.lance", "page_lookup.lance"
_COMPARED = 16
_owners = count(-1, -1)
"""Owners of open files among the sessions; versions count up from 0."""


Paths: TypeAlias = Sequence[str]


class Lookup(msgspec.Struct, frozen=True, eq=False):
    """What a segment says of its pages: the greatest value of each of those with values."""

    rows: int
    nulls: int
    page_rows: int
    greatest: pa.Array

    def values_in(self, page: int) -> Span:
        """Return which values a page of the file has: [first, end) of those that are not null."""
        first = page * self.page_rows - self.nulls
        return max(0, first), min(first + self.page_rows, self.rows - self.nulls)


class LanceValueRun:
    """See `tables.ValueRun`; immutable, threads may share it.

    Args:
        data: Reads the files of the folder of the table.
        folder: That folder.
        lookup: What the segment says of its pages.
        opened: Returns the open file of the values.
        parts: The parts that it is asked for; one at least.
    """

    def __init__(
        self,
        data: DatasetFiles,
        folder: str,
        lookup: Lookup,
        opened: Callable[[], Any],
        parts: Iterable[Part],
    ) -> None:
        self.rows, self.nulls = lookup.rows - lookup.nulls, lookup.nulls
        self._data, self._folder, self._lookup, self._opened = data, folder, lookup, opened
        numbers = sorted((part.number, part.start) for part in parts)
        self._numbers, self._starts = np.array(numbers, np.int64).T

    def read(self, first: int, end: int) -> tuple[pa.Array, np.ndarray]:
        """See `tables.ValueRun.read`."""
        with self._data.reading(self._folder):
            found = self._opened().read_range(self._lookup.nulls + first, end - first).to_table()
        address = found.column("ids").to_numpy().view(np.int64)
        number = address >> OFFSET_BITS
        part = np.minimum(self._numbers.searchsorted(number), len(self._numbers) - 1)
        position = self._starts[part] + (address & ((1 << OFFSET_BITS) - 1))
        values: Any = found.column("values").combine_chunks()
        return values, np.where(self._numbers[part] == number, position, -1)

    def find(self, value: pa.Scalar[Any], *, is_after: bool) -> int:
        """See `tables.ValueRun.find`."""
        is_below: Any = pc.less_equal if is_after else pc.less
        pages = is_below(self._lookup.greatest, value).fill_null(pa.scalar(True)).true_count
        if pages == len(self._lookup.greatest):
            return self.rows
        first, end = self._lookup.values_in(pages)
        return first + is_below(self.read(first, end)[0], value).true_count


class ValueRuns:
    """Opens the runs of one version. Its open files are among the sessions of the store."""

    def __init__(self, data: DatasetFiles, folder: str) -> None:
        self._data, self._folder, self._owner = data, folder, next(_owners)

    def __del__(self) -> None:
        """Close the files: vacuum may have deleted them, and their space is not free before."""
        self._data.sessions.forget(self._owner)

    def open(
        self, table: PinnedTable, segments: Sequence[Segment], parts: Iterable[Part], paths: Paths
    ) -> list[LanceValueRun] | None:
        """Return the runs of the segments of one index; None: one has another form.

        Args:
            table: The rows.
            segments: Those that cover parts of the version.
            parts: All parts of the version.
            paths: The absolute paths of the files of the index.
        """
        by_span = {part.span: part for part in parts}
        runs: list[LanceValueRun] = []
        for number, segment in enumerate(segments):
            mine = {path.rpartition("/")[2]: path for path in paths if segment.id in path}
            with self._data.reading(self._folder):
                lookup = _lookup(mine, self._data.opened_file)
            if lookup is None:
                return None
            opened = self._opener(number, mine[_DATA])
            covered = [by_span[span] for span in segment.covered]
            runs.append(LanceValueRun(self._data, self._folder, lookup, opened, covered))
        column = segments[0].columns[0]
        return runs if all(_is_of(run, table, column) for run in runs) else None

    def _opener(self, number: int, path: str) -> Callable[[], Any]:
        key = self._owner, number, (path,)
        return lambda: self._data.sessions.get(key, lambda: self._data.opened_file(path))


def _is_of(run: LanceValueRun, table: PinnedTable, column: str) -> bool:
    """Say whether the first values of a run are those of their rows."""
    if not run.rows:
        return True
    values, positions = run.read(0, min(run.rows, _COMPARED))
    is_there = positions >= 0
    found = table.take(positions[is_there], [column]).column(0).combine_chunks()
    return values.filter(pa.array(is_there)).equals(found)


def _lookup(paths: Mapping[str, str], opened: Callable[[str], Any]) -> Lookup | None:
    """Return what a segment with some files, by their names, says of its pages."""
    if not {_DATA, _LOOKUP} <= set(paths):
        return None
    data, pages = opened(paths[_DATA]), opened(paths[_LOOKUP])
    metadata = pages.metadata().schema.metadata or {}
    rows, page_rows = data.num_rows(), int(metadata.get(b"batch_size", 0))
    is_known = (
        data.metadata().schema.names == ["values", "ids"]
        and {"max", "null_count", "page_idx"} <= set(pages.metadata().schema.names)
        and metadata.get(b"range_partitioned", b"false") == b"false"
        and page_rows > 0
        and pages.num_rows() == -(-rows // page_rows)
    )
    if not is_known or not rows:
        return None
    table = pages.read_all().to_table().combine_chunks()
    nulls, numbers = table.column("null_count").to_numpy(), table.column("page_idx").to_numpy()
    greatest: Any = table.column("max").combine_chunks()
    has_order = (
        (numbers == np.arange(len(numbers))).all()
        and (nulls[1:] <= nulls[:-1]).all()
        and not pc.greater(greatest[:-1], greatest[1:]).true_count
    )
    return Lookup(rows, int(nulls.sum()), page_rows, greatest) if has_order else None
