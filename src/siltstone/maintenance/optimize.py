"""Optimize: small files of bases and of histories become large ones; any process, any time.

    read record n ─▶ plan: adjacent small parts, together up to `target_rows`
                  ─▶ job record ─▶ tasks: each writes its rows anew, in any process, and is noted
                  ─▶ publish: put on the pins of the newest record, all at once ─▶ promote
                  ─▶ indexes: segments over what they lack, and a record for these (`index.py`)

It changes no answer: the same rows in the same order. Whoever published meanwhile is built upon:
what is finished is put on the winner's pins where its inputs are untouched there, and only the rest
is planned again. A crash leaves files that nobody names and the record of a dead job; the next
optimize publishes what it finished, where it still fits.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from siltstone.engine import catalog as catalogs
from siltstone.errors import BusyError, RequestError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats.manifest import KeyedStorage, Pin, Record
from siltstone.maintenance.index import Indexer
from siltstone.maintenance.merge import Deferred, candidates, require_budgets
from siltstone.storage.files import RealFiles
from siltstone.storage.jobs import (
    CondemnedError,
    Job,
    Jobs,
    OpenJob,
    SeenJob,
    refuse_condemned,
)
from siltstone.storage.lance_io import LanceTables
from siltstone.storage.manifest_store import ATTEMPTS_MAX, ManifestStore
from siltstone.storage.tables import Compacted, InputsMovedError, Tables

ATTEMPTS = 8
WORKERS = 2
TARGET_ROWS = 1 << 20
_KIND = "optimize"
_FOLDERS = {"base": "base", "history": ".history"}

Level = Literal["base", "history"]
Place = tuple[int, Level]


@dataclass(frozen=True, slots=True)
class CompactTask:
    """Some adjacent parts of a pin, to be written anew as one. Pickles."""

    table: str
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
    """What an optimize did: in which tables (by name), how many files became how many.

    `segments` of indexes were built, over `indexed_rows`.
    """

    tables: tuple[str, ...]
    files_before: int
    files_after: int
    rows: int
    segments: int = 0
    indexed_rows: int = 0


Execute = Callable[[Sequence[CompactTask]], Iterable[Compacted]]
Progress = Callable[[int, int], None]
_NOTHING = Optimized((), 0, 0, 0)


@dataclass(frozen=True, slots=True)
class _Finished:
    """A task that was done, as a line of its job's record has it."""

    task: CompactTask
    result: Compacted


