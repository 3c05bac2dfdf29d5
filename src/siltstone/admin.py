"""Admin: maintenance, repair and backup of a store from any process, by its path alone.

No process needs to own the store. An owner that is alive needs no message: it picks up what was
published when it refreshes its record.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from siltstone.arguments import flag_of
from siltstone.bucket_url import BucketUrl, is_bucket_url
from siltstone.choices import IndexKind, IndexOptions
from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.read.moment import time_us_of
from siltstone.engine.recover.following import Follower
from siltstone.errors import BusyError, CorruptionError, OwnedError, RequestError
from siltstone.formats.backup import Backup
from siltstone.maintenance.backup.backup import BackedUp, Progress
from siltstone.maintenance.backup.restore import Restored, Restorer
from siltstone.maintenance.compaction.compaction import (
    NOTHING,
    TARGET_ROWS,
    Optimized,
    called,
    total_of,
)
from siltstone.maintenance.compaction.optimize import WORKERS, Execute
from siltstone.maintenance.compaction.plain_table_commit import WAIT_S, PlainTablesOfAnOwner
from siltstone.maintenance.gc.live_store import LiveWithoutOwner
from siltstone.maintenance.gc.sweep import Removed
from siltstone.maintenance.gc.vacuum import GRACE_S, Vacuum, Vacuumed
from siltstone.maintenance.index import index_plan
from siltstone.maintenance.index.indexer import CaughtUp
from siltstone.maintenance.merge import merge_task
from siltstone.maintenance.merge.merge import ATTEMPTS, Deferred, Merged
from siltstone.maintenance.repair.quarantine import Item, Quarantine
from siltstone.maintenance.repair.repair_plan import Repaired, Step
from siltstone.maintenance.repair.verify import Verified
from siltstone.maintenance.schedule.overdue import crumbled
from siltstone.open.environment import Env, Maintainers, Storage, give_way, maintainers
from siltstone.open.maintained import Maintained, due, maintain
from siltstone.open.owner import own_store
from siltstone.open.parts import Owner
from siltstone.options import Options, StoreOptions, resolve
from siltstone.paths import root_of
from siltstone.storage.manifest.ownership import recovered_epoch
from siltstone.storage.wal.reserve import Reserve

if TYPE_CHECKING:
    from siltstone.maintenance.backup.mirror import Mirrored


def merge_store(
    path: str | os.PathLike[str],
    table: str | None = None,
    *,
    attempts: int = ATTEMPTS,
    execute: merge_task.Execute | None = None,
    build: index_plan.Execute | None = None,
    **options: Unpack[StoreOptions],
) -> Merged | Deferred:
    """Merge flushed rows from any process, with or without a live owner; owns nothing.

    Args:
        path: As for `connect`; the store exists.
        table: One table, by its current name, even if only the log has that name yet; rows that
            only the log has stay there. By default all tables, at one seq.
        attempts: How often to plan at most, if other processes change what it reads; after that it
            is `Deferred`.
        execute: Runs the `MergeTask`s that write the rows, wherever, and gives their results in
            the same order; by default one writer here does it all.
        build: Runs the `IndexTask`s that indexes which lag far want afterwards, likewise.
        options: As for `connect`.

    Raises:
        RequestError, TableNotFoundError: No store, or no such table.
        UnavailableError: Nothing was changed.
        SiltstoneError: A table cannot be merged, whatever the reason; all others were.
    """
    parts = _admin(path, options, build=build)
    done = parts.work.merger.merge(parts.id_of(table), attempts=attempts, execute=execute)
    return called(done, table)


def optimize_store(
    path: str | os.PathLike[str],
    table: str | None = None,
    *,
    target_rows: int = TARGET_ROWS,
    attempts: int = ATTEMPTS,
    workers: int = WORKERS,
    by_tiers: bool = False,
    wait_s: float = WAIT_S,
    execute: Execute | None = None,
    build: index_plan.Execute | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    **options: Unpack[StoreOptions],
) -> Optimized | Deferred:
    """Make few large files of many small ones, from any process, as `merge_store`.

    Args:
        path: As for `connect`; the store exists.
        table: One table, as for `merge_store`; by default all, in one publish.
        target_rows: How many rows a file should have.
        attempts: As for `merge_store`.
        workers: How many files are written at once here.
        by_tiers: Leave a file alone that is large compared with those behind it: for frequent
        optimizes.
        wait_s: How long to wait for the owner to publish what was written of plain tables;
            after that the result is `Deferred`, and the owner publishes it later.
        execute: Runs the `CompactTask`s, wherever, and gives their results in the same order.
        build: Runs the `IndexTask`s of indexes that lack rows, likewise.
        on_progress: Called with the number of tasks done, and of all.
        options: As for `connect`.

    Raises:
        RequestError, TableNotFoundError: No store, or no such table.
        SiltstoneError: A table cannot be optimized, whatever the reason; all others were.
    """
    parts = _admin(path, options, wait_s)
    done = parts.work.optimizer.optimize(
        parts.id_of(table),
        target_rows=target_rows,
        by_tiers=by_tiers,
        attempts=attempts,
        workers=workers,
        execute=execute,
        build=build,
        on_progress=on_progress,
    )
    return called(done, table)


def optimize_histories(
    path: str | os.PathLike[str],
    *,
    on_progress: Callable[[int, int], None] | None = None,
    **options: Unpack[StoreOptions],
) -> Optimized | Deferred:
    """Optimize, by tiers, the tables whose histories have many small parts, and nothing else.

    It is `Deferred` if one of them is; the others were optimized.

    Args:
        path: As for `connect`; the store exists.
        on_progress: As for `optimize_store`; of one table after the other.
        options: As for `connect`.

    Raises:
        RequestError, UnavailableError, CorruptionError: As `optimize_store`.
    """
    parts = _admin(path, options)
    site = parts.storage.site
    found = [
        parts.work.optimizer.optimize(table, by_tiers=True, on_progress=on_progress)
        for table in crumbled(site.manifests.newest(), site.tables.reader)
    ]
    late = [each for each in found if isinstance(each, Deferred)]
    done = [each for each in found if isinstance(each, Optimized)]
    return late[0] if late else reduce(total_of, done, NOTHING)


def maintain_store(
    path: str | os.PathLike[str],
    *,
    on_progress: Progress | None = None,
    **options: Unpack[StoreOptions],
) -> Maintained:
    """Own a store that no process owns, and merge, optimize and vacuum it, whichever is due.

    Then its mirror gets what it lacks, if there is one (option `mirror`, or what a close owes).

    It gives way to a process that wants to own the store: that one's `connect` waits until the next
    step. Plain tables are left to `optimize_store`.

    Args:
        path: As for `connect`; the store exists.
        on_progress: Called with the next step, the number of steps done, and of all.
        options: As for `connect`.

    Raises:
        OwnedError: Another process owns it; it does the same by itself, if it has a background.
        RequestError, UnavailableError, CorruptionError: No store, or it does not open.
    """
    return maintain(*_existing(path, options), on_progress)


def due_of(path: str | os.PathLike[str], **options: Unpack[StoreOptions]) -> tuple[str, ...]:
    """Return what is due for a store, by its newest record: "merge", "optimize", "vacuum".

    Args:
        path: As for `connect`; the store exists.
        options: As for `connect`.

    Raises:
        RequestError, UnavailableError, CorruptionError: No store, or it cannot be read.
    """
    return due(*_existing(path, options))


def index_store(
    path: str | os.PathLike[str],
    table: str | None = None,
    *,
    attempts: int = ATTEMPTS,
    build: index_plan.Execute | None = None,
    **options: Unpack[StoreOptions],
) -> CaughtUp | Deferred:
    """Build what indexes lack and rewrite no rows, from any process, as `merge_store`.

    Args:
        path: As for `connect`; the store exists.
        table: One table, as for `merge_store`; by default all. Neither a plain table nor one that
            only the log knows has an index to build.
        attempts: As for `merge_store`.
        build: As for `optimize_store`.
        options: As for `connect`.

    Raises:
        RequestError, TableNotFoundError: No store, or no such table.
        UnavailableError, CorruptionError: Nothing was changed.
    """
    parts = _admin(path, options)
    number = parts.id_of(table)
    if number is not None and not parts.is_recorded(number):
        return CaughtUp((), 0, 0)
    done = parts.work.indexer.catch_up(number, attempts=attempts, execute=build)
    return called(done, table)


def create_index_in(
    path: str | os.PathLike[str],
    table: str,
    column: str,
    kind: IndexKind = "btree",
    *,
    name: str | None = None,
    build: bool = True,
    details: IndexOptions | None = None,
    **options: Unpack[StoreOptions],
) -> None:
    """Have an index on a column of a keyed table, as `Table.create_index`, from any process.

    Without an owner the store is owned for a moment: the log may name the table. Next to one, it is
    a table that the owner has flushed.

    Args:
        path: As for `connect`; the store exists.
        table: Its name now, as for `merge_store`.
        column: The column's name.
        kind: As for `Table.create_index`.
        name: By default that of the column.
        build: False leaves the building to the next optimize, or a merge.
        details: The options of the index.
        options: As for `connect`.

    Raises:
        RequestError, TableNotFoundError: As `Table.create_index`; nothing was changed.
        BusyError: The owner has not flushed the table yet.
        UnavailableError: What is not built yet, the next optimize builds.
    """
    flag_of("build", build)
    more = details or IndexOptions()
    with _owned(path, options) as owner:
        if owner is not None:
            found = owner.indexes.find(table)
            owner.indexes.create(found, column, kind, name=name, options=more, is_built=build)
            return
    parts = _admin(path, options)
    number = parts.flushed_id_of(table)
    parts.work.indexer.declare(number, column, kind, name=name, options=more)
    if build:
        parts.work.indexer.catch_up(number)


def drop_index_in(
    path: str | os.PathLike[str], table: str, name: str, **options: Unpack[StoreOptions]
) -> None:
    """Give an index up, as `Table.drop_index`, from any process, as `create_index_in`.

    Raises:
        RequestError, TableNotFoundError: No such index or table, or the key's own.
        BusyError: The owner has not flushed the table yet.
    """
    with _owned(path, options) as owner:
        if owner is not None:
            owner.indexes.drop(owner.indexes.find(table), name)
            return
    parts = _admin(path, options)
    number = parts.flushed_id_of(table)
    parts.work.indexer.drop(number, name)
    parts.work.indexer.catch_up(number)


@contextlib.contextmanager
def _owned(path: str | os.PathLike[str], options: StoreOptions) -> Generator[Owner | None]:
    """Own a store for a moment; None: another process owns it."""
    root, found, env = _existing(path, options)
    try:
        parts = own_store(root, replace(found, background=False), env)
    except OwnedError:
        yield None
        return
    with contextlib.closing(parts):
        yield parts.owner


@dataclass(frozen=True, slots=True)
class _Admin:
    """Maintains a store by its path, and finds its tables by their names."""

    work: Maintainers
    storage: Storage
    plain: PlainTablesOfAnOwner

    def id_of(self, table: str | None) -> int | None:
        """Return the id of the table that has a name now: a record may know it by another."""
        if table is None:
            return None  # the log is not read for nothing
        with self.plain.catalog() as catalog:
            return catalogs.id_of(catalog, table)

    def is_recorded(self, table: int) -> bool:
        """Say whether the newest record knows the table with an id; else the log alone does."""
        newest = self.storage.site.manifests.newest().catalog
        return catalogs.by_id(newest, table) is not None

    def flushed_id_of(self, table: str) -> int:
        """Return the id of a table that the newest record knows.

        Raises:
            BusyError: It is in the log alone.
        """
        found = self.id_of(table)
        if found is None or not self.is_recorded(found):
            text = "its owner has not flushed it yet: make a checkpoint there, or try again later"
            raise BusyError(f"table {table!r} is in the log alone, {text}")
        return found


def _admin(
    path: str | os.PathLike[str],
    options: StoreOptions,
    wait_s: float = WAIT_S,
    build: index_plan.Execute | None = None,
) -> _Admin:
    storage = _storage(path, options)
    plain = PlainTablesOfAnOwner(
        follow=lambda: _follower(storage),
        own_and_take=lambda: _own_and_take(path, options),
        wait_s=wait_s,
    )
    return _Admin(maintainers(storage, plain, build), storage, plain)


def _storage(path: str | os.PathLike[str], options: StoreOptions) -> Storage:
    """Return the storage of the store at `path`, which must be there."""
    return Storage.of(*_existing(path, options))


def _existing(path: str | os.PathLike[str], options: StoreOptions) -> tuple[Path, Options, Env]:
    """Return the directory, the options and the seam of a store that must be there."""
    root, env = root_of(path), Env()
    env.require_store(root)
    return root, resolve(root, options), env


def _follower(storage: Storage) -> Follower:
    site = storage.site
    return Follower(site.files, site.root, site.manifests, storage.readers)


def _own_and_take(path: str | os.PathLike[str], options: StoreOptions) -> bool:
    """Own the store for a moment, and publish what optimizers left; False: it has an owner."""
    with _owned(path, options) as owner:
        if owner is not None:
            owner.optimizer.take_finished()
        return owner is not None


def vacuum_store(
    path: str | os.PathLike[str],
    *,
    dry_run: bool = True,
    grace_s: float = GRACE_S,
    **options: Unpack[StoreOptions],
) -> Vacuumed:
    """Delete unneeded files, from any process, with or without a live owner.

    Without an owner the store is owned for a moment: what a crash left in the log names files.
    With an owner, tags that lapsed are left to it.

    Args:
        path: As for `connect`; the store exists.
        dry_run: Only say what would go, and why; no write call.
        grace_s: An unpublished file is left alone for so long.
        options: As for `connect`.

    Raises:
        RequestError: No store.
        UnavailableError, BusyError: What was deleted was garbage; call again.
        CorruptionError: A record or a pin that is needed is damaged: its files were spared.
    """
    flag_of("dry_run", dry_run)
    root, found, env = _existing(path, options)
    if not dry_run:
        with _owned(path, options) as owner:
            if owner is not None:
                return _remembered(owner.vacuum, dry_run=False, grace_s=grace_s)
    return follow_vacuum(root, found, env, dry_run=dry_run, grace_s=grace_s)


def follow_vacuum(
    root: Path, options: Options, env: Env, *, dry_run: bool, grace_s: float
) -> Vacuumed:
    """Vacuum next to an owner, as `vacuum_store`; to look only, also without one.

    Raises:
        BusyError: There is no owner that has recovered the log, or it ended meanwhile.
    """
    storage = Storage.of(root, options, env)
    follower = _follower(storage)
    live = LiveWithoutOwner(follower, lambda: 0 if dry_run else recovered_epoch(env.files, root))
    reserve = Reserve(
        env.files, root, segment_bytes=options.segment_bytes, give_way=give_way(storage)
    )
    vacuum = Vacuum(
        storage.site,
        live,
        retention_s=options.retention_s,
        reserve=reserve,
        bounds=env.bounds,
        parts=storage.readers.parts,
    )
    try:
        return _remembered(vacuum, dry_run=dry_run, grace_s=grace_s)
    finally:
        follower.close()


def _remembered(vacuum: Vacuum, *, dry_run: bool, grace_s: float) -> Vacuumed:
    """Vacuum, and list it where the store's owner sees when that was."""
    site = vacuum.site
    begun_us = site.now_us()
    done = vacuum.run(dry_run=dry_run, grace_s=grace_s)
    if not dry_run:
        site.jobs.remember("vacuum", begun_us)
    return done


