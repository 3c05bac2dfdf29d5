"""Optimize: small files of tables become large ones, their rows unchanged; any process, any time.

    read record n ─▶ plan (`compaction`): adjacent small parts, together up to `target_rows`
                  ─▶ job record ─▶ tasks: each writes its rows anew, in any process, and is noted
                  ─▶ publish: bases and histories, on the pins of the newest record, all at once
                  ─▶ plain tables: a frame of the owner each (`hand_over`) ─▶ promote
                  ─▶ indexes: segments over what they lack, and a record for these (`index.py`)

It changes no answer. Whoever published meanwhile is built upon: what is finished is put on the
winner's pins where its inputs are untouched there, and only the rest is planned again. A crash
leaves files that nobody names and the record of a dead job; the next optimize publishes what it
finished, where it still fits.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import msgspec

from siltstone.engine.reader import plain_folder
from siltstone.errors import BusyError, RequestError, TableNotFoundError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats.manifest import Catalog, KeyedStorage, Pin, Record
from siltstone.maintenance.compaction import (
    TARGET_ROWS,
    CompactTask,
    Place,
    Sizes,
    has_plain,
    is_plain_table,
    pin_of,
    plain_pin,
    planned,
    planned_plain,
)
from siltstone.maintenance.hand_over import PlainTables
from siltstone.maintenance.index import Indexer
from siltstone.maintenance.merge import Deferred, require_budgets
from siltstone.storage.jobs import (
    CondemnedError,
    Job,
    Jobs,
    OpenJob,
    SeenJob,
    refuse_condemned,
)
from siltstone.storage.manifest_store import ATTEMPTS_MAX, ManifestStore
from siltstone.storage.tables import Compacted, InputsMovedError, Tables

ATTEMPTS = 8
WORKERS = 2
_KIND = "optimize"


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


@dataclass(frozen=True, slots=True)
class _Order:
    """What one optimize was asked for."""

    name: str | None
    sizes: Sizes
    publish_attempts: int
    run: Execute
    on_progress: Progress | None = None


class _LeftError(Exception):
    """What was finished of plain tables waits for their owner."""

    def __init__(self, tables: Sequence[str]) -> None:
        super().__init__(
            f"the small files of {', '.join(tables)} are written anew, and the owner of the store"
            " has yet to take them over: it does when it looks for news, flushes or optimizes"
        )


class Optimizer:
    """Optimizes tables of one store. Holds no lock and no state.

    Args:
        promote: Shows a published record's bases to readers of the plain path.
        plain: The plain tables, as this process reaches them.
    """

    def __init__(
        self,
        manifests: ManifestStore,
        tables: Tables,
        promote: Callable[[Record], None],
        jobs: Jobs,
        indexer: Indexer,
        plain: PlainTables,
    ) -> None:
        self._manifests, self._tables, self._promote = manifests, tables, promote
        self._jobs, self._indexer, self._plain = jobs, indexer, plain

    def optimize(
        self,
        table: str | None = None,
        *,
        target_rows: int = TARGET_ROWS,
        by_tiers: bool = False,
        attempts: int = ATTEMPTS,
        publish_attempts: int = ATTEMPTS_MAX,
        workers: int = WORKERS,
        execute: Execute | None = None,
        on_progress: Progress | None = None,
    ) -> Optimized | Deferred:
        """Optimize one table, or all: keyed ones in one publish, plain ones by a frame each.

        Args:
            target_rows: How many rows a file should have; parts with less than half are small.
            by_tiers: Leave a part alone that is large beside those behind it: for who comes often.
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
        order = _Order(table, Sizes(target_rows, by_tiers), publish_attempts, run, on_progress)
        total, reason, left = _NOTHING, "other writers won each race", list[_Finished]()
        for attempt in range(attempts):
            try:
                total = _sum(total, self._resume(table, publish_attempts))
                found = self._attempt(order, left)
            except _LeftError as error:
                self._with_indexes(total, table, attempts, publish_attempts)
                return Deferred(str(error), attempt + 1)
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
        try:
            done = self._indexer.catch_up(
                table, attempts=attempts, publish_attempts=publish_attempts
            )
        except (
            TableNotFoundError
        ):  # a plain table that no record knows yet: it has no index of ours
            return total
        if isinstance(done, Deferred):
            return total if total.files_before else done
        names = tuple(sorted({*total.tables, *done.tables}))
        return replace(total, tables=names, segments=done.segments, indexed_rows=done.rows)

    def has_left(self) -> bool:
        """Say whether some process finished files of plain tables, and left them to the owner."""
        return bool(self._left())

    def take_over(self) -> Optimized:
        """Publish what others finished and left, as far as it fits; the owner's part of it.

        Raises:
            BusyError, UnavailableError: Some is left for the next time.
        """
        return self._resume(None, ATTEMPTS_MAX)

    def _attempt(self, order: _Order, left: list[_Finished]) -> Optimized | None:
        """Plan, execute and publish once; None when there is nothing to do.

        `left` gathers what is the owner's to publish; it is asked when all else is done.
        """
        record, lease = self._manifests.lease_newest()
        with lease, self._catalog(record) as catalog:
            cross(Failpoint.OPTIMIZE_BEFORE_PLAN)
            tasks = self._planned(record, catalog, order)
            if tasks:
                cross(Failpoint.OPTIMIZE_AFTER_PLAN)
                done, more = self._execute(record, tasks, order)
                left += more
                return done
        if not left and not self._left():
            return None
        taken = self._handed_over(left)
        left.clear()
        return taken

    def _catalog(self, record: Record) -> AbstractContextManager[Catalog]:
        if self._plain.is_ours or has_plain(record.catalog):
            return self._plain.catalog()
        return contextlib.nullcontext(record.catalog)  # the log is not read for nothing

    def _planned(self, record: Record, catalog: Catalog, order: _Order) -> list[CompactTask]:
        plain = planned_plain(catalog, self._tables, order.name, order.sizes)
        left = {one.task.place for one in self._left()}
        is_plain = order.name is not None and is_plain_table(catalog, order.name)
        keyed = [] if is_plain else planned(record, self._tables, order.name, order.sizes)
        return [*keyed, *(task for task in plain if task.place not in left)]

    def _execute(
        self, record: Record, tasks: Sequence[CompactTask], order: _Order
    ) -> tuple[Optimized, list[_Finished]]:
        """Run tasks and publish; return what was done, and what is left to the owner."""
        tables = tuple(sorted({task.table for task in tasks}))
        inputs = tuple(f"{task.folder}[{task.within[0]}:{task.within[1]}]" for task in tasks)
        with self._jobs.begin(_KIND, tables, inputs, above_us=record.condemned_us) as job:
            finished = _noted(tasks, order.run(tasks), job, order.on_progress)
            cross(Failpoint.OPTIMIZE_AFTER_FRAGMENTS)
            try:
                done = self._publish(record, finished, job.job, order.publish_attempts)
            except CondemnedError:
                job.drop()  # its files are nobody's to use any more
                raise
            plain = [one for one in finished if one.task.is_plain]
            if plain and not self._plain.is_ours:
                return done, plain  # and the record stays
            done = _sum(done, self._advanced(plain, job.job))
            job.finish()
            return done, []

    def _resume(self, name: str | None, publish_attempts: int) -> Optimized:
        """Publish what dead jobs finished, where it still fits; plain tables are the owner's."""
        total = _NOTHING
        for begun, noted in self._dead():
            if name is not None and any(one.task.table != name for one in noted):
                continue
            job, finished = self._whole(begun, noted)
            record, lease = self._manifests.lease_newest()
            is_left = not self._plain.is_ours and any(one.task.is_plain for one in finished)
            try:
                with lease:
                    total = _sum(total, self._publish(record, finished, job, publish_attempts))
                if self._plain.is_ours:
                    plain = [one for one in finished if one.task.is_plain]
                    total = _sum(total, self._advanced(plain, job))
            except CondemnedError:
                is_left = False
            if not is_left:
                self._jobs.remove(job.id)
        return total

    def _dead(self) -> Iterator[tuple[Job, list[_Finished]]]:
        for seen in self._jobs.list():
            if not seen.is_running and seen.job is not None and seen.job.kind == _KIND:
                yield seen.job, _read(seen)

    def _whole(self, job: Job, noted: Sequence[_Finished]) -> tuple[Job, list[_Finished]]:
        """Return what a dead job noted and is whole, and the job, begun before all of that.

        Vacuum goes by the clock of the file system, which may have been set back since it began.
        """
        whole: list[_Finished] = []
        for one in noted:
            written_us = self._jobs.written_us(one.result.files)
            if written_us is not None:
                whole.append(one)
                job = msgspec.structs.replace(job, started_us=min(job.started_us, written_us))
        return job, whole

    def _left(self) -> list[_Finished]:
        return [one for _, finished in self._dead() for one in finished if one.task.is_plain]

    def _handed_over(self, left: Sequence[_Finished]) -> Optimized:
        """Have the owner take over what is left; return what it took of `left`.

        Raises:
            _LeftError: It did not yet.
        """
        if not self._plain.hand_over(self.has_left):
            raise _LeftError(sorted({one.task.table for one in self._left()}))
        if not left:
            return _NOTHING
        with self._plain.catalog() as catalog:
            return _optimized([one for one in left if self._is_in(catalog, one)])

    def _is_in(self, catalog: Catalog, one: _Finished) -> bool:
        """Say whether the newest version of its table has the files of a task."""
        pin = plain_pin(catalog, one.task.place[0])
        if pin is None:
            return False
        named = {file.path for file in self._tables.files(plain_folder(pin), pin)}
        return named.issuperset(file.path for file in one.result.files)

    def _advanced(self, finished: Sequence[_Finished], job: Job) -> Optimized:
        """Let plain tables go on with what is finished; return what fitted."""
        fitting: list[_Finished] = []
        for (incarnation, _), items in _by_place(finished).items():
            for some in (items, *([one] for one in items if len(items) > 1)):
                results = [one.result for one in some]
                if self._plain.advance(incarnation, results, job.started_us):
                    fitting += some
                    if some is items:
                        break
        return _optimized(fitting)

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
        return _optimized(fitting)

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


