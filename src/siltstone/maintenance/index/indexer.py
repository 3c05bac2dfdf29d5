"""Index: declared by a record, built in no version, published as a new pin of base.

    declare, drop   one record each; nothing is built
    catch up        read record n ─▶ plan: the parts of a base that an index lacks
                    ─▶ job record ─▶ build segments over them ─▶ measure the recall of large ones
                    of vectors ─▶ publish: put on the newest bases ─▶ promote

Any process, any time. An index changes no result: if it lacks rows, or is damaged, a scan reads
them. So the declaration is not a frame. A process that loses a race puts its segments on the
winner's pin where their inputs are unchanged, and plans the missing ones again. A crash leaves
unused files and the record of a dead job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from siltstone.arguments import count_of, flag_of
from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import table_schema_of
from siltstone.engine.commit.core import Core
from siltstone.errors import BusyError, RequestError, SiltstoneError, no_such
from siltstone.failpoints import Failpoint, cross
from siltstone.formats.manifest import Index, KeyedStorage, Pin, Record, TableDefinition
from siltstone.maintenance.each_table import isolated
from siltstone.maintenance.flush.checkpoint import Checkpointer
from siltstone.maintenance.index.index_kinds import (
    check_kind,
    check_name,
    check_options,
    column_of,
    refuse_taken,
)
from siltstone.maintenance.index.index_plan import (
    Execute,
    IndexStatus,
    IndexTask,
    Unfit,
    declared_on,
    living,
    statuses,
    stored_name,
    tasks_of,
    unwanted,
    wanted,
)
from siltstone.maintenance.index.plain_indexes import PlainIndexes
from siltstone.maintenance.index.recall import recall_of
from siltstone.maintenance.merge.merge import Deferred, candidates
from siltstone.storage.site import Site, held
from siltstone.storage.tables.jobs import GcHorizonError, Job, refuse_below_gc_horizon
from siltstone.storage.tables.values import BuiltSegment, put_fitting
from siltstone.telemetry.notices import NoticeLog

ATTEMPTS = 8
_KIND = "index"
_log = NoticeLog(__name__)


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The result of a catch-up: its tables (by name), its numbers of segments and rows."""

    tables: tuple[str, ...]
    segments: int
    rows: int


_NOTHING = CaughtUp((), 0, 0)


class _Built(msgspec.Struct, frozen=True):
    """A segment with the task that wanted it; `recall`: see `Index`."""

    task: IndexTask
    segment: BuiltSegment
    recall: float | None = None


class _Place(msgspec.Struct, frozen=True):
    """A base that is to change: segments come or go; `is_uncovered`: it gets key runs."""

    name: str
    incarnation: int
    tasks: tuple[IndexTask, ...]
    is_uncovered: bool