def verify_store(
    path: str | os.PathLike[str],
    *,
    deep: bool = False,
    on_progress: Progress | None = None,
    storage_options: Mapping[str, str] | None = None,
    **options: Unpack[StoreOptions],
) -> Verified:
    """Read the files of a store and name damaged ones, also of a store that does not open.

    Args:
        path: As for `connect`; the store exists. Or the URL of its mirror in a bucket.
        deep: Read every byte and every row, too.
        on_progress: Called with what is read next, the number of files done, and of all files.
        storage_options: Of the bucket's client, above what the environment says.
        options: As for `connect`.

    Raises:
        RequestError: No store.
    """
    root = root_of(path, only_reads=True)
    Env().require_store(root)
    given = {**options, "storage_options": storage_options}
    storage = Storage.of(root, resolve(root, given), Env())
    return storage.verifier().run(deep=deep, on_progress=on_progress)


def repair(
    path: str | os.PathLike[str],
    *,
    dry_run: bool = True,
    deep: bool = False,
    on_progress: Progress | None = None,
    **options: Unpack[StoreOptions],
) -> Repaired:
    """Repair what intact files prove, move damaged files aside, name the rest; see docs/repair.md.

    Args:
        path: As for `connect`; the store exists. It may be one that does not open any more.
        dry_run: Change nothing, only say what would be done.
        deep: Look for damage in every byte and every row, too.
        on_progress: As for `verify_store`.
        options: As for `connect`.

    Raises:
        RequestError: No store.
        OwnedError: There is something to repair, and a process owns the store.
        BusyError, UnavailableError: Run it again; the file system refuses.

    Examples:
        >>> st.repair("shop").is_whole
        True
    """
    flag_of("dry_run", dry_run)
    place = _existing(path, options)
    found = Storage.of(*place).repairer().run(dry_run=dry_run, deep=deep, on_progress=on_progress)
    return with_orphans(found, *place) if found.is_whole else found


