"""Scan task: some rows of a table at one seq, as a value that any process can read by itself.

    rows of a pin    the rows [first, end) of one version of a dataset, all or a selection of them:
                     whole parts, or a range of one part
    inline rows      Arrow IPC: rows that only the log and the planner's memory had

A task pickles, and needs only the store's path from the process that planned it. While it reads, it
leases the record of its files, as any reader does. Between planning and reading only the retention
keeps the files (for an unflushed bulk commit: the grace period), so a task that runs too late
raises `SnapshotExpiredError`; it never returns fewer rows.

Lock: none.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.catalog.table_schema import aligned
from siltstone.engine.filter.filters import Filter, filter_of
from siltstone.engine.levels.chunk import batch_of
from siltstone.engine.levels.history_run import are_few
from siltstone.engine.levels.kept_batches import batches_kept
from siltstone.errors import CorruptionError, SnapshotExpiredError
from siltstone.formats.conversion.arrow_stream import packed
from siltstone.formats.manifest import Pin
from siltstone.formats.types.blobs import is_blob
from siltstone.formats.types.widening import is_pair
from siltstone.storage.manifest.manifest_store import Lease, ManifestStore
from siltstone.storage.site import site_of
from siltstone.storage.tables.tables import PinnedTable, TableReader
from siltstone.storage.tables.values import POSITION, Span


@dataclass(frozen=True, slots=True)
class Positions:
    """Some of `span` rows, by offset: as bits or as ascending uint32, the smaller form."""

    span: int
    count: int
    is_bits: bool
    data: bytes

    @classmethod
    def of(cls, offsets: np.ndarray, span: int) -> Positions:
        """Return the positions of ascending `offsets`, each in [0, span)."""
        if len(offsets) * 32 > span:
            mask = np.zeros(span, bool)
            mask[offsets] = True
            return cls(span, len(offsets), is_bits=True, data=np.packbits(mask).tobytes())
        return cls(span, len(offsets), is_bits=False, data=offsets.astype("<u4").tobytes())

    def mask(self) -> np.ndarray:
        """Return for each row whether it is included."""
        if self.is_bits:
            return np.unpackbits(np.frombuffer(self.data, np.uint8), count=self.span).view(bool)
        mask = np.zeros(self.span, bool)
        mask[np.frombuffer(self.data, "<u4")] = True
        return mask

    def offsets(self) -> np.ndarray:
        """Return the ascending offsets."""
        return np.flatnonzero(self.mask())


@dataclass(frozen=True, slots=True)
class PinnedRows:
    """Rows [first, end) of a pin: those `kept`, or (None) all but those `dropped`.

    `stored` are the dataset's names of the columns; None: it lacks the column, all values are null.
    `records` are leased while reading; `is_named`: they name the pin, so its files exist.
    """

    pin: Pin
    first: int
    end: int
    kept: Positions | None
    dropped: Positions | None
    stored: tuple[str | None, ...]
    records: tuple[int, ...]
    is_named: bool

    def scan(
        self, table: PinnedTable, fields: pa.Schema, wanted: Filter | None
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows as batches of `fields`, perhaps with rows that `wanted` does not keep."""
        names = [name for name in self.stored if name is not None]
        kept = self.kept
        if kept is not None and are_few(kept.count, kept.span):
            return self._aligned(self._taken(table, kept, names), fields)
        kinds = table.schema
        known = {
            field.name: name
            for field, name in zip(fields, self.stored, strict=True)
            if name and not is_blob(field) and not is_pair(kinds.field(name).type, field.type)
        }
        prefilter = None if wanted is None else wanted.prefilter(known)
        mask = self._mask()
        pieces = [
            table.scan(
                names,
                prefilter=prefilter,
                positions=prefilter is not None and mask is not None,
                within=piece,
                with_hidden=True,  # they are among those dropped
            )
            for piece in self._pieces(table.spans)
        ]
        batches = itertools.chain.from_iterable(pieces)
        if mask is not None and prefilter is None:
            batches = batches_kept(batches, pa.array(mask))
        elif mask is not None:
            batches = self._by_position(batches, mask)
        return self._aligned(batches, fields)

    def between(self, first: int, end: int) -> PinnedRows:
        """Return those of the rows that come first to before end-th, counted from 0."""
        mask = self._mask()
        if mask is None:
            return replace(self, first=self.first + first, end=self.first + end)
        shown = np.flatnonzero(mask)[first:end]
        low, high = int(shown[0]), int(shown[-1]) + 1
        if self.kept is not None:
            here = replace(self, kept=Positions.of(shown - low, high - low))
        else:
            gone = np.flatnonzero(~mask[low:high])
            here = replace(self, dropped=Positions.of(gone, high - low) if len(gone) else None)
        return replace(here, first=self.first + low, end=self.first + high)

    def _pieces(self, spans: Sequence[Span]) -> list[Span]:
        """Cut the rows at the first and the last bound of parts among them.

        A scan takes whole parts, or rows of one.
        """
        bounds = [first for first, _ in spans] + [end for _, end in spans[-1:]]
        low, high = bisect_left(bounds, self.first), bisect_right(bounds, self.end) - 1
        if low > high:  # all inside of one part
            return [(self.first, self.end)]
        cuts = itertools.pairwise((self.first, bounds[low], bounds[high], self.end))
        return [(first, end) for first, end in cuts if first < end]

    def _taken(
        self, table: PinnedTable, kept: Positions, names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        if not names:
            return iter([batch_of([], pa.schema([]), kept.count)])
        taken = table.take(kept.offsets() + self.first, names)
        return iter(taken.combine_chunks().to_batches())

    def _mask(self) -> np.ndarray | None:
        if self.kept is not None:
            return self.kept.mask()
        return None if self.dropped is None else ~self.dropped.mask()

    def _by_position(
        self, batches: Iterator[pa.RecordBatch], mask: np.ndarray
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            at = batch.column(POSITION).to_numpy() - self.first
            yield batch.drop_columns([POSITION]).filter(pa.array(mask[at]))

    def _aligned(
        self, batches: Iterator[pa.RecordBatch], fields: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch_of(aligned(batch, self.stored, fields), fields, batch.num_rows)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ScanTask:
    """Some rows of one table at one seq; plan them with `Snapshot.scan_tasks`.

    `rows` is the maximum number of rows, exact without a filter. Together the tasks of a plan
    return every row once, in no order.

    Examples:
        >>> with db.snapshot() as past:
        ...     tasks = past.scan_tasks("events")
        >>> sum(batch.num_rows for task in tasks for batch in task.read())
        3
    """

    root: str
    verify: str
    table: str
    seq: int
    columns: tuple[str, ...]
    filter: str | pc.Expression | None
    fields: pa.Schema
    source: PinnedRows | bytes
    rows: int

    def __repr__(self) -> str:
        kind = "in hand" if isinstance(self.source, bytes) else self.source.pin.path
        return f"<ScanTask {self.table!r} at seq {self.seq}: {self.rows} rows, {kind}>"

    @property
    def is_above_base(self) -> bool:
        """Whether the rows are not merged into the table's base: of history, or in hand."""
        return isinstance(self.source, bytes) or self.source.kept is not None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the batches."""
        return pa.schema([self.fields.field(name) for name in self.columns])

    def between(self, first: int, end: int) -> ScanTask:
        """Return the rows that `read` returns first to before end-th, counted from 0.

        Args:
            first: From 0, below `end`.
            end: At most `rows`. The task has no filter.
        """
        if (first, end) == (0, self.rows):
            return self
        source = self.source
        if isinstance(source, PinnedRows):
            return replace(self, rows=end - first, source=source.between(first, end))
        rows = pa.ipc.open_stream(source).read_all().slice(first, end - first)
        return replace(self, rows=end - first, source=packed(rows.schema, rows.to_batches()))

    def read(self) -> Iterator[pa.RecordBatch]:
        """Return the rows, batch by batch; call it in any process that sees the store's path.

        The files are opened and leased before it returns; the lease ends with the iterator.

        Raises:
            SnapshotExpiredError: The store no longer keeps the seq of the task.
            CorruptionError, UnavailableError, RequestError: As in any read.
        """
        site = site_of(self.root, self.verify)
        return self.read_through(site.manifests, site.tables.reader)

    def read_through(
        self, manifests: ManifestStore, tables: TableReader
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows through these parts of an open store; see `read`."""
        if isinstance(self.source, bytes):
            return self._in_hand(self.source)
        source, wanted = self.source, filter_of(self.filter, self.fields)
        leases = [self._leased(manifests, number) for number in source.records]
        with self._expiring(manifests, tables, source):
            opened = tables.open(source.pin)
            batches = source.scan(opened, self.fields, wanted)
        expiring = self._expiring(manifests, tables, source)
        return self._shown(batches, wanted, expiring, leases)

    def _in_hand(self, rows: bytes) -> Iterator[pa.RecordBatch]:
        stream = pa.ipc.open_stream(rows)
        shown = list(self.columns)
        return iter(stream) if stream.schema.names == shown else (b.select(shown) for b in stream)

    def _shown(
        self,
        batches: Iterator[pa.RecordBatch],
        wanted: Filter | None,
        expiring: AbstractContextManager[None],
        leases: list[Lease],
    ) -> Iterator[pa.RecordBatch]:
        shown, is_all = list(self.columns), len(self.columns) == len(self.fields)
        with expiring:
            for batch in batches:
                kept = batch if wanted is None else wanted.keep(batch)
                if kept.num_rows:
                    yield kept if is_all else kept.select(shown)
        for lease in leases:
            lease.release()

    def _leased(self, manifests: ManifestStore, number: int) -> Lease:
        """Lease a record; below FLOOR too: one that is there under a lease has all its files."""
        lease = manifests.lease(number, below_floor=True)
        if lease is None:
            raise self._expired(manifests)
        return lease

    @contextmanager
    def _expiring(
        self, manifests: ManifestStore, tables: TableReader, source: PinnedRows
    ) -> Generator[None]:
        """Tell files that vacuum took from damaged ones: a lease keeps what its record names."""
        try:
            yield
        except CorruptionError as error:
            if source.is_named or not _is_gone(tables, source):
                raise
            raise self._expired(manifests) from error

    def _expired(self, manifests: ManifestStore) -> SnapshotExpiredError:
        newest = manifests.newest()
        wanted = f"seq {self.seq} (a part of {self.table!r} that was planned earlier)"
        return SnapshotExpiredError(wanted, newest.oldest_seq, newest.last_seq)


def _is_gone(tables: TableReader, source: PinnedRows) -> bool:
    try:
        tables.check(source.pin)
    except CorruptionError as error:
        return isinstance(error.__cause__, FileNotFoundError)
    return False