class Indexer:
    """Declares, drops and builds the indexes of one store. Holds no lock and no state.

    Args:
        promote: Shows a published record's bases to readers of the plain path.
    """

    def __init__(self, site: Site, promote: Callable[[Record], None]) -> None:
        self.site = site
        self._manifests, self._tables, self._jobs = site.manifests, site.tables, site.jobs
        self._promote = promote

    def declare(
        self,
        table: int,
        column: str,
        kind: object = "btree",
        *,
        name: str | None = None,
        options: Mapping[str, object],
    ) -> Index:
        """Publish the declaration of an index, as of the newest record; build nothing yet.

        Args:
            table: The id of a keyed table; its name may change meanwhile.
            column: The name of one of its columns.
            kind: "btree", "bitmap", "fts" or "vector".
            name: The name of the index. Default: the name of the column.
            options: Options of the kind; see `index_kinds`.

        Raises:
            TableNotFoundError: There is no such table in the newest record.
            RequestError: The table is plain, has no such column, or has this index already; or the
                kind, name or an option is invalid. Nothing was changed.
            UnavailableError, BusyError: The file system refuses, or other writers won each race.
        """
        called = check_name(column if name is None else name)
        made: list[Index] = []

        def change(now: Record) -> Record:
            found = catalogs.living(now.catalog, table)
            made[:] = [_declared(now, found, column, kind, called, options)]
            if made[0].kind == "fts":  # else each run of maintenance would fail to build it
                self._tables.reader.analyzer(dict(made[0].options))
            return _with_indexes(now, (*living(now), *made))

        self._manifests.publish(change, base=self._manifests.newest())
        return made[0]

    def drop(self, table: int, name: str) -> None:
        """Publish that an index is dropped; the next catch-up removes it from base.

        `table` is as in `declare`.

        Raises:
            TableNotFoundError: There is no such table in the newest record.
            RequestError: The table has no such index.
            UnavailableError, BusyError: The file system refuses, or other writers won each race.
        """

        def change(now: Record) -> Record:
            found = catalogs.living(now.catalog, table)
            _refuse_plain(found)
            called = catalogs.name_of(found)
            names = [index.name for index in declared_on(now, table)]
            if name not in names:
                raise RequestError(f"{called!r} has {no_such('index', name, names)}")
            left = (i for i in living(now) if i.table != table or i.name != name)
            return _with_indexes(now, tuple(left))

        self._manifests.publish(change, base=self._manifests.newest())

    @held
    def catch_up(
        self,
        table: int | None = None,
        *,
        is_urgent: bool = False,
        attempts: int = ATTEMPTS,
        execute: Execute | None = None,
    ) -> CaughtUp | Deferred:
        """Bring the indexes of one table, or of all, up to date with their bases.

        Bases whose keys no runs find, as after a repair, get these too, unless `is_urgent`. An
        index that cannot be built over the present rows is skipped, with a warning.

        Args:
            table: As in `declare`; None: all.
            is_urgent: Only indexes that lack a large share of the rows of base (`index_plan`).
            attempts: The maximum number of plans, if other writers change the inputs.
            execute: Runs tasks, large ones shared out, and returns their results in the same order.
                Default: one after the other, in this process.

        Raises:
            TableNotFoundError: There is no such table in the newest record.
            RequestError: `attempts` is no integer from 1.
            SiltstoneError: The indexes of a table cannot be built, whatever the reason; nothing of
                it was changed. Those of the others were built.
            ReplacedError: Another store is at the path by now, or none: it was left alone.
        """
        count_of("attempts", attempts, 1)
        work = partial(self._caught_up, is_urgent=is_urgent, attempts=attempts, execute=execute)
        return isolated(self._manifests, table, work, _either)

    def _caught_up(
        self,
        table: int | None,
        record: Record,
        *,
        is_urgent: bool,
        attempts: int,
        execute: Execute | None,
    ) -> CaughtUp | Deferred:
        total, reason = _NOTHING, "other writers won each race"
        hopeless: set[str] = set()
        for attempt in range(attempts):
            # Once: a base whose keys cannot be read stays without runs.
            is_covering = not is_urgent and attempt == 0
            try:
                record, lease = self._manifests.lease_newest(record)
                with lease:
                    cross(Failpoint.INDEX_BEFORE_PLAN)
                    found = self._places(
                        record, table, hopeless, is_urgent=is_urgent, is_covering=is_covering
                    )
                    places = list(found)
                    if not places:
                        return total
                    done = self._attempt(record, places, hopeless, execute)
            except (GcHorizonError, BusyError) as error:
                reason = str(error)
                continue
            total = _sum(total, done)
        return total if total.segments else Deferred(reason, attempts)

    def catch_up_late(self, table: int | None = None, execute: Execute | None = None) -> None:
        """Update indexes that a merge left far behind; leave failures to the next optimize."""
        try:
            self.catch_up(table, is_urgent=True, execute=execute)
        except SiltstoneError as error:
            which = "all tables" if table is None else f"table #{table}"
            _log.warning("the indexes of %s are not up to date yet: %s", which, error)

    def _places(
        self,
        record: Record,
        wanted_id: int | None,
        hopeless: set[str],
        *,
        is_urgent: bool,
        is_covering: bool,
    ) -> Iterator[_Place]:
        if wanted_id is not None:
            catalogs.living(record.catalog, wanted_id)  # refuse a table that is unknown
        for table, storage in candidates(record, wanted_id):
            if storage.base is None:
                continue
            if is_urgent and not declared_on(record, table.id):
                continue
            opened = self._tables.reader.open(storage.base)
            lagging = tasks_of(record, table, storage, opened, is_urgent=is_urgent)
            tasks = tuple(task for task in lagging if _key(task) not in hopeless)
            lacks_runs = is_covering and self._lacks_runs(table, storage, storage.base)
            if tasks or lacks_runs or unwanted(record, table, storage, opened):
                yield _Place(catalogs.name_of(table), storage.incarnation, tasks, lacks_runs)

    def _lacks_runs(self, table: TableDefinition, storage: KeyedStorage, base: Pin) -> bool:
        """Say whether some part of a base has no run of a kind that its keys need."""
        keys = self._tables.keys.open(base)
        schema = catalogs.schema_by_id(table, storage.base_schema)
        needs_order = not table_schema_of(schema).codec.exact
        return bool(keys.uncovered) or (needs_order and bool(keys.in_order.uncovered))

    def _attempt(
        self, record: Record, places: Sequence[_Place], hopeless: set[str], execute: Execute | None
    ) -> CaughtUp:
        """Build and publish once."""
        cross(Failpoint.INDEX_AFTER_PLAN)
        names = tuple(sorted({place.name for place in places}))
        tasks = [task for place in places for task in place.tasks]
        inputs = tuple(f"{task.pin.folder}:{task.spec.column}" for task in tasks)
        with self._jobs.begin(_KIND, names, inputs, above_us=record.gc_horizon_us) as job:
            cross(Failpoint.INDEX_BEFORE_BUILD)
            built = list(self._built(tasks, hopeless, execute))
            cross(Failpoint.INDEX_AFTER_BUILD)
            found = self._publish(record, places, built, job.as_written())
            job.finish()
            return found

    def _built(
        self, tasks: Sequence[IndexTask], hopeless: set[str], execute: Execute | None
    ) -> Iterator[_Built]:
        shares = [task.shares() if execute is not None else (task,) for task in tasks]
        every = [one for some in shares for one in some]
        outcomes = dict(zip(every, (execute or self._run_here)(every), strict=True))
        for task, some in zip(tasks, shares, strict=True):
            segments = dict[IndexTask, BuiltSegment]()
            for share in some:
                outcome = outcomes[share]
                if isinstance(outcome, Unfit):
                    name, folder = task.spec.name, task.pin.folder
                    _log.warning("no index %s over %s: %s", name, folder, outcome.reason)
                    hopeless.add(_key(task))
                else:
                    segments[share] = outcome
            recall = self._recall(task, [*segments.values()])
            yield from (_Built(share, segment, recall) for share, segment in segments.items())

    def _run_here(self, tasks: Sequence[IndexTask]) -> Iterator[BuiltSegment | Unfit]:
        return (task.run_on(self._tables.indexer) for task in tasks)

    def _recall(self, task: IndexTask, segments: Sequence[BuiltSegment]) -> float | None:
        """Return the recall of a base with segments; no record names that version."""
        if not task.is_measured or not segments:
            return None
        pin = self._tables.indexer.put(task.pin, segments, task.gone)
        return recall_of(self._tables.reader.open(pin), task.spec)

    def _publish(
        self, record: Record, places: Sequence[_Place], built: Sequence[_Built], job: Job
    ) -> CaughtUp:
        """Put on the bases of the newest record what fits them; return what did."""
        fitting: list[_Built] = []

        def change(now: Record) -> Record:
            refuse_below_gc_horizon(now, job.started_us)
            fitting.clear()
            pins: dict[int, Pin] = {}
            for place in places:
                pin = self._changed(now, place, built, fitting)
                if pin is not None:
                    pins[place.incarnation] = pin
            if not pins:
                return now
            cross(Failpoint.INDEX_BEFORE_PUBLISH)
            keyed = tuple(
                msgspec.structs.replace(storage, base=pins.get(storage.incarnation, storage.base))
                for storage in now.keyed
            )
            return _with_recalls(msgspec.structs.replace(now, keyed=keyed), fitting)

        published = self._manifests.publish(change, base=record)
        cross(Failpoint.INDEX_AFTER_PUBLISH)
        self._promote(published)
        return CaughtUp(
            tuple(sorted({one.task.table for one in fitting})),
            len(fitting),
            sum(one.task.rows for one in fitting),
        )

    def _changed(
        self, now: Record, place: _Place, built: Sequence[_Built], fitting: list[_Built]
    ) -> Pin | None:
        """Return the base of `now` with what fits it, and without segments that are not wanted."""
        storage = next((s for s in now.keyed if s.incarnation == place.incarnation), None)
        if storage is None or storage.base is None:
            return None  # dropped or truncated meanwhile: nothing is left to do
        table = catalogs.owner_of(now.catalog, storage.incarnation)
        opened = self._tables.reader.open(storage.base)
        names = {spec.name for spec in wanted(now, table, storage)}
        gone = unwanted(now, table, storage, opened)
        mine = [
            one
            for one in built
            if one.task.incarnation == place.incarnation and one.task.spec.name in names
        ]

        def put(on: Pin, some: Sequence[_Built]) -> Pin:
            old = [*gone, *(number for one in some for number in one.task.gone)]
            return self._tables.indexer.put(on, [one.segment for one in some], old)

        pin, fits = put_fitting(storage.base, mine, put)
        fitting += fits
        if place.is_uncovered:
            schema = catalogs.schema_by_id(table, storage.base_schema)
            pin = self._tables.keys.cover(pin, table_schema_of(schema).codec, in_order=True)
        return None if pin == storage.base else pin