def with_orphans(found: Repaired, root: Path, options: Options, env: Env) -> Repaired:
    """Move aside also what was not published within the grace period, if no process owns the store.

    An owner's vacuum takes it. A store is opened for it, so that all that its log names is known.
    """
    orphans: Sequence[Removed] = ()
    folders = [found.quarantine]
    with contextlib.suppress(CorruptionError, OwnedError):  # before a repair; an owner since
        if recovered_epoch(env.files, root) is None:
            seen = follow_vacuum(root, options, env, dry_run=True, grace_s=GRACE_S)
            orphans = [file for file in seen.files if file.is_orphan]
        if orphans and not found.is_dry_run:
            orphans = ()
            quarantine = Quarantine(Storage.of(root, options, env).site)
            with contextlib.closing(own_store(root, replace(options, background=False), env)) as at:
                assert at.owner is not None
                orphans = at.owner.vacuum.set_aside(
                    lambda files: folders.append(
                        quarantine.take([Item(file.path, file.why) for file in files])
                    )
                )
    steps = tuple(Step(file.path, file.why, "moved to quarantine") for file in orphans)
    return replace(found, steps=(*found.steps, *steps), quarantine=folders[-1] or found.quarantine)


def backup_store(
    path: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    incremental: bool = False,
    link: bool = False,
    skip_damaged: bool = False,
    on_progress: Progress | None = None,
    **options: Unpack[StoreOptions],
) -> BackedUp:
    """Copy all that is durable now into `directory`, from any process, next to a live owner.

    It makes no write call in the store. After a power loss, with no owner since, the last commits
    may be known to the log alone: own the store for a moment before (`connect`, `close`).

    Args:
        path: As for `connect`; the store exists.
        directory: Absent, empty, or one of backups of this store.
        incremental: Files of older backups in the directory serve this one, too.
        link: Make hard links, not copies: no space, and no protection of the bytes.
        skip_damaged: Leave damaged files of tables out; the result, and the backup, name them.
        on_progress: Called with the next file, the bytes done, and the bytes of all.
        options: As for `connect`.

    Raises:
        RequestError: No store; the directory holds something else, or backups.
        CorruptionError: A file of the store is damaged, and not to be left out; it is named.
        BusyError, UnavailableError: Another backup into it runs; the file system refuses.
    """
    backuper = _storage(path, options).backuper()
    return backuper.run(
        root_of(directory),
        incremental=flag_of("incremental", incremental),
        link=flag_of("link", link),
        skip_damaged=flag_of("skip_damaged", skip_damaged),
        on_progress=on_progress,
    )


