"""Parts: what an open store is made of, and the order in which its parts end."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from siltstone import errors
from siltstone.api.serving import Endpoint, Service, server_of
from siltstone.choices import Outcome
from siltstone.engine.catalog.commit_log import transaction_id
from siltstone.engine.commit.committer import Committer
from siltstone.engine.commit.core import Core
from siltstone.engine.commit.reservations import Reservations
from siltstone.engine.read.past import CommitHistory
from siltstone.engine.read.view import GivenUp
from siltstone.engine.recover.following import Follower
from siltstone.engine.recover.nearby import Nearby
from siltstone.failpoints import Failpoint, cross
from siltstone.lance_versions.turns import Turns
from siltstone.maintenance.compaction.optimize import Optimizer
from siltstone.maintenance.flush.checkpoint import Checkpointer
from siltstone.maintenance.flush.idle import Rest
from siltstone.maintenance.flush.refresh import folded_bases, followed
from siltstone.maintenance.gc.vacuum import Vacuum
from siltstone.maintenance.index.indexer import TableIndexes
from siltstone.maintenance.merge.merge import Merger
from siltstone.maintenance.merge.merge_child import MergeChild
from siltstone.maintenance.schedule.scheduler import Scheduler
from siltstone.maintenance.schedule.syncer import Syncer
from siltstone.maintenance.schedule.upkeep import Ending, Upkeep
from siltstone.open.environment import Env, Storage, core_of, log_elsewhere
from siltstone.options import Options
from siltstone.storage.files.files import REMOTE_TYPES
from siltstone.storage.manifest.ownership import Ownership
from siltstone.storage.manifest.witness import Witness
from siltstone.storage.site import Site
from siltstone.storage.wal.wal import Wal
from siltstone.telemetry.notices import NoticeLog, settle

if TYPE_CHECKING:
    from siltstone.lance_versions.fresh import FreshVersions
    from siltstone.maintenance.backup.following import Following
    from siltstone.maintenance.schedule.status import Counts
    from siltstone.maintenance.shipping.shipper import Shipper


_log = NoticeLog(__name__)
_FINAL = (errors.FencedError, errors.PoisonedError, errors.ReplacedError)


@dataclass(slots=True)
class Owner:
    """The parts that only the owner has."""

    ownership: Ownership
    wal: Wal
    committer: Committer
    checkpointer: Checkpointer
    merger: Merger
    optimizer: Optimizer
    indexes: TableIndexes
    merge_child: MergeChild
    optimize_child: MergeChild
    syncer: Syncer
    vacuum: Vacuum
    rest: Rest
    upkeep: Upkeep
    mirror: Following | None = None
    shipper: Shipper | None = None
    close_mirror_s: float = 0.0
    scheduler: Scheduler = field(init=False)
    """Made last: it runs the others."""

    def failure(self) -> str | None:
        """Return why nothing can be written until the store is opened again, or None."""
        if self.committer.poisoned:
            return "an earlier commit is in doubt"
        found = self.checkpointer.fenced or self.scheduler.failure
        return errors.in_words(found) if isinstance(found, _FINAL) else None

    def close(self, ending: Ending) -> None:
        """End all parts, in this order; if one of them raises, the others still end."""
        with ExitStack() as last_first:
            last_first.callback(self._tell)
            last_first.callback(self._let_go)
            last_first.callback(self.ownership.release)
            last_first.callback(self._end_mirror, ending)
            last_first.callback(self._end_shipper, ending)
            last_first.callback(self._close_log, ending)
            last_first.callback(self.rest.at_the_end)
            last_first.callback(self.merge_child.stop)
            last_first.callback(self.optimize_child.stop)
            last_first.callback(self.scheduler.stop)
            last_first.callback(self.syncer.stop)
            last_first.callback(self.checkpointer.end)

    def _tell(self) -> None:
        """Tell that the store is closed, and wait a moment for its last lines."""
        visible = self.committer.state.visible
        _log.info("closed %s: seq %d", self.ownership.root, visible)
        settle()

    def _close_log(self, ending: Ending) -> None:
        if self.committer.poisoned:
            self.wal.close()
            return
        self.committer.run(self.wal.close)
        cross(Failpoint.END_AFTER_LOG)
        if self.failure() is None:
            self.upkeep.run(self.committer.state.view, ending)

    def _end_mirror(self, ending: Ending) -> None:
        """Copy what was flushed last, as far as it fits; all stores of an exit share the time."""
        if self.mirror is None:
            return
        began = time.monotonic()
        try:
            self.mirror.finish(
                max(0.0, self.close_mirror_s - ending.mirrored_s),
                lambda: ending.is_stopped or self.ownership.is_wished(),
            )
        except errors.SiltstoneError as error:
            _log.warning("the mirror did not end as it should: %s", errors.in_words(error))
        ending.mirrored_s += time.monotonic() - began

    def _end_shipper(self, ending: Ending) -> None:
        """Ship what is durable, as far as it fits into the time that the mirror has, too."""
        if self.shipper is not None:
            began = time.monotonic()
            self.shipper.finish(max(0.0, self.close_mirror_s - ending.mirrored_s))
            ending.mirrored_s += time.monotonic() - began

    def _let_go(self) -> None:
        """Release the record: from now on only snapshots that are open keep it from vacuum.

        Parts refer to each other, so memory would keep it until Python collects such cycles.
        """
        gone = GivenUp(f"the store {self.ownership.root} is closed")
        self.committer.swap_view(lambda view: view.changed(lease=None, levels=gone, sealed=()))


@dataclass(slots=True)
class Parts:
    """An open store: an owner's, or a follower's, which only reads."""

    core: Core
    storage: Storage
    commits: CommitHistory
    first_seq: int
    owner: Owner | None = None
    follower: Follower | Nearby | None = None
    endpoint: Endpoint | None = None
    service: Service | None = None
    fresh: FreshVersions | None = None
    tag_turns: Turns = field(default_factory=Turns)
    reservations: Reservations = field(default_factory=Reservations)
    witness: Witness = field(init=False)

    def __post_init__(self) -> None:
        self.witness = Witness(self.site.files, self.site.root)

    @property
    def site(self) -> Site:
        """The store's files, as any process works with them."""
        return self.storage.site

    def counts(self) -> Counts:
        """Return what `status` needs besides the state."""
        from siltstone.maintenance.schedule.status import Counts  # noqa: PLC0415 - few ask for it

        if self.owner is None:
            return Counts(self.core.state().visible, self.first_seq, is_read_only=True)
        failure, committer = self.owner.scheduler.last_failure, self.owner.committer
        ships = self.core.shipper
        return Counts(
            committer.durable_seq,
            self.first_seq,
            self.core.transactions.count,
            self.core.recent.nbytes,
            self.owner.scheduler.pace.backpressure(committer.state.view, committer.active_bytes),
            None if failure is None else errors.in_words(failure),
            shipped_seq=ships.shipped_seq if ships is not None and ships.is_begun else None,
            shipping=None if ships is None else ships.failure,
            mirror=self.owner.mirror,
        )

    def outcome(self, asked: str, *, spends: bool) -> Outcome:
        """Return "committed", "not committed" or "in doubt"; see `Store.outcome` for the errors.

        Args:
            asked: A transaction's id.
            spends: Refuse a later commit with this id, so that "not committed" can be promised;
                without it the answer is "in doubt" instead.
        """
        epoch, _, number = asked.partition("-")
        state = self.core.state()
        if not (epoch.isdecimal() and number.isdecimal()) or int(epoch) > state.view.record.epoch:
            raise errors.RequestError(f"no transaction of this store is called {asked!r}")
        found = int(epoch), int(number)
        committer = self.core.committer
        # This takes a number itself, so that no commit gets one that was called none of ours.
        is_of_now = committer is not None and found[0] == state.view.record.epoch
        if is_of_now and found[1] >= next(self.core.numbers):
            raise errors.RequestError(f"no transaction of this store is called {asked!r} yet")
        is_over = spends and self.reservations.spend(transaction_id(*found))
        state = self.core.state()  # read after that, so that it has every commit that ran before
        if self.commits.find(state, *found) is not None:
            return "committed"
        if self.commits.is_forgotten(state, *found):
            oldest = state.view.record.oldest_seq
            raise errors.SnapshotExpiredError(f"transaction {asked}", oldest, state.visible)
        if committer is None or not is_over:
            return "in doubt"
        return "in doubt" if is_of_now and committer.poisoned else "not committed"

    def announce(self, endpoint: Path | None = None) -> None:
        """Write into LOCK who owns the store and where it can be joined.

        Args:
            endpoint: That of a socket that is about to answer.

        Raises:
            UnavailableError: As `Ownership.announce`.
        """
        if endpoint is None and self.endpoint is not None:
            endpoint = self.endpoint.address
        if self.owner is not None:
            self.owner.ownership.announce(
                epoch=self.core.state().view.record.epoch,
                endpoint=None if endpoint is None else str(endpoint),
                url=None if self.service is None else self.service.advertised,
            )

    def end_servers(self) -> None:
        """Stop the servers; the store stays open, and LOCK says that none can join any more."""
        owner = self.owner
        is_served = self.endpoint is not None or self.service is not None
        if owner is not None and owner.ownership.is_held and is_served:
            owner.ownership.will_not_serve()
            with suppress(errors.UnavailableError):  # LOCK is a hint
                owner.ownership.announce(epoch=self.core.state().view.record.epoch)
        for server in (self.service, self.endpoint):
            if server is not None:
                server.close()

    def close(self, ending: Ending | None = None) -> None:
        """End all parts; a second call ends what the first one did not.

        Args:
            ending: How the owner ends; by default without an upkeep.
        """
        self.site.tables.reader.release()
        self.core.spares.close()
        if self.fresh is not None:
            self.fresh.close()
        if self.follower is not None:
            self.follower.close()
        if self.owner is None or not self.owner.ownership.is_held:
            self.site.files.let_go()
            return  # the store, and the socket's name, may be another's by now
        try:
            for server in (self.service, self.endpoint):
                if server is not None:
                    server.close()
        finally:
            try:
                with self.core.doubts:  # released last: until then no other process owns the store
                    self.owner.close(ending or Ending(upkeep=False))
            finally:
                if not self.owner.ownership.is_held:
                    self.site.files.let_go()