class TableIndexes:
    """The owner creates and drops indexes of a table. Any thread; holds no lock and no state.

    checkpoint, so that the newest record has the table ─▶ declare or drop ─▶ build ─▶ refresh

    A record cannot declare an index of a table that only the log has: after a power loss in async
    mode the id of the table might be used again. A checkpoint takes seconds, in which the table may
    be renamed and another one may take its name, so all steps use its id. Those of a plain table
    are commits (`plain_indexes`).
    """

    def __init__(self, indexer: Indexer, checkpointer: Checkpointer, core: Core) -> None:
        self._indexer, self._checkpointer, self._core = indexer, checkpointer, core

    def _is_plain(self, table: int) -> bool:
        found = catalogs.living(self._core.state().view.catalog, table)
        return not catalogs.schema_of(found).key

    def find(self, table: str) -> int:
        """Return the id of a table by its name, as of the newest record, after a checkpoint.

        Raises:
            TableNotFoundError: There is no such table.
        """
        return catalogs.find(self._checkpointer.checkpoint().catalog, table).id

    def create(
        self,
        table: int,
        column: str,
        kind: str,
        *,
        name: str | None,
        options: Mapping[str, object],
        is_built: bool,
    ) -> IndexStatus:
        """Declare an index and, with `is_built`, build it over the present base; return it.

        Raises:
            As `Indexer.declare`; a TableNotFoundError also if the table is dropped meanwhile, and a
                RequestError if the index is. Of a plain table: as `PlainIndexes.create`, and a
                RequestError without `is_built`.
        """
        flag_of("build", is_built)
        if self._is_plain(table):
            if not is_built:
                raise RequestError("an index of a plain table is built at once: leave build out")
            called = check_name(column if name is None else name)
            return PlainIndexes(self._core).create(table, column, kind, called, options)
        self._checkpointer.checkpoint()
        index = self._indexer.declare(table, column, kind, name=name, options=options)
        if is_built:
            self._indexer.catch_up(table)
        self._checkpointer.refresh()
        return self._status(table, index.name)

    def _status(self, table: int, name: str) -> IndexStatus:
        view = self._core.state().view
        definition = catalogs.living(view.catalog, table)
        number = catalogs.incarnation_of(definition).id
        storage = next((s for s in view.record.keyed if s.incarnation == number), None)
        found = statuses(view.record, definition, storage, self._core.tables.reader)
        for index in found:
            if index.name == name:
                return index
        raise RequestError(
            f"{catalogs.name_of(definition)!r} has no index {name!r} any more: it, or its column,"
            " was dropped as soon as it was made"
        )

    def drop(self, table: int, name: str) -> None:
        """Drop an index, and remove it from base.

        Raises:
            As `Indexer.drop`; a TableNotFoundError also if the table is dropped meanwhile.
        """
        if self._is_plain(table):
            PlainIndexes(self._core).drop(table, name)
            return
        self._checkpointer.checkpoint()
        self._indexer.drop(table, name)
        self._indexer.catch_up(table)
        self._checkpointer.refresh()


