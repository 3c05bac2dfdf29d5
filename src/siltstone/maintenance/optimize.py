"""Optimize: small files of bases and of histories become large ones; any process, any time.

    read record n ─▶ plan: adjacent small parts, together up to `target_rows`
                  ─▶ tasks: each writes its rows anew, in any process
                  ─▶ publish: put on the pins of the newest record, all at once ─▶ promote

It changes no answer: the same rows in the same order. Whoever published meanwhile is built upon:
what is finished is put on the winner's pins where its inputs are untouched there, and only the rest
is planned again. A crash leaves files that nobody names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from siltstone.engine import catalog as catalogs
from siltstone.errors import RequestError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats.manifest import KeyedStorage, Pin, Record
from siltstone.maintenance.merge import Deferred, candidates
from siltstone.storage.files import RealFiles
from siltstone.storage.lance_io import LanceTables
from siltstone.storage.manifest_store import ManifestStore
from siltstone.storage.tables import Compacted, InputsMovedError, Tables

ATTEMPTS = 8
TARGET_ROWS = 1 << 20
_FOLDERS = {"base": "base", "history": ".history"}

Level = Literal["base", "history"]
Place = tuple[int, Level]


@dataclass(frozen=True, slots=True)
class CompactTask:
    """Some adjacent parts of a pin, to be written anew as one. Pickles."""

    place: Place
    folder: str
    pin: Pin
    within: tuple[int, int]
    parts: int

    @property
    def rows(self) -> int:
        """How many rows it writes."""
        return self.within[1] - self.within[0]

    def run(self, path: str, *, verify: str = "first_use") -> Compacted:
        """Do it in this process, with the store at `path`.

        Raises:
            CorruptionError: An input is damaged.
            UnavailableError: The file system refuses; what was written is garbage.
        """
        return LanceTables(Path(path), RealFiles(), verify=verify).compact(
            self.folder, self.pin, self.within
        )


@dataclass(frozen=True, slots=True)
class Optimized:
    """What an optimize did: in which tables (by name), how many files became how many."""

    tables: tuple[str, ...]
    files_before: int
    files_after: int
    rows: int


Execute = Callable[[Sequence[CompactTask]], Iterable[Compacted]]


class _Plan:
    """The tasks of one record, and what they are about."""

    def __init__(self, record: Record, tables: Tables, name: str | None, target_rows: int) -> None:
        self.names: dict[int, str] = {}
        self.tasks: list[CompactTask] = []
        for table, storage in candidates(record, name):
            self.names[storage.incarnation] = catalogs.name_of(table)
            for level in _FOLDERS:
                self.tasks += _tasks(storage, level, tables, target_rows)  # pyright: ignore[reportArgumentType]


class Optimizer:
    """Optimizes tables of one store. Holds no lock and no state.

    Args:
        promote: Shows a published record's bases to readers of the plain path.
    """

    def __init__(
        self, manifests: ManifestStore, tables: Tables, promote: Callable[[Record], None]
    ) -> None:
        self._manifests, self._tables, self._promote = manifests, tables, promote

    def optimize(
        self,
        table: str | None = None,
        *,
        target_rows: int = TARGET_ROWS,
        attempts: int = ATTEMPTS,
        execute: Execute | None = None,
    ) -> Optimized | Deferred:
        """Optimize one table, or all of them in one publish.

        Args:
            target_rows: How many rows a file should have; parts with less than half are small.
            execute: Runs the tasks and gives their results in the same order; by default here,
                one after the other.

        Raises:
            TableNotFoundError: There is no table of that name in the newest record.
            RequestError: `target_rows` is below 2.
            UnavailableError, CorruptionError: Nothing was changed.
        """
        if target_rows < 2:
            raise RequestError(f"target_rows is at least 2, not {target_rows}")
        run = self._here if execute is None else execute
        total = Optimized((), 0, 0, 0)
        for _ in range(attempts):
            record, lease = self._manifests.lease_newest()
            try:
                cross(Failpoint.OPTIMIZE_BEFORE_PLAN)
                plan = _Plan(record, self._tables, table, target_rows)
                if not plan.tasks:
                    return total
                cross(Failpoint.OPTIMIZE_AFTER_PLAN)
                results = list(zip(plan.tasks, run(plan.tasks), strict=True))
                cross(Failpoint.OPTIMIZE_AFTER_FRAGMENTS)
                total = _sum(total, self._publish(record, plan, results))
            finally:
                lease.release()
        return total if total.files_before else Deferred("other writers won each race", attempts)

    def _here(self, tasks: Sequence[CompactTask]) -> Iterator[Compacted]:
        for task in tasks:
            yield self._tables.compact(task.folder, task.pin, task.within)
            cross(Failpoint.OPTIMIZE_AFTER_TASK)

    def _publish(
        self, record: Record, plan: _Plan, results: Sequence[tuple[CompactTask, Compacted]]
    ) -> Optimized:
        """Publish what fits the newest record; return what was published, maybe nothing."""
        fitting: list[CompactTask] = []

        def change(now: Record) -> Record:
            fitting.clear()
            swapped, fits = self._swapped(now, results)
            fitting.extend(fits)
            if not fits:
                raise InputsMovedError
            cross(Failpoint.OPTIMIZE_BEFORE_PUBLISH)
            return msgspec.structs.replace(
                now, keyed=tuple(_with_pins(storage, swapped) for storage in now.keyed)
            )

        try:
            published = self._manifests.publish(change, base=record)
        except InputsMovedError:
            return Optimized((), 0, 0, 0)
        cross(Failpoint.OPTIMIZE_AFTER_PUBLISH)
        self._promote(published)
        after = {task.place + task.within: len(done.fragments) for task, done in results}
        return Optimized(
            tuple(sorted({plan.names[task.place[0]] for task in fitting})),
            sum(task.parts for task in fitting),
            sum(after[task.place + task.within] for task in fitting),
            sum(task.rows for task in fitting),
        )

    def _swapped(
        self, now: Record, results: Sequence[tuple[CompactTask, Compacted]]
    ) -> tuple[dict[Place, Pin], list[CompactTask]]:
        """Return the pins with what fits them, and the tasks that did."""
        pins: dict[Place, Pin] = {}
        fitting: list[CompactTask] = []
        for place, items in _by_place(results).items():
            pin = _pin(now, place)
            if pin is None:
                continue  # dropped or truncated meanwhile: nothing is left to do
            try:
                pins[place] = self._tables.swap(items[0][0].folder, pin, [c for _, c in items])
                fitting += [task for task, _ in items]
            except InputsMovedError:
                for task, compacted in items:
                    try:
                        pin = self._tables.swap(task.folder, pin, [compacted])
                    except InputsMovedError:
                        continue
                    pins[place] = pin
                    fitting.append(task)
        return pins, fitting


def _tasks(
    storage: KeyedStorage, level: Level, tables: Tables, target_rows: int
) -> Iterator[CompactTask]:
    pin = _pin_of(storage, level)
    if pin is None:
        return
    folder = f"{storage.folder}/{_FOLDERS[level]}"
    for group in groups(tables.open(folder, pin).spans, target_rows):
        within = (group[0][0], group[-1][1])
        yield CompactTask((storage.incarnation, level), folder, pin, within, len(group))


def groups(
    spans: Sequence[tuple[int, int]], target_rows: int
) -> Iterator[Sequence[tuple[int, int]]]:
    """Yield runs of two or more adjacent small parts that together have about `target_rows`.

    A part is small below half of `target_rows`; a run ends before a part that is not, and when it
    has reached the target. A result is never small again unless there was nothing more to add.
    """
    group: list[tuple[int, int]] = []
    for first, end in spans:
        is_small = 2 * (end - first) < target_rows
        if is_small:
            group.append((first, end))
        if group and (not is_small or end - group[0][0] >= target_rows):
            if len(group) > 1:
                yield group
            group = []
    if len(group) > 1:
        yield group


def _by_place(
    results: Sequence[tuple[CompactTask, Compacted]],
) -> Mapping[Place, list[tuple[CompactTask, Compacted]]]:
    found: dict[Place, list[tuple[CompactTask, Compacted]]] = {}
    for task, compacted in results:
        found.setdefault(task.place, []).append((task, compacted))
    return found


def _pin_of(storage: KeyedStorage, level: Level) -> Pin | None:
    return storage.base if level == "base" else storage.history


def _pin(record: Record, place: Place) -> Pin | None:
    incarnation, level = place
    mine = (s for s in record.keyed if s.incarnation == incarnation)
    storage = next(mine, None)
    return None if storage is None else _pin_of(storage, level)


def _with_pins(storage: KeyedStorage, pins: Mapping[Place, Pin]) -> KeyedStorage:
    return msgspec.structs.replace(
        storage,
        base=pins.get((storage.incarnation, "base"), storage.base),
        history=pins.get((storage.incarnation, "history"), storage.history),
    )


def _sum(one: Optimized, other: Optimized) -> Optimized:
    return Optimized(
        tuple(sorted({*one.tables, *other.tables})),
        one.files_before + other.files_before,
        one.files_after + other.files_after,
        one.rows + other.rows,
    )
