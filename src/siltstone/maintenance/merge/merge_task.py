"""Merge task: some rows of the next base, written by any process that sees the store.

    survivors    the remaining rows of parts of the old base that lose a row, or are small
    live rows    the newest versions in un-merged history

A task stages its rows on the old base's pin; nothing names them before the publish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.engine.catalog.table_schema import TableSchema, aligned
from siltstone.engine.levels.history_run import HistoryRun
from siltstone.formats.manifest import Pin
from siltstone.storage.site import site_of
from siltstone.storage.tables.store_tables import Tables
from siltstone.storage.tables.values import Span, StagedFiles

ROWS_MAX = 1 << 20


class MergeTask(msgspec.Struct, frozen=True):
    """Stage, upon the base `pin`, rows of the parts [first, end) of `source`. Pickles.

    `kept` has a bit per row: whether to write it. `stored` are the names in the source of the
    columns `fields` of base; one that the source lacks (None) has its initial value.
    """

    pin: Pin
    source: Pin
    within: tuple[int, int]
    kept: bytes
    stored: tuple[str | None, ...]
    fields: pa.Schema

    def run(self, path: str, *, verify: str = "first_use") -> StagedFiles:
        """Run the task in this process, with the store at `path`.

        Raises:
            CorruptionError: An input is damaged.
            UnavailableError: The file system refuses; the written files are garbage.
        """
        return self.run_on(site_of(path, verify).tables)

    def run_on(self, tables: Tables) -> StagedFiles:
        """Run the task with open tables."""
        return tables.writer.stage(self.pin, self._rows(tables))

    def _rows(self, tables: Tables) -> Iterator[pa.RecordBatch]:
        names = [name for name in self.stored if name is not None]
        bits = np.frombuffer(self.kept, np.uint8)
        mask = np.unpackbits(bits, count=self.within[1] - self.within[0]).view(bool)
        start = 0
        opened = tables.reader.open(self.source)
        for batch in opened.scan(names, within=self.within, with_hidden=True):
            end = start + batch.num_rows
            kept = batch.filter(pa.array(mask[start:end]))
            start = end
            if kept.num_rows:
                arrays = aligned(kept, self.stored, self.fields)
                yield pa.RecordBatch.from_arrays(arrays, names=self.fields.names)


Execute = Callable[[Sequence[MergeTask]], Iterable[StagedFiles]]


def survivors(
    pin: Pin, table_schema: TableSchema, gone: Sequence[Span], drop: np.ndarray
) -> Iterator[MergeTask]:
    """Plan the rows of the parts `gone` without the positions `drop` (ascending)."""
    names, fields = tuple(table_schema.arrow.names), table_schema.arrow
    for span, kept in _chosen(gone, drop, are_kept=False):
        yield MergeTask(pin, pin, span, kept, names, fields)


def live_rows(
    pin: Pin, table_schema: TableSchema, run: HistoryRun, ordinals: np.ndarray
) -> Iterator[MergeTask]:
    """Plan the rows of un-merged history at `ordinals` (ascending)."""
    source, positions = run.table, run.positions_of(ordinals)
    stored, fields = run.stored(table_schema, table_schema.arrow.names), table_schema.arrow
    for span, kept in _chosen(source.spans, positions, are_kept=True):
        yield MergeTask(pin, source.pin, span, kept, stored, fields)


def _chosen(
    spans: Sequence[Span], positions: np.ndarray, *, are_kept: bool
) -> Iterator[tuple[Span, bytes]]:
    """Yield spans, and as bits which of their rows: those at some positions, or all others.

    The positions ascend. Spans without such a row are left out.
    """
    for first, end in _grouped(spans):
        low, high = positions.searchsorted((first, end))
        mask = np.full(end - first, not are_kept)
        mask[positions[low:high] - first] = are_kept
        if mask.any():
            yield (first, end), np.packbits(mask).tobytes()


def _grouped(spans: Sequence[Span]) -> list[Span]:
    """Join adjacent spans as long as they have at most `ROWS_MAX` rows together."""
    found: list[Span] = []
    for first, end in spans:
        if found and found[-1][1] == first and end - found[-1][0] <= ROWS_MAX:
            found[-1] = (found[-1][0], end)
        else:
            found.append((first, end))
    return found