def _declared(
    now: Record,
    table: TableDefinition,
    column: str,
    kind: object,
    name: str,
    options: Mapping[str, object],
) -> Index:
    """Return the index that the record after `now` may declare."""
    called, schema = catalogs.name_of(table), catalogs.schema_of(table)
    _refuse_plain(table)
    refuse_taken(called, [index.name for index in declared_on(now, table.id)], name)
    table_schema = table_schema_of(schema)
    type_ = column_of(called, table_schema, column).type
    number = next(n for n, known in table_schema.names.items() if known == column)
    found = check_kind(kind, column, type_)
    return Index(
        table.id, name, number, found, now.number + 1, check_options(found, options, type_)
    )


def _refuse_plain(table: TableDefinition) -> None:
    if not catalogs.schema_of(table).key:
        reason = "its indexes are versions of it, which only the process that owns the store makes"
        raise RequestError(f"{catalogs.name_of(table)!r} is a plain table: {reason}")


def _with_indexes(record: Record, indexes: tuple[Index, ...]) -> Record:
    return msgspec.structs.replace(record, indexes=indexes)


def _with_recalls(record: Record, fitting: Sequence[_Built]) -> Record:
    """Return the record with what was measured of the indexes that get a segment."""
    found = {one.task.spec.name: one.recall for one in fitting if one.recall is not None}
    if not found:
        return record
    indexes = tuple(
        msgspec.structs.replace(index, recall=found.get(stored_name(index), index.recall))
        for index in record.indexes
    )
    return _with_indexes(record, indexes)


def _key(task: IndexTask) -> str:
    return f"{task.incarnation}/{task.spec.name}"


def _either(one: CaughtUp | Deferred, other: CaughtUp | Deferred) -> CaughtUp | Deferred:
    """Return what was done of both; deferred if both are."""
    if isinstance(one, Deferred):
        return other
    return one if isinstance(other, Deferred) else _sum(one, other)


def _sum(one: CaughtUp, other: CaughtUp) -> CaughtUp:
    return CaughtUp(
        tuple(sorted({*one.tables, *other.tables})),
        one.segments + other.segments,
        one.rows + other.rows,
    )
