"""Wiring: which parts an open store is made of, and in which order they come up and go down.

    own ─▶ claim an epoch ─▶ replay the log ─▶ scheduler starts      (the owner: `own_store`)
    lease the newest record ─▶ copy the log up to MARK               (beside it: `follow_store`)

Every part gets what it needs here; none looks for another by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from siltstone import threads
from siltstone.engine.commit.admission import TagMovedError
from siltstone.engine.commit.committer import Committer
from siltstone.engine.commit.core import Core, Ids
from siltstone.engine.commit.recent_writes import RECENT_BYTES_MAX, OpenTransactions, RecentWrites
from siltstone.engine.commit.reservations import Reservations
from siltstone.engine.commit.write_set import BLIND, WriteSet
from siltstone.engine.levels.commit_log import transaction_id
from siltstone.engine.read.past import CommitHistory, PastRecords
from siltstone.engine.read.reader import Readers
from siltstone.engine.read.view import GivenUp, State
from siltstone.engine.recover.following import Follower
from siltstone.engine.recover.replay import Replayer, view_of
from siltstone.errors import (
    CorruptionError,
    FencedError,
    PoisonedError,
    RequestError,
    SnapshotExpiredError,
    UnavailableError,
    in_words,
)
from siltstone.formats import group
from siltstone.formats.manifest import Record, Tag
from siltstone.maintenance.compaction.optimize import Optimizer
from siltstone.maintenance.compaction.plain_table_commit import OwnPlainTables, PlainTables
from siltstone.maintenance.directory import Directory
from siltstone.maintenance.flush.checkpoint import Checkpointer
from siltstone.maintenance.flush.idle import Rest
from siltstone.maintenance.gc.live_store import OwnerLive
from siltstone.maintenance.gc.vacuum import Vacuum
from siltstone.maintenance.index.indexer import Indexer
from siltstone.maintenance.index.table_indexes import TableIndexes
from siltstone.maintenance.merge.merge import Merger
from siltstone.maintenance.merge.merge_child import MergeChild
from siltstone.maintenance.repair.quarantine import Quarantine
from siltstone.maintenance.repair.repair import Repairer
from siltstone.maintenance.repair.verify import Verifier
from siltstone.maintenance.schedule.scheduler import (
    KeyWatch,
    Scheduler,
    Work,
    unmerged_index_bytes,
    wants_merge,
    wants_optimize,
)
from siltstone.maintenance.schedule.status import Counts
from siltstone.maintenance.schedule.syncer import Syncer
from siltstone.options import Options
from siltstone.query.fresh import FreshVersions
from siltstone.storage.files.files import Files, RealFiles
from siltstone.storage.lance import lance_tables
from siltstone.storage.manifest.format_check import refuse_newer
from siltstone.storage.manifest.manifest_store import (
    ManifestStore,
    claim_epoch,
    initialise,
    random_token,
    system_time_us,
)
from siltstone.storage.manifest.ownership import Ownership, own
from siltstone.storage.tables.jobs import Jobs
from siltstone.storage.tables.tables import Tables
from siltstone.storage.wal.recovery import Recovery, recover
from siltstone.storage.wal.reserve import Reserve
from siltstone.storage.wal.wal import Wal
from siltstone.units import Epoch, SegmentNumber, Seq


def _lance(root: Path, files: Files, verify: str) -> Tables:
    return lance_tables.lance_tables(root, files, verify=verify)


@dataclass(frozen=True, slots=True)
class Env:
    """The seam to the outside: files, tables, the clock (microseconds), fresh names."""

    files: Files = field(default_factory=RealFiles)
    tables: Callable[[Path, Files, str], Tables] = _lance
    now_us: Callable[[], int] = system_time_us
    new_token: Callable[[], str] = random_token
    warm_up: Callable[[], None] = lance_tables.warm_up


@dataclass(slots=True)
class Owner:
    """What only the owner has."""

    ownership: Ownership
    wal: Wal
    committer: Committer
    checkpointer: Checkpointer
    merger: Merger
    optimizer: Optimizer
    indexes: TableIndexes
    merge_child: MergeChild
    optimize_child: MergeChild
    scheduler: Scheduler
    syncer: Syncer
    vacuum: Vacuum
    rest: Rest

    def failure(self) -> str | None:
        """Say why nothing can be written until the store is opened again, unless it can."""
        if self.committer.poisoned:
            return "an earlier commit is in doubt"
        found = self.checkpointer.fenced or self.scheduler.failure
        return in_words(found) if isinstance(found, FencedError | PoisonedError) else None

    def close(self) -> None:
        """End all parts, in this order; whatever one of them raises, the others end, too."""
        with ExitStack() as last_first:
            last_first.callback(self._let_go)
            last_first.callback(self.ownership.release)
            last_first.callback(self._close_log)
            last_first.callback(self.rest.at_the_end)
            last_first.callback(self.merge_child.stop)
            last_first.callback(self.optimize_child.stop)
            last_first.callback(self.scheduler.stop)
            last_first.callback(self.syncer.stop)
            last_first.callback(self.checkpointer.end)

    def _close_log(self) -> None:
        if not self.committer.poisoned:
            self.committer.run(self.wal.close)
        else:
            self.wal.close()

    def _let_go(self) -> None:
        """Let go of the record: only snapshots that are not closed keep it from vacuum.

        Parts refer to each other, so memory would keep it until Python looks for such circles.
        """
        gone = GivenUp(f"the store {self.ownership.root} is closed")
        self.committer.swap_view(lambda view: view.changed(lease=None, levels=gone, sealed=()))


class Endpoint(Protocol):
    """Where other processes join an open store; `server.endpoint` is one, when it is installed."""

    address: Path

    def close(self) -> None:
        """Stop answering; roll back what is open in joined processes."""
        ...


class Service(Protocol):
    """What answers clients over TCP; `server.rest.service` is one, when it is installed."""

    url: str

    def close(self) -> None:
        """Answer what is inside, roll back what is open, and stop."""
        ...


@dataclass(slots=True)
class Parts:
    core: Core
    commits: CommitHistory
    manifests: ManifestStore
    tables: Tables
    files: Files
    now_us: Callable[[], int]
    first_seq: int
    owner: Owner | None = None
    start_syncing: Callable[[], None] = lambda: None
    endpoint: Endpoint | None = None
    service: Service | None = None
    follower: Follower | None = None
    fresh: FreshVersions | None = None
    reservations: Reservations = field(default_factory=Reservations)

    def counts(self) -> Counts:
        """Return what `status` needs beside the state."""
        if self.owner is None:
            return Counts(self.core.state().visible, self.first_seq, is_read_only=True)
        failure = self.owner.scheduler.last_failure
        return Counts(
            self.owner.committer.durable_seq,
            self.first_seq,
            self.core.transactions.count,
            self.core.recent.nbytes,
            None if failure is None else in_words(failure),
        )

    def outcome(self, asked: str, *, spends: bool) -> str:
        """Return "committed", "not committed" or "in doubt"; see `Store.outcome` for the errors.

        Only who spends the id hears that it is not committed.
        """
        epoch, _, number = asked.partition("-")
        state = self.core.state()
        if not (epoch.isdecimal() and number.isdecimal()) or int(epoch) > state.view.record.epoch:
            raise RequestError(f"no transaction of this store is called {asked!r}")
        found = int(epoch), int(number)
        is_over = spends and self.reservations.spend(transaction_id(*found))
        state = self.core.state()  # of after that: what ran is in it
        if self.commits.find(state, *found) is not None:
            return "committed"
        if self.commits.is_forgotten(state, *found):
            oldest = state.view.record.oldest_seq
            raise SnapshotExpiredError(f"transaction {asked}", oldest, state.visible)
        committer = self.core.committer
        if committer is None or not is_over:
            return "in doubt"
        is_ours = found[0] == state.view.record.epoch
        return "in doubt" if is_ours and committer.poisoned else "not committed"

    def close(self) -> None:
        """End what the handle has; again, what a first time did not end."""
        if self.fresh is not None:
            self.fresh.close()
        if self.follower is not None:
            self.follower.close()
        if self.owner is None or not self.owner.ownership.is_held:
            return  # the store, and the socket's name, may be another's by now
        try:
            for server in (self.service, self.endpoint):
                if server is not None:
                    server.close()
        finally:
            with self.core.doubts:  # let go of last: until then nobody else owns the store
                self.owner.close()


def own_store(root: Path, options: Options, env: Env, *, will_serve: bool = False) -> Parts:
    initialise(env.files, root, now_us=env.now_us, new_token=env.new_token)
    refuse_newer(env.files, root)
    ownership = own(env.files, root, force=options.force, will_serve=will_serve)
    reserve = Reserve(env.files, root, segment_bytes=options.segment_bytes)
    try:
        return reserve.lend(lambda _: _recovered(root, options, env, ownership, reserve))
    except BaseException:
        ownership.release()
        raise


def _recovered(
    root: Path, options: Options, env: Env, ownership: Ownership, reserve: Reserve
) -> Parts:
    manifests = ManifestStore(env.files, root, now_us=env.now_us, new_token=env.new_token)
    record = claim_epoch(manifests, manifests.newest())
    with ExitStack() as if_it_fails:
        lease = manifests.lease(record.number)
        if lease is not None:
            if_it_fails.callback(lease.release)
        tables = env.tables(root, env.files, options.verify)
        if options.background:
            _warm_up(env)
        commits = CommitHistory(tables.reader)
        readers = Readers(
            tables.reader, PastRecords(manifests), index_bytes_max=options.memory_bytes_max // 4
        )
        recovery = _log_of(root, options, env, record, reserve, ownership)
        if_it_fails.callback(_let_go_of_log, recovery.wal)
        replayer = Replayer(view_of(record, lease, readers), readers)
        for frame in recovery.frames:
            replayer.apply(frame.first_seq, frame.payload)
        state = State(replayer.finish(), replayer.last_seq)
        tables.names.unite_all()
        parts = _wired(root, options, env, ownership, manifests, tables, readers, commits,
                       recovery.wal, state, replayer, reserve)  # fmt: skip
        if_it_fails.pop_all()
        return parts


def _warm_up(env: Env) -> None:
    # Not a daemon: an interpreter that ends in the middle of an import may crash.
    warming = threading.Thread(target=env.warm_up, name="siltstone-warm-up")
    with suppress(UnavailableError):  # then the first who needs it waits for it
        threads.start(warming)


def _log_of(
    root: Path,
    options: Options,
    env: Env,
    record: Record,
    reserve: Reserve,
    ownership: Ownership,
) -> Recovery:
    """Recover the log that belongs to a record, which claims the epoch."""
    recovery = recover(
        env.files,
        root / "wal",
        store_id=bytes.fromhex(record.store_id),
        floor=SegmentNumber(record.wal_floor),
        epoch=Epoch(record.epoch),
        quarantine=root / "quarantine",
        segment_bytes=options.segment_bytes,
        last_seq=Seq(record.last_seq),
        reserve=reserve.keep,
        require_in_place=ownership.require_in_place,
    )
    if recovery.start_seq > record.flushed_seq:
        _let_go_of_log(recovery.wal)
        raise CorruptionError(
            root / "wal",
            None,
            f"it begins behind seq {recovery.start_seq}, record {record.number} ends at seq"
            f" {record.flushed_seq}",
        )
    return recovery


def _let_go_of_log(wal: Wal) -> None:
    with suppress(OSError):  # nothing was appended
        wal.close()


def _wired(
    root: Path,
    options: Options,
    env: Env,
    ownership: Ownership,
    manifests: ManifestStore,
    tables: Tables,
    readers: Readers,
    commits: CommitHistory,
    wal: Wal,
    state: State,
    replayer: Replayer,
    reserve: Reserve,
) -> Parts:
    epoch = state.view.record.epoch
    share = options.memory_bytes_max // 8
    recent, transactions = RecentWrites(min(RECENT_BYTES_MAX, share)), OpenTransactions()
    committer = Committer(
        log=wal,
        state=state,
        epoch=epoch,
        last_time_us=replayer.last_time_us,
        clock=env.now_us,
        recent=recent,
        transactions=transactions,
        on_growth=lambda size: scheduler.grown(size),  # noqa: PLW0108 - it is made later
    )
    committer.active_bytes = replayer.nbytes
    checkpointer = Checkpointer(
        committer=committer,
        tables=tables.writer,
        manifests=manifests,
        readers=readers,
        log=wal,
        epoch=epoch,
        resident_bytes_max=options.memory_bytes_max // 8,
        now_us=env.now_us,
        require_in_place=ownership.require_in_place,
        after=Directory(tables).export if options.lance_directory else lambda _: None,
    )
    jobs = Jobs(env.files, root, env.now_us, env.new_token)
    child, tidier = MergeChild(root), MergeChild(root, kind="optimize")
    vacuum = Vacuum(
        files=env.files,
        root=root,
        manifests=manifests,
        tables=tables,
        live=OwnerLive(
            committer, checkpointer, lambda tag: _forget(core, tag), ownership.require_in_place
        ),
        jobs=jobs,
        now_us=env.now_us,
        retention_s=options.retention_s,
        reserve=reserve,
    )
    rest = Rest(committer=committer, log=wal, checkpoint=checkpointer.checkpoint, fit=reserve.fit)
    unmerged_bytes_max = options.memory_bytes_max // 6
    keys = KeyWatch(index_bytes_max=options.memory_bytes_max // 4)
    scheduler = Scheduler(
        committer,
        Work(
            checkpoint=checkpointer.checkpoint,
            adopt_news=checkpointer.adopt_news,
            prepare=lambda: _prepare(ownership, wal),
            merge_runs=lambda: _merge_runs(committer),
            wants_merge=lambda: (
                not child.is_running
                and (
                    wants_merge(committer.state.view)
                    or unmerged_index_bytes(committer.state.view) > share // 2
                )
            ),
            merge=child.start,
            vacuum=vacuum.run,
            is_overdue=lambda: unmerged_index_bytes(committer.state.view) > unmerged_bytes_max,
            hurry=lambda is_waited_for: child.hurry(is_waited_for=is_waited_for),
            backlog=lambda: (
                f"its indexes take {unmerged_index_bytes(committer.state.view) / 1e6:.0f} MB of"
                f" memory, at most {unmerged_bytes_max / 1e6:.0f} MB may wait; a merge is"
                f" {'running' if child.is_running else 'due'}"
            ),
            merge_here=lambda: (work.merger.merge(), checkpointer.adopt_news()),
            wants_optimize=lambda: (
                not tidier.is_running
                and (
                    wants_optimize(committer.state.view, tables.reader)
                    or keys.wants_index(committer.state.view, tables.reader)
                )
            ),
            optimize=tidier.start,
            wants_take_over=lambda: work.optimizer.has_left(),  # noqa: PLW0108 - it is made later
            take_finished=lambda: work.optimizer.take_finished(),  # noqa: PLW0108 - as above
            rest=rest.when_idle,
        ),
        memtable_bytes_max=_memtable_bytes_max(options),
        sealed_generations_max=options.sealed_generations_max,
        room_timeout_s=options.room_timeout_s,
        is_background=options.background,
    )
    core = Core(
        tables=tables,
        readers=readers,
        state=committer.current,
        find_token=lambda token: commits.find_token(committer.state, token),
        touched=commits.touched,
        files=env.files,
        new_token=env.new_token,
        now_us=env.now_us,
        gc_horizon_us=lambda: _gc_horizon_us(manifests, committer.state.view.record),
        hold=jobs.hold,
        root=root,
        verify=options.verify,
        committer=committer,
        recent=recent,
        transactions=transactions,
        room=scheduler.room,
        after_commit=scheduler.after_commit,
        ids=Ids(state.view.catalog.next_id),
    )
    work = maintainers(manifests, tables, readers, jobs, OwnPlainTables(core))
    reserve.fit(wal.size)
    ownership.announce(epoch=epoch)
    syncer = Syncer(committer, options.sync_interval_ms)
    owner = Owner(
        ownership,
        wal,
        committer,
        checkpointer,
        work.merger,
        work.optimizer,
        TableIndexes(work.indexer, checkpointer),
        child,
        tidier,
        scheduler,
        syncer,
        vacuum,
        rest,
    )
    scheduler.start()
    return Parts(
        core, commits, manifests, tables, env.files, env.now_us, state.visible, owner, syncer.start
    )


def _memtable_bytes_max(options: Options) -> int:
    """Return when a checkpoint begins: all generations that may wait fit a third of the memory.

    The rest: a quarter for the indexes and row caches of bases, a sixth for those of un-merged
    history, an eighth each for flushed memtables that stay and for recent writes.
    """
    generations = options.sealed_generations_max + 1
    share = options.memory_bytes_max // (3 * generations)
    return min(options.memtable_bytes_max, share)


def _forget(core: Core, tag: Tag) -> None:
    """Forget a tag that has lapsed, unless it was set again or forgotten meanwhile."""
    changes = [group.Tagged(tag.name, None)]
    with suppress(TagMovedError):
        core.submit(WriteSet(next(core.numbers), BLIND, (), changes, lapsed=(tag,)))


def _gc_horizon_us(manifests: ManifestStore, known: Record) -> int:
    """Return before when vacuum takes what nobody published for garbage, as of now."""
    return (manifests.newer_record(known) or known).gc_horizon_us


def _prepare(ownership: Ownership, wal: Wal) -> None:
    """Begin a turn of the background: nothing is done in a directory that is another store's."""
    ownership.require_in_place()
    if wal.wants_next:
        wal.prepare()


