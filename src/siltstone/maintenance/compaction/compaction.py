"""Compaction: the plan of an optimize, its tasks, and the results as lines of a job's record.

It chooses adjacent parts of a dataset to rewrite as one:

    every        all small parts, in runs of up to `target_rows`: for a manual optimize
    worn         a part of which other clients deleted a tenth of the rows, also alone
    by tiers     a large part is left alone until the parts after it justify a rewrite: automatic
                 (`tiers`)

Parts are joined only within one coverage by segments of texts and vectors: their rows keep their
row ids, so such a segment stays right, and none is built again because of an optimize. Of a plain
table, whose indexes are declared nowhere, also within one by segments of values: these would go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, TypeVar

import msgspec

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import TableSchema, table_schema_of
from siltstone.formats.manifest import Catalog, Pin, Record, TableDefinition
from siltstone.maintenance.index.indexer import CaughtUp
from siltstone.maintenance.index.plain_indexes import Renewed
from siltstone.maintenance.merge.merge import Deferred, Merged, candidates
from siltstone.maintenance.tiers import filled, small_runs, tiers
from siltstone.storage.site import site_of
from siltstone.storage.tables.jobs import SeenJob
from siltstone.storage.tables.store_tables import Tables
from siltstone.storage.tables.tables import PinnedTable, TableReader
from siltstone.storage.tables.values import Compacted, put_fitting

TARGET_ROWS = 1 << 20
CONTENDED_MAX = 4 << 20
"""Parts x rows of a task next to a writer that changes parts: about 4 parts for a second."""

Level = Literal["base", "history", "plain"]
Place = tuple[int, Level]
"""An incarnation, and one of its datasets; a plain table has one."""
Span = tuple[int, int]


class CompactTask(msgspec.Struct, frozen=True):
    """Some adjacent parts of a pin, to be rewritten as one. Pickles."""

    table: str
    place: Place
    pin: Pin
    within: Span
    parts: int

    @property
    def rows(self) -> int:
        """The number of rows that it writes."""
        return self.within[1] - self.within[0]

    @property
    def is_plain(self) -> bool:
        """Whether its table is plain."""
        return self.place[1] == "plain"

    def run(self, path: str, *, verify: str = "first_use") -> Compacted:
        """Run the task in this process, with the store at `path`.

        Raises:
            CorruptionError: An input is damaged.
            UnavailableError: The file system refuses; the written files are garbage.
        """
        compactor = site_of(path, verify).tables.compactor
        return compactor.compact(self.pin, self.within)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The target size of parts, and whether large ones are left alone (`by_tiers`).

    `is_contended`: another writer changes parts meanwhile, and one changed part makes a task
    useless. Then tasks have few parts and are short: small parts become large ones in several
    steps.
    """

    target_rows: int = TARGET_ROWS
    by_tiers: bool = False
    is_contended: bool = False

    def groups(self, spans: Sequence[Span], worn: Sequence[Span] = ()) -> Iterator[Sequence[Span]]:
        """Yield the runs of parts to join, in row order; then each `worn` part alone."""
        left = dict.fromkeys(worn)
        for run in small_runs(spans, self.target_rows):
            for tier in tiers(run) if self.by_tiers else (run,):
                for group in filled(tier, self._is_full):
                    for span in group:
                        left.pop(span, None)
                    yield group
        yield from ([span] for span in left)

    def _is_full(self, parts: int, rows: int) -> bool:
        return rows >= self.target_rows or (self.is_contended and parts * rows >= CONTENDED_MAX)


def planned(
    record: Record, tables: TableReader, wanted: int | None, sizes: Sizes
) -> list[CompactTask]:
    """Return the tasks of the bases and histories of a record, or of the table with an id."""
    found: list[CompactTask] = []
    for table, storage in candidates(record, wanted):
        name, number = catalogs.name_of(table), storage.incarnation
        if storage.base is not None:
            found += _tasks(name, (number, "base"), storage.base, tables, sizes)
        if storage.history is not None:
            found += _tasks(name, (number, "history"), storage.history, tables, sizes)
    return found


def planned_plain(
    catalog: Catalog, tables: TableReader, wanted: int | None, sizes: Sizes
) -> list[CompactTask]:
    """Return the tasks of the newest versions of plain tables, or of the one with an id."""
    found: list[CompactTask] = []
    for table in _plain_tables(catalog):
        incarnation = catalogs.incarnation_of(table)
        called, version = catalogs.name_of(table), catalogs.version_of(incarnation)
        if version is not None and wanted in (None, table.id):
            found += _tasks(called, (incarnation.id, "plain"), version.pin, tables, sizes)
    return found


def plain_pin(catalog: Catalog, incarnation: int) -> Pin | None:
    """Return the newest version of a plain table; None if it is dropped, or has none."""
    steps = (catalogs.incarnation_of(table) for table in _plain_tables(catalog))
    versions = (catalogs.version_of(step) for step in steps if step.id == incarnation)
    version = next(versions, None)
    return None if version is None else version.pin


def has_plain(catalog: Catalog) -> bool:
    """Return whether there is any plain table."""
    return any(True for _ in _plain_tables(catalog))


def _plain_tables(catalog: Catalog) -> Iterator[TableDefinition]:
    for table in catalog.tables:
        if catalogs.is_alive(table) and not catalogs.schema_of(table).key:
            yield table


def _tasks(
    name: str, place: Place, pin: Pin, tables: TableReader, sizes: Sizes
) -> Iterator[CompactTask]:
    opened = tables.open(pin)
    worn = set(opened.worn)
    for run in _joinable(opened, keeps_all=place[1] == "plain"):
        for group in sizes.groups(run, [span for span in run if span in worn]):
            within = (group[0][0], group[-1][1])
            yield CompactTask(name, place, pin, within, len(group))


