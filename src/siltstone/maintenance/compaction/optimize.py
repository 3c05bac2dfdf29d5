"""Optimize: small files of tables become large ones, their rows unchanged; any process, any time.

    read record n ─▶ plan (`compaction`): adjacent small parts, together up to `target_rows`
                  ─▶ job record ─▶ tasks: each rewrites its rows, in any process, and is recorded
                  ─▶ publish: bases and histories, on the pins of the newest record, all at once
                  ─▶ plain tables: a frame of the owner each (`commit_version`) ─▶ promote
                  ─▶ indexes: segments over what they lack, and a record for these (`index.py`)

It changes no result. If another process publishes meanwhile, the finished tasks are put on its pins
where their inputs are unchanged, and only the rest is planned again. A crash leaves unused files
and the record of a dead job; the next optimize publishes its finished tasks that still fit.

The file is long so that the path of a job, and of a dead job, can be read in one piece.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import compress, groupby

import msgspec

from siltstone.arguments import count_of
from siltstone.engine.catalog import catalog as catalogs
from siltstone.errors import BusyError, TableNotFoundError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats.manifest import Catalog, Record
from siltstone.maintenance.compaction.compaction import (
    NOTHING,
    TARGET_ROWS,
    CompactTask,
    Finished,
    Optimized,
    Sizes,
    by_place,
    fitting_of,
    has_plain,
    optimized,
    pin_at,
    plain_pin,
    planned,
    planned_plain,
    read,
    total_of,
    with_pins,
    with_renewed,
)
from siltstone.maintenance.compaction.plain_table_commit import PlainTables
from siltstone.maintenance.each_table import isolated
from siltstone.maintenance.index import index_plan
from siltstone.maintenance.index.indexer import Indexer
from siltstone.maintenance.merge.merge import Deferred
from siltstone.storage.manifest.manifest_store import Lease
from siltstone.storage.site import Site, held
from siltstone.storage.tables.jobs import (
    FILE_TICK_S,
    GcHorizonError,
    Job,
    OpenJob,
    SeenJob,
    refuse_below_gc_horizon,
)
from siltstone.storage.tables.values import Compacted

ATTEMPTS = 8
WORKERS = 2
_KIND = "optimize"
_ROUNDS = 8
"""For each attempt that a caller allows: how many more may be partly useless."""


Execute = Callable[[Sequence[CompactTask]], Iterable[Compacted]]
Progress = Callable[[int, int], None]


class _OptimizeOrder(msgspec.Struct):
    """What one optimize was asked for, and what it met.

    `at_once`: how many tasks `run` is given; None: all, it runs them elsewhere. `known`: the record
    that it saw last, which the next one must follow. `is_contended`: others changed what a plan
    had read.
    """

    table: int | None
    sizes: Sizes
    run: Execute
    at_once: int | None
    on_progress: Progress | None
    known: Record
    is_contended: bool = False


class _DeferredError(Exception):
    """What was finished of plain tables waits for their owner."""

    def __init__(self, tables: Sequence[str]) -> None:
        super().__init__(
            f"the small files of {', '.join(tables)} are rewritten, but the owner of the store"
            " must still pick them up: it does when it refreshes, flushes or optimizes"
        )


class Optimizer:
    """Optimizes tables of one store. Holds no lock and no state.

    Args:
        promote: Shows a published record's bases to readers of the plain path.
        plain: The plain tables, as this process can access them.
    """

    def __init__(
        self, site: Site, promote: Callable[[Record], None], indexer: Indexer, plain: PlainTables
    ) -> None:
        self.site = site
        self._manifests, self._tables, self._jobs = site.manifests, site.tables, site.jobs
        self._promote, self._indexer, self._plain = promote, indexer, plain

    @held
    def optimize(
        self,
        table: int | None = None,
        *,
        target_rows: int = TARGET_ROWS,
        by_tiers: bool = False,
        attempts: int = ATTEMPTS,
        workers: int = WORKERS,
        execute: Execute | None = None,
        build: index_plan.Execute | None = None,
        on_progress: Progress | None = None,
    ) -> Optimized | Deferred:
        """Optimize one table, or all: keyed tables in one publish, plain tables with a frame each.

        Args:
            table: The id of one table; unflushed tables have nothing to optimize.
            target_rows: The target number of rows of a file; parts with less than half are small.
            by_tiers: Leave a part alone that is large compared with the parts after it.
            attempts: The maximum number of plans, if other writers change the inputs.
            workers: How many tasks run at once here; each holds a few batches of rows.
            execute: Runs the tasks, instead of workers, and returns their results in order.
            build: As `Indexer.catch_up` has it as `execute`: runs what indexes lack.
            on_progress: Called with the numbers of finished tasks and of all tasks.

        Raises:
            RequestError: `target_rows` is below 2, or a budget is below 1.
            SiltstoneError: A table cannot be optimized, whatever the reason; nothing of it was
                changed. The others were optimized.
            ReplacedError: Another store is at the path by now, or none: it was left alone.
        """
        count_of("target_rows", target_rows, 2)
        count_of("attempts", attempts, 1)
        count_of("workers", workers, 1)
        run, at_once = (self._workers(workers), workers) if execute is None else (execute, None)
        sizes = Sizes(target_rows, by_tiers)

        def work(only: int | None, known: Record) -> Optimized | Deferred:
            order = _OptimizeOrder(only, sizes, run, at_once, on_progress, known)
            return self._optimized(order, attempts, build)

        return isolated(self._manifests, table, work, _sum)

    def _optimized(
        self, order: _OptimizeOrder, attempts: int, build: index_plan.Execute | None
    ) -> Optimized | Deferred:
        table = order.table
        total, fruitless, left = NOTHING, 0, list[Finished]()
        for attempt in range(attempts * _ROUNDS):
            try:
                total = total_of(total, self._resume(table))
                found = self._attempt(order, left)
            except _DeferredError as error:
                self._with_indexes(total, table, attempts, build)
                return Deferred(str(error), attempt + 1)
            except (GcHorizonError, BusyError) as error:
                found = replace(NOTHING, replans=(str(error),))
            if found is None:
                return self._with_indexes(total, table, attempts, build)
            total = total_of(total, found)
            # Some was in vain, the rest is done: that it goes on is no lost race.
            fruitless += not found.replans or not found.files_before
            if fruitless == attempts:
                break
        try:
            total = total_of(total, self._handed_over(left)) if left else total
        except _DeferredError as error:
            return Deferred(str(error), attempts)
        if total.files_before:
            return total
        return Deferred(("other writers won each race", *total.replans)[-1], attempts)

    def _with_indexes(
        self, total: Optimized, table: int | None, attempts: int, build: index_plan.Execute | None
    ) -> Optimized | Deferred:
        total = with_renewed(total, self._plain.renew_indexes(table))
        try:
            done = self._indexer.catch_up(table, attempts=attempts, execute=build)
        except TableNotFoundError:  # no record knows it yet: it has no index of ours
            return total
        if isinstance(done, Deferred):
            return total if total.tables else done
        names, rows = tuple(sorted({*total.tables, *done.tables})), total.indexed_rows + done.rows
        segments = total.segments + done.segments
        return replace(total, tables=names, segments=segments, indexed_rows=rows)

    def has_left(self) -> bool:
        """Return whether finished files of plain tables wait for the owner."""
        return bool(self._left())

    def take_finished(self) -> Optimized:
        """Publish the fitting finished work of other processes; called by the owner.

        Raises:
            BusyError, UnavailableError: Some work is left for the next call.
        """
        return self._resume(None)

    def _attempt(self, order: _OptimizeOrder, left: list[Finished]) -> Optimized | None:
        """Plan, execute and publish once; None when there is nothing to do.

        `left` gathers what is the owner's to publish; it is asked when all else is done.
        """
        record, lease = self._lease_newest(order)
        with lease, self._catalog(record) as catalog:
            cross(Failpoint.OPTIMIZE_BEFORE_PLAN)
            tasks = self._planned(record, catalog, order)
            if tasks:
                cross(Failpoint.OPTIMIZE_AFTER_PLAN)
                done, more = self._execute(record, tasks, order)
                order.is_contended |= bool(done.replans)
                left += more
                return done
        if not left and not self._left():
            return None
        taken = self._handed_over(left)
        left.clear()
        return taken

    def _lease_newest(self, order: _OptimizeOrder) -> tuple[Record, Lease]:
        order.known, lease = self._manifests.lease_newest(order.known)
        return order.known, lease

    def _catalog(self, record: Record) -> AbstractContextManager[Catalog]:
        if self._plain.is_ours or has_plain(record.catalog):
            return self._plain.catalog()
        return nullcontext(record.catalog)  # the log is not read for nothing

    def _planned(
        self, record: Record, catalog: Catalog, order: _OptimizeOrder
    ) -> list[CompactTask]:
        sizes = replace(order.sizes, is_contended=order.is_contended)
        plain = planned_plain(catalog, self._tables.reader, order.table, sizes)
        left = {one.task.place for one in self._left()}
        keyed = planned(record, self._tables.reader, order.table, sizes)
        return [*keyed, *(task for task in plain if task.place not in left)]

    def _execute(
        self, record: Record, tasks: Sequence[CompactTask], order: _OptimizeOrder
    ) -> tuple[Optimized, list[Finished]]:
        """Run tasks and publish; return what was done, and what is left to the owner."""
        tables = tuple(sorted({task.table for task in tasks}))
        inputs = tuple(f"{task.pin.folder}[{task.within[0]}:{task.within[1]}]" for task in tasks)
        with self._jobs.begin(_KIND, tables, inputs, above_us=record.gc_horizon_us) as job:
            try:
                done, left = self._run(record, tasks, order, job)
            except GcHorizonError:
                job.drop()  # no job may use its files any more
                raise
            if not left:
                job.finish()  # else the record stays
            return done, left

    def _run(
        self, record: Record, tasks: Sequence[CompactTask], order: _OptimizeOrder, job: OpenJob
    ) -> tuple[Optimized, list[Finished]]:
        """Run tasks, and publish what they wrote whenever it is a file's worth of rows.

        The longer it waits, the more of it is touched by others and in vain. When some was, no
        more tasks are begun: they are planned anew, and smaller. Nor is one begun that was touched.
        While a process merges the same tables it waits to the end: a merge loses to it once at
        most.
        What ran together is published together: it has waited for the last of it anyway.
        """
        done, pending, left = NOTHING, list[Finished](), list[Finished]()
        ended, todo = 0, list(tasks)
        while todo and not done.replans:
            at_once = order.at_once or len(todo)
            some, todo = todo[:at_once], todo[at_once:]
            for task, result in zip(some, order.run(some), strict=True):
                pending.append(Finished(task, result))
                job.append(pending[-1].encode())
                ended += 1
                if order.on_progress is not None:
                    order.on_progress(ended, len(tasks))
            if ended == len(tasks):
                cross(Failpoint.OPTIMIZE_AFTER_FRAGMENTS)
            elif not self._is_worth_a_record(pending, order.sizes.target_rows):
                continue
            found, more = self._show(record, pending, job.as_written())
            done, left, pending = total_of(done, found), [*left, *more], []
            record, lease = self._lease_newest(order)
            with lease:  # else a vacuum takes its files while they are compared
                kept = self._untouched(record, todo)
            if len(kept) < len(todo):
                why = f"others changed the files of {len(todo) - len(kept)} tasks before they began"
                done = total_of(done, replace(NOTHING, replans=(why,)))
            todo = kept
        if pending:
            found, more = self._show(record, pending, job.as_written())
            done, left = total_of(done, found), [*left, *more]
        return done, left

    def _is_worth_a_record(self, finished: Sequence[Finished], rows: int) -> bool:
        if sum(one.task.rows for one in finished) < rows:
            return False
        tables = {one.task.table for one in finished}
        return not any(tables.intersection(_merged(seen)) for seen in self._jobs.list())

    def _untouched(self, record: Record, tasks: Sequence[CompactTask]) -> list[CompactTask]:
        """Return the tasks whose inputs are still as they were; the others are planned anew."""
        found: list[CompactTask] = []
        with self._plain.catalog() if self._plain.is_ours else nullcontext(record.catalog) as now:
            for place, items in groupby(tasks, key=lambda task: task.place):
                some = list(items)
                pin = plain_pin(now, place[0]) if some[0].is_plain else pin_at(record, place)
                if pin is not None:
                    within = [task.within for task in some]
                    is_kept = self._tables.compactor.untouched(pin, some[0].pin, within)
                    found += compress(some, is_kept)
        return found

    def _show(
        self, record: Record, finished: Sequence[Finished], job: Job
    ) -> tuple[Optimized, list[Finished]]:
        """Publish what is finished; return what of it is left to the owner."""
        plain = [one for one in finished if one.task.is_plain]
        keyed = [one for one in finished if not one.task.is_plain]
        done = self._publish(record, keyed, job)
        left = [] if self._plain.is_ours else plain
        if not left:
            done = total_of(done, self._advanced(plain, job))
        parts = sum(one.task.parts for one in finished if one not in left)
        if done.files_before < parts:
            names = ", ".join(sorted({one.task.table for one in finished}))
            lost = f"{parts - done.files_before} of {parts} files that were read of {names}"
            done = replace(done, replans=(f"others changed {lost}",))
        return done, left

    def _resume(self, table: int | None) -> Optimized:
        """Publish what dead jobs finished, where it still fits; plain tables are the owner's."""
        total = NOTHING
        for begun, noted in self._dead():
            if table is not None and not self._are_of(noted, table):
                continue
            job, finished = self._whole(begun, noted)
            record, lease = self._manifests.lease_newest()
            is_left = not self._plain.is_ours and any(one.task.is_plain for one in finished)
            try:
                with lease:
                    total = total_of(total, self._publish(record, finished, job))
                if self._plain.is_ours:
                    plain = [one for one in finished if one.task.is_plain]
                    total = total_of(total, self._advanced(plain, job))
            except GcHorizonError:
                is_left = False
            if not is_left:
                self._jobs.remove(job.id)
        return total

    def _are_of(self, noted: Sequence[Finished], table: int) -> bool:
        """Say whether a job worked on one table alone; by its incarnations: names change hands."""
        record, lease = self._manifests.lease_newest()
        with lease, self._catalog(record) as catalog:
            owners = (catalogs.owner_if_known(catalog, one.task.place[0]) for one in noted)
            return all(owner is not None and owner.id == table for owner in owners)

    def _dead(self) -> Iterator[tuple[Job, list[Finished]]]:
        for seen in self._jobs.list():
            if not seen.is_running and seen.job is not None and seen.job.kind == _KIND:
                yield seen.job, read(seen)

    def _whole(self, job: Job, noted: Sequence[Finished]) -> tuple[Job, list[Finished]]:
        """Return what a dead job noted and is whole, and the job, begun before all of that.

        Vacuum goes by the clock of the file system, which may have been set back since it began.
        By a tick it is always behind, which vacuum knows.
        """
        whole: list[Finished] = []
        for one in noted:
            written_us = self._jobs.written_us(one.result.files)
            if written_us is not None:
                whole.append(one)
                started_us = min(job.started_us, written_us + int(FILE_TICK_S * 1e6) - 1)
                job = msgspec.structs.replace(job, started_us=started_us)
        return job, whole

    def _left(self) -> list[Finished]:
        return [one for _, finished in self._dead() for one in finished if one.task.is_plain]

    def _handed_over(self, left: Sequence[Finished]) -> Optimized:
        """Have the owner take over what is left; return what it took of `left`.

        Raises:
            _DeferredError: It did not yet.
        """
        if not self._plain.commit_version(self.has_left):
            raise _DeferredError(sorted({one.task.table for one in self._left()}))
        if not left:
            return NOTHING
        with self._plain.catalog() as catalog:
            return optimized([one for one in left if self._is_in(catalog, one)])

    def _is_in(self, catalog: Catalog, one: Finished) -> bool:
        """Say whether the newest version of its table has the files of a task."""
        pin = plain_pin(catalog, one.task.place[0])
        if pin is None:
            return False
        named = {file.path for file in self._tables.reader.files(pin)}
        return named.issuperset(file.path for file in one.result.files)

    def _advanced(self, finished: Sequence[Finished], job: Job) -> Optimized:
        """Let plain tables go on with what is finished; return what fitted."""
        fitting: list[Finished] = []
        for (incarnation, _), items in by_place(finished).items():
            for some in (items, *([one] for one in items if len(items) > 1)):
                results = [one.result for one in some]
                if self._plain.advance(incarnation, results, job.started_us):
                    fitting += some
                    if some is items:
                        break
        return optimized(fitting)

    def _workers(self, count: int) -> Execute:
        """Return what runs tasks in `count` threads."""

        def run(tasks: Sequence[CompactTask]) -> Iterator[Compacted]:
            with concurrent.futures.ThreadPoolExecutor(count) as pool:
                for done in pool.map(self._compact, tasks):
                    yield done
                    cross(Failpoint.OPTIMIZE_AFTER_TASK)

        return run

    def _compact(self, task: CompactTask) -> Compacted:
        return self._tables.compactor.compact(task.pin, task.within)

    def _publish(self, record: Record, finished: Sequence[Finished], job: Job) -> Optimized:
        """Publish what fits the newest record; return what was published, maybe nothing."""
        fitting: list[Finished] = []

        def change(now: Record) -> Record:
            refuse_below_gc_horizon(now, job.started_us)
            swapped, fits = fitting_of(self._tables, now, finished)
            fitting[:] = fits
            if not fits:
                return now
            cross(Failpoint.OPTIMIZE_BEFORE_PUBLISH)
            return with_pins(now, swapped)

        published = self._manifests.publish(change, base=record)
        if not fitting:
            return NOTHING
        cross(Failpoint.OPTIMIZE_AFTER_PUBLISH)
        self._promote(published)
        return optimized(fitting)


def _sum(one: Optimized | Deferred, other: Optimized | Deferred) -> Optimized | Deferred:
    """Return what was done of both; deferred if both are."""
    if isinstance(one, Deferred):
        return other
    return one if isinstance(other, Deferred) else total_of(one, other)


def _merged(seen: SeenJob) -> Sequence[str]:
    """Return the tables that a job merges just now."""
    job = seen.job
    return job.tables if job is not None and seen.is_running and job.kind == "merge" else ()