def _by_place(finished: Sequence[_Finished]) -> Mapping[Place, list[_Finished]]:
    found: dict[Place, list[_Finished]] = {}
    for one in finished:
        found.setdefault(one.task.place, []).append(one)
    return found


def _pin(record: Record, place: Place) -> Pin | None:
    incarnation, level = place
    mine = (s for s in record.keyed if s.incarnation == incarnation)
    storage = next(mine, None)
    return None if storage is None else pin_of(storage, level)


def _with_pins(storage: KeyedStorage, pins: Mapping[Place, Pin]) -> KeyedStorage:
    return msgspec.structs.replace(
        storage,
        base=pins.get((storage.incarnation, "base"), storage.base),
        history=pins.get((storage.incarnation, "history"), storage.history),
    )


def _optimized(finished: Sequence[_Finished]) -> Optimized:
    return Optimized(
        tuple(sorted({one.task.table for one in finished})),
        sum(one.task.parts for one in finished),
        sum(len(one.result.fragments) for one in finished),
        sum(one.task.rows for one in finished),
    )


def _sum(one: Optimized, other: Optimized) -> Optimized:
    return Optimized(
        tuple(sorted({*one.tables, *other.tables})),
        one.files_before + other.files_before,
        one.files_after + other.files_after,
        one.rows + other.rows,
    )