def _joinable(opened: PinnedTable, *, keeps_all: bool) -> Iterator[Sequence[Span]]:
    """Yield the runs of adjacent parts that may become one.

    No row of them is hidden: a merge rewrites the others. The same segments of texts and vectors,
    with `keeps_all` of values, too, cover all of them, so that these stay, and none would be wrong.
    """
    live = opened.live
    search = [segment for segment in opened.segments if segment.is_for_search]
    tied = {span for segment in search for span in segment.tied}

    def coverage(span: Span) -> frozenset[str] | None:
        if span in tied or not live.bools(*span).all():
            return None
        kept = opened.segments if keeps_all else search
        return frozenset(segment.id for segment in kept if span in segment.covered)

    for covers, run in groupby(opened.spans, key=coverage):
        if covers is not None:
            yield list(run)


@dataclass(frozen=True, slots=True)
class Optimized:
    """The result of an optimize: its tables (by name), the numbers of files before and after.

    It built `segments` of indexes, over `indexed_rows`. It was planned again for each of `replans`,
    which say why: other writers came first.

    Examples:
        >>> db.checkpoint() and db.optimize().files_before
        0
    """

    tables: tuple[str, ...]
    files_before: int
    files_after: int
    rows: int
    segments: int = 0
    indexed_rows: int = 0
    replans: tuple[str, ...] = ()


NOTHING = Optimized((), 0, 0, 0)
_Done = TypeVar("_Done", Merged, Optimized, CaughtUp)


def called(done: _Done | Deferred, name: str | None) -> _Done | Deferred:
    """Return the result for one table, with the name that the caller used.

    The record may have an older name of the table.
    """
    if name is None or isinstance(done, Deferred) or not done.tables:
        return done
    return replace(done, tables=(name,))


class Finished(msgspec.Struct, frozen=True):
    """A finished task, as in a line of its job's record."""

    task: CompactTask
    result: Compacted

    def encode(self) -> bytes:
        """Return the line."""
        return msgspec.json.encode(self)


def read(seen: SeenJob) -> list[Finished]:
    """Return the finished tasks of a job whose lines this siltstone understands."""
    found: list[Finished] = []
    for line in seen.finished:
        try:
            found.append(msgspec.json.decode(line, type=Finished))
        except msgspec.MsgspecError:
            break
    return found


def by_place(finished: Sequence[Finished]) -> Mapping[Place, list[Finished]]:
    """Return the finished work by dataset."""
    found: dict[Place, list[Finished]] = {}
    for one in finished:
        found.setdefault(one.task.place, []).append(one)
    return found


def optimized(finished: Sequence[Finished]) -> Optimized:
    """Return the result, if all tasks were published."""
    return Optimized(
        tuple(sorted({one.task.table for one in finished})),
        sum(one.task.parts for one in finished),
        sum(len(one.result.fragments) for one in finished),
        sum(one.task.rows for one in finished),
    )


def total_of(one: Optimized, other: Optimized) -> Optimized:
    """Return the sum of two results."""
    return Optimized(
        tuple(sorted({*one.tables, *other.tables})),
        one.files_before + other.files_before,
        one.files_after + other.files_after,
        one.rows + other.rows,
        one.segments + other.segments,
        one.indexed_rows + other.indexed_rows,
        (*one.replans, *other.replans),
    )


def with_renewed(total: Optimized, renewed: Sequence[Renewed]) -> Optimized:
    """Return the result, with indexes of plain tables that were built again."""
    names = tuple(sorted({*total.tables, *(one.table for one in renewed)}))
    rows = sum(one.rows for one in renewed)
    return replace(total, tables=names, segments=len(renewed), indexed_rows=rows)


def fitting_of(
    tables: Tables, now: Record, finished: Sequence[Finished]
) -> tuple[dict[Place, Pin], list[Finished]]:
    """Return the pins with the fitting tasks applied, and these tasks; bases with key runs."""
    pins: dict[Place, Pin] = {}
    fitting: list[Finished] = []

    def swap(on: Pin, some: Sequence[Finished]) -> Pin:
        return tables.compactor.swap(on, [one.result for one in some])

    for place, items in by_place(finished).items():
        pin = pin_at(now, place)
        if pin is None:
            continue  # dropped or truncated meanwhile: nothing is left to do
        made, fits = put_fitting(pin, items, swap)
        if fits and place[1] == "base":
            made = tables.keys.cover(made, _base_schema(now, place[0]).codec, in_order=True)
        pins[place] = made
        fitting += fits
    return pins, fitting


def _base_schema(record: Record, incarnation: int) -> TableSchema:
    """Return the schema with which a base is written."""
    table = catalogs.owner_of(record.catalog, incarnation)
    (storage,) = [each for each in record.keyed if each.incarnation == incarnation]
    return table_schema_of(catalogs.schema_by_id(table, storage.base_schema))


def pin_at(record: Record, place: Place) -> Pin | None:
    """Return a record's pin of a dataset; None if the table is dropped, or has none."""
    incarnation, level = place
    storage = next((s for s in record.keyed if s.incarnation == incarnation), None)
    if storage is None:
        return None
    return storage.base if level == "base" else storage.history


def with_pins(record: Record, pins: Mapping[Place, Pin]) -> Record:
    """Return the record with other bases and histories."""
    keyed = tuple(
        msgspec.structs.replace(
            storage,
            base=pins.get((storage.incarnation, "base"), storage.base),
            history=pins.get((storage.incarnation, "history"), storage.history),
        )
        for storage in record.keyed
    )
    return msgspec.structs.replace(record, keyed=keyed)