class Optimizer:
    """Optimizes tables of one store. Holds no lock and no state.

    Args:
        promote: Shows a published record's bases to readers of the plain path.
    """

    def __init__(
        self,
        manifests: ManifestStore,
        tables: Tables,
        promote: Callable[[Record], None],
        jobs: Jobs,
        indexer: Indexer,
    ) -> None:
        self._manifests, self._tables, self._promote = manifests, tables, promote
        self._jobs, self._indexer = jobs, indexer

    def optimize(
        self,
        table: str | None = None,
        *,
        target_rows: int = TARGET_ROWS,
        attempts: int = ATTEMPTS,
        publish_attempts: int = ATTEMPTS_MAX,
        workers: int = WORKERS,
        execute: Execute | None = None,
        on_progress: Progress | None = None,
    ) -> Optimized | Deferred:
        """Optimize one table, or all of them in one publish.

        Args:
            target_rows: How many rows a file should have; parts with less than half are small.
            attempts: How often it is planned at most: what it reads was touched meanwhile.
            publish_attempts: How many records each of them may try: only the number moved.
            workers: How many tasks run at once here; each holds a few batches of rows.
            execute: Runs the tasks and gives their results in the same order, instead of workers.
            on_progress: Hears how many tasks are done, and of how many.

        Raises:
            TableNotFoundError: There is no table of that name in the newest record.
            RequestError: `target_rows` is below 2, or a budget below 1.
            UnavailableError, CorruptionError: Nothing was changed.
        """
        if target_rows < 2:
            raise RequestError(f"target_rows is at least 2, not {target_rows}")
        require_budgets(attempts, publish_attempts)
        require_budgets(workers, workers)
        run = self._workers(workers) if execute is None else execute
        total, reason = _NOTHING, "other writers won each race"
        for _ in range(attempts):
            try:
                total = _sum(total, self._resume(table, publish_attempts))
                found = self._attempt(table, target_rows, publish_attempts, run, on_progress)
            except (CondemnedError, BusyError) as error:
                reason = str(error)
                continue
            if found is None:
                return self._with_indexes(total, table, attempts, publish_attempts)
            total = _sum(total, found)
        return total if total.files_before else Deferred(reason, attempts)

    def _with_indexes(
        self, total: Optimized, table: str | None, attempts: int, publish_attempts: int
    ) -> Optimized | Deferred:
        done = self._indexer.catch_up(table, attempts=attempts, publish_attempts=publish_attempts)
        if isinstance(done, Deferred):
            return total if total.files_before else done
        names = tuple(sorted({*total.tables, *done.tables}))
        return replace(total, tables=names, segments=done.segments, indexed_rows=done.rows)

    def _attempt(
        self,
        name: str | None,
        target_rows: int,
        publish_attempts: int,
        run: Execute,
        on_progress: Progress | None,
    ) -> Optimized | None:
        """Plan, execute and publish once; None when there is nothing to do."""
        record, lease = self._manifests.lease_newest()
        with lease:
            cross(Failpoint.OPTIMIZE_BEFORE_PLAN)
            tasks = _planned(record, self._tables, name, target_rows)
            if not tasks:
                return None
            cross(Failpoint.OPTIMIZE_AFTER_PLAN)
            tables = tuple(sorted({task.table for task in tasks}))
            inputs = tuple(f"{task.folder}[{task.within[0]}:{task.within[1]}]" for task in tasks)
            above_us = record.condemned_us
            with self._jobs.begin(_KIND, tables, inputs, above_us=above_us) as job:
                finished = _noted(tasks, run(tasks), job, on_progress)
                cross(Failpoint.OPTIMIZE_AFTER_FRAGMENTS)
                try:
                    found = self._publish(record, finished, job.job, publish_attempts)
                except CondemnedError:
                    job.drop()  # its files are nobody's to use any more
                    raise
                job.finish()
                return found

    def _resume(self, name: str | None, publish_attempts: int) -> Optimized:
        """Publish what dead jobs finished, where it still fits."""
        total = _NOTHING
        for seen in self._jobs.list():
            if seen.is_running or seen.job is None or seen.job.kind != _KIND:
                continue
            finished = _read(seen)
            if name is None or all(one.task.table == name for one in finished):
                record, lease = self._manifests.lease_newest()
                with lease, contextlib.suppress(CondemnedError):
                    done = self._publish(record, finished, seen.job, publish_attempts)
                    total = _sum(total, done)
                self._jobs.remove(seen.id)
        return total

    def _workers(self, count: int) -> Execute:
        """Return what runs tasks in `count` threads; no more than so many have results waiting."""

        def run(tasks: Sequence[CompactTask]) -> Iterator[Compacted]:
            with concurrent.futures.ThreadPoolExecutor(count) as pool:
                for some in _batched(tasks, count):
                    for done in pool.map(self._compact, some):
                        yield done
                        cross(Failpoint.OPTIMIZE_AFTER_TASK)

        return run

    def _compact(self, task: CompactTask) -> Compacted:
        return self._tables.compact(task.folder, task.pin, task.within)

    def _publish(
        self, record: Record, finished: Sequence[_Finished], job: Job, attempts: int
    ) -> Optimized:
        """Publish what fits the newest record; return what was published, maybe nothing."""
        fitting: list[_Finished] = []

        def change(now: Record) -> Record:
            refuse_condemned(now, job.started_us)
            swapped, fits = self._swapped(now, finished)
            fitting[:] = fits
            if not fits:
                return now
            cross(Failpoint.OPTIMIZE_BEFORE_PUBLISH)
            return msgspec.structs.replace(
                now, keyed=tuple(_with_pins(storage, swapped) for storage in now.keyed)
            )

        published = self._manifests.publish(change, base=record, attempts=attempts)
        if not fitting:
            return _NOTHING
        cross(Failpoint.OPTIMIZE_AFTER_PUBLISH)
        self._promote(published)
        return Optimized(
            tuple(sorted({one.task.table for one in fitting})),
            sum(one.task.parts for one in fitting),
            sum(len(one.result.fragments) for one in fitting),
            sum(one.task.rows for one in fitting),
        )

    def _swapped(
        self, now: Record, finished: Sequence[_Finished]
    ) -> tuple[dict[Place, Pin], list[_Finished]]:
        """Return the pins with what fits them, and what did."""
        pins: dict[Place, Pin] = {}
        fitting: list[_Finished] = []
        for place, items in _by_place(finished).items():
            pin = _pin(now, place)
            if pin is None:
                continue  # dropped or truncated meanwhile: nothing is left to do
            folder = items[0].task.folder
            try:
                pins[place] = self._tables.swap(folder, pin, [one.result for one in items])
                fitting += items
            except InputsMovedError:
                for one in items:
                    try:
                        pin = self._tables.swap(folder, pin, [one.result])
                    except InputsMovedError:
                        continue
                    pins[place] = pin
                    fitting.append(one)
        return pins, fitting


def _noted(
    tasks: Sequence[CompactTask],
    results: Iterable[Compacted],
    job: OpenJob,
    on_progress: Progress | None,
) -> list[_Finished]:
    """Return the results, each noted in the job's record as it comes."""
    finished: list[_Finished] = []
    for task, result in zip(tasks, results, strict=True):
        one = _Finished(task, result)
        finished.append(one)
        job.append(msgspec.json.encode(one))
        if on_progress is not None:
            on_progress(len(finished), len(tasks))
    return finished


def _read(seen: SeenJob) -> list[_Finished]:
    """Return what a job finished, as far as this siltstone understands its lines."""
    found: list[_Finished] = []
    for line in seen.finished:
        try:
            found.append(msgspec.json.decode(line, type=_Finished))
        except msgspec.MsgspecError:
            break
    return found


def _batched(tasks: Sequence[CompactTask], count: int) -> Iterator[Sequence[CompactTask]]:
    for start in range(0, len(tasks), count):
        yield tasks[start : start + count]


def _planned(
    record: Record, tables: Tables, name: str | None, target_rows: int
) -> list[CompactTask]:
    found: list[CompactTask] = []
    for table, storage in candidates(record, name):
        for level in _FOLDERS:
            found += _tasks(catalogs.name_of(table), storage, level, tables, target_rows)  # pyright: ignore[reportArgumentType]
    return found


def _tasks(
    name: str, storage: KeyedStorage, level: Level, tables: Tables, target_rows: int
) -> Iterator[CompactTask]:
    pin = _pin_of(storage, level)
    if pin is None:
        return
    folder = f"{storage.folder}/{_FOLDERS[level]}"
    for group in groups(tables.open(folder, pin).spans, target_rows):
        within = (group[0][0], group[-1][1])
        yield CompactTask(name, (storage.incarnation, level), folder, pin, within, len(group))


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


def _by_place(finished: Sequence[_Finished]) -> Mapping[Place, list[_Finished]]:
    found: dict[Place, list[_Finished]] = {}
    for one in finished:
        found.setdefault(one.task.place, []).append(one)
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
