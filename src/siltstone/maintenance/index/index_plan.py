"""Index plan: the indexes that a base should have, the rows they lack, and the segments to build.

An index of a base consists of index segments, each over some of its parts. A merge or an optimize
rewrites parts, which no segment covers until one is built over them. So indexes lag; they never
change results, because a scan reads the rows that they do not cover.

A task writes files that nothing names before the publish, so any process that sees the store may
run it, also twice. A large one is shared out as several, over disjoint parts: a search looks into
each segment, so there are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import msgspec

from siltstone.choices import Encoding, IndexKind
from siltstone.engine.catalog import catalog as catalogs
from siltstone.errors import RequestError
from siltstone.formats.manifest import (
    Index,
    IndexOption,
    KeyedStorage,
    Pin,
    Record,
    TableDefinition,
)
from siltstone.storage.site import site_of
from siltstone.storage.tables.tables import PinnedTable, TableIndexer, TableReader
from siltstone.storage.tables.values import BuiltSegment, IndexSpec, Segment, Span

SEGMENTS_MAX = 8
SEGMENT_RATIO = 2
"""Where there are too many segments, one goes if it has at most so many times the rows below it.

So large segments are left alone until their neighbours have half of their rows.
"""
LAG_SHARE, SEARCHED_LAG_SHARE = 0.2, 0.01
"""A merge builds what an index lacks from such shares of base on. A search looks at each row that
an index of vectors or texts lacks, so these are few (ADR 58)."""
_SEARCHED = ("vector", "fts")
SHARE_ROWS, SHARES_MAX = 1 << 20, 4
"""A task that is shared out becomes at most so many, of at least so many rows each. They may come
on top of `SEGMENTS_MAX` - 1 others; the next build then replaces the small ones."""


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """An index of a table: its segments, and the numbers of rows of base that it lacks and has.

    Hidden rows, and rows that are not merged, are no rows of base.
    `encoding` is how the first segment of a vector index keeps vectors; None: it has none. `recall`
    is the share of the ten nearest rows that it found when half of base or more was built.

    Examples:
        >>> orders.create_index("amount").lagging_rows
        0
    """

    name: str
    column: str
    kind: str
    options: dict[str, IndexOption]
    segments: int
    nbytes: int
    lagging_rows: int
    indexed_rows: int = 0
    encoding: Encoding | None = None
    recall: float | None = None

    def __str__(self) -> str:
        lag = f", {self.lagging_rows} rows behind" if self.lagging_rows else ""
        recall = "" if self.recall is None else f", recall {self.recall:.3f}"
        return f"{self.name} ({self.kind} of {self.column}{recall}{lag})"


class Unfit(msgspec.Struct, frozen=True):
    """No segment: the rows do not fit the index, for the reason given. Pickles."""

    reason: str


@dataclass(frozen=True, slots=True)
class IndexTask:
    """A segment to build over parts of a base; it replaces those with the ids `gone`. Pickles.

    `is_measured`: it is of vectors, and of so many rows that its recall is measured.
    """

    table: str
    incarnation: int
    pin: Pin
    spec: IndexSpec
    within: tuple[Span, ...]
    gone: tuple[str, ...]
    is_measured: bool = False

    @property
    def rows(self) -> int:
        """The number of rows that it covers."""
        return _rows(self.within)

    def run(self, path: str, *, verify: str = "first_use") -> BuiltSegment | Unfit:
        """Run the task in this process, with the store at `path`.

        Raises:
            CorruptionError: An input is damaged.
            UnavailableError: The file system refuses; the written files are garbage.
        """
        return self.run_on(site_of(path, verify).tables.indexer)

    def run_on(self, indexer: TableIndexer) -> BuiltSegment | Unfit:
        """Run the task with open tables."""
        try:
            return indexer.build(self.pin, self.spec, self.within)
        except RequestError as error:  # of its values: too few to train on, for one
            return Unfit(str(error))

    def shares(self) -> tuple[IndexTask, ...]:
        """Return the tasks that build what this one does; it is one of them if it is small."""
        count = min(SHARES_MAX, self.rows // SHARE_ROWS, len(self.within))
        if count < 2:
            return (self,)
        shares = [list[Span]() for _ in range(count)]
        before = 0
        for span in self.within:
            shares[before * count // self.rows].append(span)
            before += span[1] - span[0]
        return tuple(replace(self, within=tuple(spans)) for spans in shares if spans)


Execute = Callable[[Sequence[IndexTask]], Iterable[BuiltSegment | Unfit]]


def living(record: Record) -> tuple[Index, ...]:
    """Return the declared indexes whose table and column exist."""
    return tuple(index for index in record.indexes if _is_living(record, index))


def _is_living(record: Record, index: Index) -> bool:
    table = catalogs.by_id(record.catalog, index.table)
    if table is None or not catalogs.is_alive(table):
        return False
    return any(column.id == index.column for column in catalogs.schema_of(table).columns)


def declared_on(record: Record, table: int) -> list[Index]:
    """Return the existing indexes of one table, by name."""
    found = [index for index in living(record) if index.table == table]
    return sorted(found, key=lambda index: index.name)


def stored_name(index: Index) -> str:
    """Return the name of the index in the dataset, which no other index ever has."""
    return f"{index.name}.{index.declared}"


def wanted(record: Record, table: TableDefinition, storage: KeyedStorage) -> list[IndexSpec]:
    """Return the indexes that a base should have, with its names of the columns."""
    schema = catalogs.schema_by_id(table, storage.base_schema)
    names = {column.id: column.name for column in schema.columns}
    return [
        IndexSpec(
            stored_name(index), names[index.column], cast("IndexKind", index.kind), index.options
        )
        for index in declared_on(record, table.id)
        if index.column in names  # else it was added since the last merge
    ]


def tasks_of(
    record: Record,
    table: TableDefinition,
    storage: KeyedStorage,
    opened: PinnedTable,
    *,
    is_urgent: bool,
) -> Iterator[IndexTask]:
    """Yield the tasks that update the indexes of a base that lack some of its rows.

    An index is rebuilt completely if it lacks half of the rows.
    `is_urgent`: only indexes that lack `LAG_SHARE` of the rows, of vectors and texts more than
    `SEARCHED_LAG_SHARE`.
    """
    spans = tuple(span for span in opened.spans if span[0] < span[1])
    name = catalogs.name_of(table)
    for spec in wanted(record, table, storage):
        mine = [segment for segment in opened.segments if segment.index == spec.name]
        lacking = _lacking(spans, mine)
        lag = _rows(lacking)
        if not lag or (is_urgent and not _is_urgent(spec, lag / opened.rows)):
            continue
        gone = _outgrown(mine, lag, is_whole=2 * lag >= opened.rows)
        covered = {span for segment in gone for span in segment.covered}
        within = tuple(span for span in spans if span in covered or span in lacking)
        ids = tuple(segment.id for segment in gone)
        is_measured = spec.kind == "vector" and 2 * _rows(within) >= opened.rows
        yield IndexTask(name, storage.incarnation, opened.pin, spec, within, ids, is_measured)


def _is_urgent(spec: IndexSpec, share: float) -> bool:
    return share > SEARCHED_LAG_SHARE if spec.kind in _SEARCHED else share >= LAG_SHARE


def _outgrown(mine: Sequence[Segment], lag: int, *, is_whole: bool) -> list[Segment]:
    """Return the segments that a new one over `lag` rows more replaces.

    All (`is_whole`), or those that cover nothing any more, and the smallest ones if there would be
    more than `SEGMENTS_MAX`.
    """
    if is_whole:
        return list(mine)
    found = [segment for segment in mine if not segment.covered]
    left = sorted((s for s in mine if s.covered), key=lambda segment: _rows(segment.covered))
    is_full, rows = len(left) >= SEGMENTS_MAX, lag
    while is_full and left:
        size = _rows(left[0].covered)
        if size > SEGMENT_RATIO * rows and len(left) < SEGMENTS_MAX:
            break
        found.append(left.pop(0))
        rows += size
    return found


def unwanted(
    record: Record, table: TableDefinition, storage: KeyedStorage, opened: PinnedTable
) -> list[str]:
    """Return the ids of the segments of a base that no index of the table needs."""
    if not opened.segments:
        return []
    names = {spec.name for spec in wanted(record, table, storage)}
    return [segment.id for segment in opened.segments if segment.index not in names]


def statuses(
    record: Record, table: TableDefinition, storage: KeyedStorage | None, tables: TableReader
) -> list[IndexStatus]:
    """Return the indexes of a table, also unbuilt ones."""
    schema = catalogs.schema_of(table)
    names = {column.id: column.name for column in schema.columns}
    opened = None
    if storage is not None and storage.base is not None:
        opened = tables.open(storage.base)
    found = list[IndexStatus]()
    for index in declared_on(record, table.id):
        if index.column in names:  # the definition may be newer than the record
            about = (index.name, names[index.column], index.kind, dict(index.options))
            found.append(index_status(about, opened, stored_name(index), index.recall))
    return found


def index_status(
    about: tuple[str, str, str, dict[str, IndexOption]],
    opened: PinnedTable | None,
    stored: str,
    recall: float | None = None,
) -> IndexStatus:
    """Return the state of an index, whose segments have the name `stored`.

    `about`: its name, column, kind and options. `opened`: None, where the table has no rows.
    """
    if opened is None:
        return IndexStatus(*about, 0, 0, 0, recall=recall)
    mine = [segment for segment in opened.segments if segment.index == stored]
    nbytes, lag = sum(segment.nbytes for segment in mine), lag_of(opened, mine)
    encoding = mine[0].encoding if mine else None
    return IndexStatus(*about, len(mine), nbytes, lag, opened.pin.rows - lag, encoding, recall)


def _lacking(spans: Sequence[Span], segments: Sequence[Segment]) -> tuple[Span, ...]:
    covered = {span for segment in segments for span in segment.covered}
    return tuple(span for span in spans if span not in covered)


def _rows(spans: Sequence[Span]) -> int:
    return sum(end - first for first, end in spans)


def lag_of(opened: PinnedTable, segments: Sequence[Segment]) -> int:
    """Return how many rows, hidden ones left out, the segments of an index do not cover."""
    lacking = _lacking(opened.spans, segments)
    return sum(int(opened.live.bools(*span).sum()) for span in lacking)