def mirror_store(
    path: str | os.PathLike[str],
    url: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    trust_conditional_puts: bool = False,
    take: bool = False,
    adopt: bool = False,
    on_progress: Progress | None = None,
    **options: Unpack[StoreOptions],
) -> Mirrored:
    """Have all that is flushed now in a bucket, from any process, next to a live owner.

    What is there already is not sent again. The log is not mirrored: `seq` of the result is the
    recovery point; a `checkpoint` before moves it to the newest commit. `restore` makes a store of
    it.

    Args:
        path: As for `connect`; the store exists. Its directory gets `mirrors/`.
        url: s3://bucket/prefix, gs:// or az://; empty, or the mirror of this store.
        storage_options: Settings of obstore, above those of the environment. Never written, logged
            or pickled.
        trust_conditional_puts: The server puts an object that must be absent atomically, though
            siltstone does not know it.
        take: Take the claim of a mirror on another machine, or of another directory, which is gone.
        adopt: Go on with the mirror from which this store was restored, if nothing did since.
        on_progress: Called with the last file, the bytes done, and the bytes to send.
        options: As for `connect`.

    Raises:
        RequestError: No store; no such bucket; the prefix has something else, the mirror of another
            store, or records of another copy of this one.
        CorruptionError: A file of the store is damaged, and named; or a record of the mirror.
        BusyError: Another mirror is running: of this store here, or one that claimed the bucket.
        UnavailableError: The server does not answer or refuses, or obstore is not installed.
    """
    from siltstone.open.mirroring import Mirroring  # noqa: PLC0415 - few have one

    root, found, env = _existing(path, options)
    site = Storage.of(root, found, env).site
    how = Mirroring(site, url, found.retention_s, storage_options, trust_conditional_puts)
    return how.run(take=take, adopt=adopt, on_progress=on_progress)


