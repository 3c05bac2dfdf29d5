"""Compaction: chooses adjacent parts of a dataset to rewrite as one; the plan of an optimize.

    every        all small parts, in runs of up to `target_rows`: for a manual optimize
    worn         a part of which other clients deleted a tenth of the rows, also alone
    by tiers     a large part is left alone until the parts after it justify a rewrite: automatic

By tiers, a part joins the ones after it when it has at most `TIER_RATIO` times their rows. So each
rewrite of a row makes its part larger by half or more: a row of a history that ends up in parts of
n rows is rewritten at most log(n) / log(1.5) times, however small the new parts are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.read.reader import plain_folder
from siltstone.formats.manifest import Catalog, KeyedStorage, Pin, Record, TableDefinition
from siltstone.maintenance.merge.merge import candidates
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.tables.tables import Compacted, TableReader

TARGET_ROWS = 1 << 20
TIER_RATIO = 2
CONTENDED_MAX = 4 << 20
"""Parts x rows of a task next to a writer that changes parts: about 4 parts for a second."""
_FOLDERS = {"base": "base", "history": ".history"}

Level = Literal["base", "history", "plain"]
Place = tuple[int, Level]
"""An incarnation, and one of its datasets; a plain table has one."""
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class CompactTask:
    """Some adjacent parts of a pin, to be rewritten as one. Pickles."""

    table: str
    place: Place
    folder: str
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
        return lance_tables(Path(path), RealFiles(), verify=verify).compactor.compact(
            self.folder, self.pin, self.within
        )


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
                for group in self._filled(tier):
                    for span in group:
                        left.pop(span, None)
                    yield group
        yield from ([span] for span in left)

    def _filled(self, run: Sequence[Span]) -> Iterator[Sequence[Span]]:
        """Cut a run where it has reached `target_rows`; a part alone stays as it is.

        A result is never small again unless there was nothing more to add.
        """
        group: list[Span] = []
        for span in run:
            group.append(span)
            if len(group) > 1 and self._is_full(len(group), span[1] - group[0][0]):
                yield group
                group = []
        if len(group) > 1:
            yield group

    def _is_full(self, parts: int, rows: int) -> bool:
        return rows >= self.target_rows or (self.is_contended and parts * rows >= CONTENDED_MAX)


def planned(
    record: Record, tables: TableReader, wanted: int | None, sizes: Sizes
) -> list[CompactTask]:
    """Return the tasks of the bases and histories of a record, or of the table with an id."""
    found: list[CompactTask] = []
    for table, storage in candidates(record, wanted):
        for level, below in _FOLDERS.items():
            pin = pin_of(storage, level)  # pyright: ignore[reportArgumentType]
            if pin is not None:
                place, folder = (storage.incarnation, level), f"{storage.folder}/{below}"
                found += _tasks(catalogs.name_of(table), place, folder, pin, tables, sizes)  # pyright: ignore[reportArgumentType]
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
            place: Place = (incarnation.id, "plain")
            folder = plain_folder(version.pin)
            found += _tasks(called, place, folder, version.pin, tables, sizes)
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
    name: str, place: Place, folder: str, pin: Pin, tables: TableReader, sizes: Sizes
) -> Iterator[CompactTask]:
    opened = tables.open(folder, pin)
    for group in sizes.groups(opened.spans, opened.worn):
        within = (group[0][0], group[-1][1])
        yield CompactTask(name, place, folder, pin, within, len(group))


def pin_of(storage: KeyedStorage, level: Level) -> Pin | None:
    """Return the dataset of a keyed table at a level."""
    return storage.base if level == "base" else storage.history


def small_runs(spans: Sequence[Span], target_rows: int) -> Iterator[Sequence[Span]]:
    """Yield runs of adjacent small parts: each has below half of `target_rows`."""
    run: list[Span] = []
    for first, end in spans:
        if 2 * (end - first) < target_rows:
            run.append((first, end))
        elif run:
            yield run
            run = []
    if run:
        yield run


def tiers(run: Sequence[Span]) -> Iterator[Sequence[Span]]:
    """Cut a run, from its end, before each part that is too large for the parts after it."""
    end = len(run)
    found: list[Sequence[Span]] = []
    for index in range(len(run) - 1, -1, -1):
        behind = run[end - 1][1] - run[index][1]
        if behind and run[index][1] - run[index][0] > TIER_RATIO * behind:
            found.append(run[index + 1 : end])
            end = index + 1
    yield run[:end]
    yield from reversed(found)
