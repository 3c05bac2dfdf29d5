"""Owner: how a store that this process owns comes up.

    own ─▶ claim an epoch ─▶ replay the log ─▶ make the parts ─▶ start the scheduler

Every part gets what it needs when it is made; none looks for another by itself. The committer and
the core are made before the scheduler, which holds writers back, and hear of it once it is there.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from siltstone.engine.commit.committer import Committer
from siltstone.engine.commit.core import Core
from siltstone.engine.commit.recent_writes import OpenTransactions, RecentWrites
from siltstone.engine.read.past import CommitHistory
from siltstone.engine.read.view import State
from siltstone.engine.recover.following import Followed
from siltstone.engine.recover.replay import Replayer, view_of
from siltstone.errors import CorruptionError, SiltstoneError, UnavailableError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats.manifest import Record, pins_of
from siltstone.maintenance.compaction.plain_table_commit import OwnPlainTables
from siltstone.maintenance.flush.checkpoint import Checkpointer
from siltstone.maintenance.flush.idle import Rest
from siltstone.maintenance.gc.live_store import OwnerLive
from siltstone.maintenance.gc.superseded import Superseded
from siltstone.maintenance.gc.vacuum import Vacuum
from siltstone.maintenance.index.indexer import TableIndexes
from siltstone.maintenance.merge.merge_child import MergeChild
from siltstone.maintenance.schedule.overdue import vacuumed_s_ago
from siltstone.maintenance.schedule.scheduler import Scheduler
from siltstone.maintenance.schedule.syncer import Syncer
from siltstone.maintenance.schedule.upkeep import Upkeep, Workers
from siltstone.open.background import Background
from siltstone.open.environment import Env, Storage, core_of, give_way, maintainers
from siltstone.open.parts import Owner, Parts
from siltstone.open.takeover import taken_over
from siltstone.options import Options
from siltstone.process import malloc, threads
from siltstone.process.latency import Latency
from siltstone.storage.files.files import GROUP_MODE, PRIVATE_MODE
from siltstone.storage.files.place import require_links
from siltstone.storage.lance.lance_tables import require_threads
from siltstone.storage.manifest.format_check import refuse_others
from siltstone.storage.manifest.manifest_store import claim_epoch, initialise, system_time_us
from siltstone.storage.manifest.ownership import Ownership, own
from siltstone.storage.site import bound_to
from siltstone.storage.wal.chain import Confirmed
from siltstone.storage.wal.recovery import Recovery, recover
from siltstone.storage.wal.reserve import Reserve
from siltstone.storage.wal.wal import Wal
from siltstone.telemetry.notices import NoticeLog
from siltstone.telemetry.works import Works, WorkTimes
from siltstone.units import Epoch, SegmentNumber, Seq

if TYPE_CHECKING:
    from siltstone.maintenance.backup.following import Following
    from siltstone.maintenance.shipping.shipper import Shipper

_log = NoticeLog(__name__)


def own_store(
    root: Path,
    options: Options,
    env: Env,
    *,
    will_serve: bool = False,
    ends: bool = False,
    followed: Callable[[], Followed | None] = lambda: None,
) -> Parts:
    """Own the store at `root`, which is made if there is none, and return its parts.

    Args:
        root: As `paths.root_of` returns it.
        options: Of the store.
        env: The seam to the outside.
        will_serve: Note in LOCK that others will be able to join.
        ends: Note there that this process only maintains the store, and gives way to others.
        followed: Hands over what this process has read of the log, once it owns the store.

    Raises:
        RequestError: Lance does not work in this process.
    """
    require_threads()  # before the directory is made
    mode = GROUP_MODE if options.group_access else PRIVATE_MODE
    initialise(env.files, root, now_us=env.now_us, new_token=env.new_token, mode=mode)
    env = replace(env, files=bound_to(env.files, root))
    with ExitStack() as if_it_fails:
        if_it_fails.callback(env.files.let_go)
        refuse_others(env.files, root)
        require_links(env.files, root / "manifest")
        ownership = own(env.files, root, force=options.force, will_serve=will_serve, ends=ends)
        if_it_fails.callback(ownership.release)
        storage = Storage.of(root, options, env)
        reserve = Reserve(
            env.files, root, segment_bytes=options.segment_bytes, give_way=give_way(storage)
        )

        def opened(_: object) -> Parts:
            return _Opening(storage, options, env, ownership, reserve).run(followed)

        parts = reserve.lend(opened)
        if_it_fails.pop_all()
        return parts


class _Opening:
    """One opening of a store that is owned: recovery, then the parts, in the order of need."""

    def __init__(
        self, storage: Storage, options: Options, env: Env, ownership: Ownership, reserve: Reserve
    ) -> None:
        self._root, self._options, self._env = storage.site.root, options, env
        self._ownership, self._reserve = ownership, reserve
        self._storage = storage
        self._commits = CommitHistory(self._storage.site.tables.reader)

    def run(self, followed: Callable[[], Followed | None]) -> Parts:
        """Recover the log of the newest record, claim an epoch, and return the parts."""
        manifests = self._storage.site.manifests
        record = claim_epoch(manifests, manifests.newest())
        cross(Failpoint.OWN_AFTER_CLAIM)
        with ExitStack() as if_it_fails:
            lease = manifests.lease(record.number)
            if lease is not None:
                if_it_fails.callback(lease.release)
            if self._options.background and next(pins_of(record), None) is not None:
                _warm_up(self._env)
            recovery, replayer = self._recovered(record, lease, followed())
            if_it_fails.callback(_let_go_of_log, recovery.wal)
            for frame in recovery.frames:
                replayer.apply(frame.first_seq, frame.payload)
            cross(Failpoint.OWN_AFTER_REPLAY)
            state = State(replayer.finish(), replayer.last_seq)
            self._storage.site.tables.names.unite_all()
            parts = self._parts(recovery.wal, state, replayer)
            if_it_fails.pop_all()
        self._tell(record, recovery, state.visible)
        return parts

    def _tell(self, record: Record, recovery: Recovery, visible: int) -> None:
        """Tell that the store is open, and what recovery did."""
        tail = recovery.torn_tail
        _log.info(
            "opened %s: epoch %d, seq %d; recovery found %d commits in the log, and %s",
            self._root,
            record.epoch,
            visible,
            visible - record.flushed_seq,
            "no torn write" if tail is None else f"a torn write, which is now in {tail}",
        )

    def _recovered(
        self, record: Record, lease: object, followed: Followed | None
    ) -> tuple[Recovery, Replayer]:
        """Return the log above what is known, and what applies it."""
        manifests, readers = self._storage.site.manifests, self._storage.readers
        known: Replayer | None = None
        if followed is not None:
            known = taken_over(followed, record, lease, manifests, readers)
        if followed is None or known is None:
            recovery = self._log_of(record, None)
        else:
            recovery = self._log_of(record, followed.place)
        if known is not None and recovery.goes_on:
            return recovery, known
        return recovery, Replayer(view_of(record, lease, readers), readers)

    def _log_of(self, record: Record, known: Confirmed | None) -> Recovery:
        """Recover the log that belongs to a record, which claims the epoch."""
        root = self._root
        recovery = recover(
            self._env.files,
            root / "wal",
            store_id=bytes.fromhex(record.store_id),
            floor=SegmentNumber(record.wal_floor),
            epoch=Epoch(record.epoch),
            quarantine=root / "quarantine",
            segment_bytes=self._options.segment_bytes,
            last_seq=Seq(record.last_seq),
            reserve=self._reserve.keep,
            require_in_place=self._ownership.require_in_place,
            give_way=give_way(self._storage),
            owned=self._ownership,
            known=known,
        )
        if not recovery.goes_on and recovery.start_seq > record.flushed_seq:
            _let_go_of_log(recovery.wal)
            raise CorruptionError(
                root / "wal",
                None,
                f"it begins after sequence number {recovery.start_seq}, and record"
                f" {record.number} ends at {record.flushed_seq}",
            )
        return recovery

    def _parts(self, wal: Wal, state: State, replayer: Replayer) -> Parts:
        options, storage, tables = self._options, self._storage, self._storage.site.tables
        core, committer = self._core(wal, state, replayer)
        checkpointer = Checkpointer(
            storage.site,
            committer=committer,
            readers=storage.readers,
            log=wal,
            resident_bytes_max=options.shares.flushed,
            require_in_place=self._ownership.require_in_place,
            work=core.works.checkpoint,
            load_rows_min=self._env.load_rows_min,
            commit_parts_max=self._env.commit_parts_max,
            after=malloc.trim if options.tune_malloc else None,
        )
        work = maintainers(storage, OwnPlainTables(core))
        live = OwnerLive(core, checkpointer, self._ownership)
        works = core.works
        vacuum = self._vacuum(live, works.vacuum)
        workers = Workers(
            MergeChild(self._root, settings=_cache_settings(options), work=works.merge),
            MergeChild(self._root, kind="optimize", work=works.optimize),
            self._vacuum(replace(live, forgets_tags=False), works.vacuum),
        )
        rest = Rest(
            committer=committer,
            log=wal,
            checkpoint=checkpointer.checkpoint,
            fit=self._reserve.fit,
            is_mirrored=options.mirror is not None,
        )
        owner = Owner(
            ownership=self._ownership,
            wal=wal,
            committer=committer,
            checkpointer=checkpointer,
            merger=work.merger,
            optimizer=work.optimizer,
            indexes=TableIndexes(work.indexer, checkpointer, core),
            merge_child=workers.merge,
            optimize_child=workers.optimize,
            syncer=Syncer(committer, options.sync_interval_ms),
            vacuum=vacuum,
            rest=rest,
            upkeep=Upkeep(storage.site, options, self._ownership, workers, is_on=self._env.is_real),
        )
        owner.mirror = self._env.following(storage.site, options)
        if owner.mirror is not None:
            core.shipper = owner.shipper = _shipper_of(owner.mirror, committer)
        owner.close_mirror_s = options.close_mirror_s
        superseded = Superseded(tables.reader)
        background = Background(
            owner,
            tables.reader,
            options.memory_bytes_max,
            superseded,
            self._env.fallback_bytes_max,
            merges=works.merge,
        )
        owner.scheduler = scheduler = Scheduler(
            committer,
            background,
            memory_bytes_max=options.memory_bytes_max,
            memtable_bytes_max=_memtable_bytes_max(options),
            sealed_generations_max=options.sealed_generations_max,
            room_timeout_s=options.room_timeout_s,
            is_background=options.background,
            vacuumed_s_ago=self._vacuumed_s_ago(),
        )
        committer.heed(scheduler)
        self._reserve.fit(wal.size)
        self._ownership.announce(epoch=state.view.record.epoch)
        self._ownership.recovered()
        scheduler.start()
        if owner.mirror is not None:
            owner.mirror.start()
        return Parts(core, storage, self._commits, state.visible, owner)

    def _vacuum(self, live: OwnerLive, work: WorkTimes) -> Vacuum:
        return Vacuum(
            self._storage.site,
            live,
            retention_s=self._options.retention_s,
            reserve=self._reserve,
            parts=self._storage.readers.parts,
            bounds=self._env.bounds,
            work=work,
        )

    def _vacuumed_s_ago(self) -> float:
        site, is_due = self._storage.site, self._options.background and self._env.is_real
        with suppress(SiltstoneError):  # a reason to vacuum later, not to refuse the store
            return vacuumed_s_ago(site.files, site.manifests) if is_due else 0.0
        return 0.0

    def _core(self, wal: Wal, state: State, replayer: Replayer) -> tuple[Core, Committer]:
        options, storage, commits = self._options, self._storage, self._commits
        recent = RecentWrites(options.shares.recent_writes, floor=state.visible)
        transactions, latency = OpenTransactions(), Latency()
        works = Works()
        committer = Committer(
            log=wal if works.spans is None else works.spans.timed(wal),
            state=state,
            epoch=state.view.record.epoch,
            last_time_us=replayer.last_time_us,
            clock_ns=_nanoseconds(storage.site.now_us),
            clock_s=time.perf_counter,
            recent=recent,
            transactions=transactions,
            latency=latency,
        )
        committer.active_bytes = replayer.nbytes
        core = replace(
            # By name, without a call of Python's: each read and each commit asks.
            core_of(storage, commits, options, partial(getattr, committer.shown, "state")),
            committer=committer,
            recent=recent,
            transactions=transactions,
            latency=latency,
            works=works,
            ids=itertools.count(state.view.catalog.next_id),
        )
        return core, committer


def _shipper_of(mirror: Following, committer: Committer) -> Shipper:
    from siltstone.open.mirroring import shipper_of  # noqa: PLC0415 - few have one

    return shipper_of(mirror.mirrorer, lambda: committer.state.view.record)


def _cache_settings(options: Options) -> dict[str, str]:
    """Return the variables by which a child uses the same cache."""
    given = {"CACHE_BYTES_MAX": options.cache_bytes_max, "SCRATCH": options.scratch}
    return {f"SILTSTONE_{n}": str(v) for n, v in given.items() if v is not None}


def _warm_up(env: Env) -> None:
    # Not a daemon: an interpreter that ends in the middle of an import may crash.
    warming = threading.Thread(target=env.warm_up, name="siltstone-warm-up")
    with suppress(UnavailableError):  # then the first call that needs it waits for it
        threads.start(warming)


def _nanoseconds(now_us: Callable[[], int]) -> Callable[[], int]:
    """Return a clock as the committer asks it: the system's own without a call of Python's."""
    return time.time_ns if now_us is system_time_us else lambda: 1000 * now_us()


def _let_go_of_log(wal: Wal) -> None:
    with suppress(OSError):  # nothing was appended
        wal.close()


def _memtable_bytes_max(options: Options) -> int:
    """Return when a checkpoint begins: all generations that may wait fit the share of memtables."""
    generations = options.sealed_generations_max + 1
    return min(options.memtable_bytes_max, options.shares.memtables // generations)