def follow_mirror(
    path: str | os.PathLike[str],
    url: str,
    stop: threading.Event,
    *,
    hears: Callable[[Mirrored], object] = lambda _: None,
    storage_options: Mapping[str, str] | None = None,
    trust_conditional_puts: bool = False,
    take: bool = False,
    adopt: bool = False,
    **options: Unpack[StoreOptions],
) -> None:
    """Mirror the store's newest record, and each newest one after it, until `stop` is set.

    Any process may run it, next to a live owner or without one. It waits through an outage of the
    server once it has mirrored something. Once an hour it deletes from the bucket what is older
    than the store's retention.

    Args:
        path: As for `mirror_store`, and so are those not named here.
        url: As for `mirror_store`.
        stop: Ends it at the next request; what is half done goes on with the next mirror.
        hears: Called with what the bucket has, whenever that is more.

    Raises:
        SiltstoneError: As `mirror_store`; RequestError also if another mirror took the claim.
    """
    from siltstone.open.mirroring import Mirroring, Stop  # noqa: PLC0415 - few have one

    root, found, env = _existing(path, options)
    site, ended = Storage.of(root, found, env).site, Stop(stop)
    how = Mirroring(site, url, found.retention_s, storage_options, trust_conditional_puts, ended)
    how.follow(hears, take=take, adopt=adopt)