def follow_store(root: Path, options: Options, env: Env) -> Parts:
    """Return the parts of the store at `root`, to read it, with or without an owner.

    It leases the newest record, copies the durable part of the log, and looks again at each read;
    it makes no write call.
    """
    env.require_store(root)
    storage = Storage.of(root, options, env)
    commits = CommitHistory(storage.site.tables.reader)
    site, readers = storage.site, storage.readers
    adopt = partial(followed, readers=readers, resident_bytes_max=options.shares.flushed)
    log = log_elsewhere(site, options.shares.memtables)
    follower = Follower(site.files, root, site.manifests, readers, adopt, log=log)
    try:
        first_seq = follower.state().visible
    except BaseException:
        storage.site.files.let_go()
        raise
    core = core_of(storage, commits, options, follower.state)
    return Parts(core, storage, commits, first_seq, follower=follower)


def follow_beside(root: Path, options: Options, env: Env) -> tuple[Parts, Nearby] | None:
    """Return the parts of a store whose owner, in another process, this one has joined.

    Nothing is read yet. None: its files lie elsewhere, or may not be read, or the options say so.
    """
    bytes_max = options.followed_bytes_max
    storage: Storage | None = None
    try:
        if not bytes_max or env.files.filesystem(root).startswith(REMOTE_TYPES):
            return None
        env.require_store(root)
        storage = Storage.of(root, options, env)
    except (errors.SiltstoneError, OSError):  # the owner has them, and will say what is wrong
        return None
    site, readers = storage.site, storage.readers
    adopt = partial(followed, readers=readers, resident_bytes_max=options.shares.flushed)
    prepare = partial(folded_bases, readers=readers)
    follower = Follower(
        site.files, root, site.manifests, readers, adopt, prepare,
        trusts_mark=True, bytes_max=bytes_max,
    )  # fmt: skip
    nearby = Nearby(follower, site.files, root, time.monotonic, _warm_up)
    commits = CommitHistory(site.tables.reader)
    core = core_of(storage, commits, options, nearby.state)
    return Parts(core, storage, commits, 0, follower=nearby), nearby


def _warm_up(is_settled: bool) -> None:
    """Import what a worker needs later; once it is settled, also what an owner serves with.

    The first array of a process imports pandas, 0.3 s, where that is installed.
    """
    pa.array([0])
    if is_settled:
        with suppress(errors.UnavailableError):  # a package of the extra: it cannot serve
            server_of("serve_local")