def _merge_runs(committer: Committer) -> bool:
    merged = [levels.active.merge_runs() for levels in committer.state.view.levels.values()]
    return any(merged)


def follow_store(root: Path, options: Options, env: Env) -> Parts:
    require_store(root, env)
    manifests = ManifestStore(env.files, root, now_us=env.now_us, new_token=env.new_token)
    tables = env.tables(root, env.files, options.verify)
    commits = CommitHistory(tables.reader)
    readers = Readers(
        tables.reader, PastRecords(manifests), index_bytes_max=options.memory_bytes_max // 4
    )
    follower = Follower(env.files, root, manifests, readers)
    follower.state()
    jobs = Jobs(env.files, root, env.now_us, env.new_token)
    core = Core(
        tables=tables,
        readers=readers,
        state=follower.state,
        find_token=lambda token: commits.find_token(follower.state(), token),
        touched=commits.touched,
        files=env.files,
        new_token=env.new_token,
        now_us=env.now_us,
        gc_horizon_us=lambda: _gc_horizon_us(manifests, follower.state().view.record),
        hold=jobs.hold,
        root=root,
        verify=options.verify,
    )
    first_seq = follower.state().visible
    return Parts(
        core, commits, manifests, tables, env.files, env.now_us, first_seq, follower=follower
    )