def require_bucket(url: str) -> None:
    """Check that a text is the URL of a bucket; nothing is asked.

    Raises:
        RequestError: It is not.
    """
    BucketUrl.of(url)


def restore(
    directory: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    seq: int | None = None,
    at: object = None,
    tag: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    on_progress: Progress | None = None,
) -> Restored:
    """Make a store of a backup, or of a mirror: with the rows of its seq, and its own id.

    Args:
        directory: One of backups (`db.backup`), or the URL of a mirror (`siltstone mirror`).
        target: Absent or empty, or what an interrupted restore of the same backup left.
        seq: That of the backup, or of a record of the mirror; by default the highest.
        at: A time with a zone: the newest backup, or record, at or before it.
        tag: Of a mirror alone: the record at the seq of this tag.
        storage_options: Of a mirror, as for `admin.mirror_store`.
        on_progress: As for `backup_store`.

    Raises:
        RequestError: No such backup, or `target` holds something else.
        CorruptionError: A file of the backup is damaged; it is named. `target` is no store.
        BusyError, UnavailableError: Another restore runs; the file system, or a server, refuses.

    Examples:
        >>> db.backup("copy").seq == st.restore("copy", "again").seq
        True
    """
    at_us = None if at is None else time_us_of(at)
    if isinstance(directory, str) and is_bucket_url(directory):
        from siltstone.open.buckets import mirror_restorer  # noqa: PLC0415 - few have one

        place, restorer = root_of(target), mirror_restorer(directory, Env(), storage_options)
        return restorer.run(place, seq=seq, at_us=at_us, tag=tag, on_progress=on_progress)
    if tag is not None:
        raise RequestError("a tag chooses a record of a mirror; choose a backup by seq or time")
    return _restorer(directory).run(root_of(target), seq=seq, at_us=at_us, on_progress=on_progress)


def backups(directory: str | os.PathLike[str]) -> list[Backup]:
    """Return the backups in a directory, oldest seq first.

    Raises:
        RequestError, CorruptionError: It holds none; a manifest is damaged.

    Examples:
        >>> db.backup("copy").seq == st.backups("copy")[-1].seq
        True
    """
    if isinstance(directory, str) and is_bucket_url(directory):
        raise RequestError("a mirror has no list of backups: restore it, to a seq or a time")
    return [backup for _, backup in _restorer(directory).list()]


def _restorer(directory: str | os.PathLike[str]) -> Restorer:
    env = Env()
    return Restorer(env.files, root_of(directory), now_us=env.now_us, new_token=env.new_token)