@dataclass(frozen=True, slots=True)
class Maintainers:
    """What any process may do to a store, whoever owns it."""

    merger: Merger
    optimizer: Optimizer
    indexer: Indexer


def maintainers(
    manifests: ManifestStore, tables: Tables, readers: Readers, jobs: Jobs, plain: PlainTables
) -> Maintainers:
    """Return the maintainers of a store; they hold no lock and no state."""
    merger, indexer = _merging(manifests, tables, readers, jobs)
    optimizer = Optimizer(manifests, tables, merger.promote_late, jobs, indexer, plain)
    return Maintainers(merger, optimizer, indexer)


def _merging(
    manifests: ManifestStore, tables: Tables, readers: Readers, jobs: Jobs
) -> tuple[Merger, Indexer]:
    """Return the two that call each other."""
    merger = Merger(
        manifests,
        tables,
        readers,
        jobs,
        lambda table: indexer.catch_up_late(table),  # noqa: PLW0108 - it is made later
    )
    indexer = Indexer(manifests, tables, merger.promote_late, jobs)
    return merger, indexer


@dataclass(frozen=True, slots=True)
class Carers:
    """What looks after a store, also one that does not open any more."""

    verifier: Verifier
    repairer: Repairer


def carers(
    files: Files,
    root: Path,
    manifests: ManifestStore,
    tables: Tables,
    readers: Readers,
    *,
    now_us: Callable[[], int],
) -> Carers:
    """Return the carers of a store; they hold no lock and no state between two calls."""
    jobs = Jobs(files, root, now_us, random_token)
    _, indexer = _merging(manifests, tables, readers, jobs)
    verifier = Verifier(
        files=files, root=root, manifests=manifests, tables=tables, readers=readers, jobs=jobs
    )
    repairer = Repairer(
        files=files,
        root=root,
        manifests=manifests,
        tables=tables,
        verifier=verifier,
        quarantine=Quarantine(files, root, now_us=now_us, new_token=random_token),
        jobs=jobs,
        indexer=indexer,
        now_us=now_us,
    )
    return Carers(verifier, repairer)


def require_store(root: Path, env: Env) -> None:
    """Refuse what is no directory, and what a newer siltstone wrote: all other doors are behind."""
    if not env.files.is_dir(root):
        raise RequestError(f"{root} is not a store: there is no such directory")
    if not env.files.is_dir(root / "manifest"):
        raise RequestError(f"{root} is not a siltstone store: it has no directory 'manifest'")
    refuse_newer(env.files, root)
