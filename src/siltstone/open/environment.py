"""Environment: the seam to the outside, and what any process works with on a store's files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from siltstone.engine.commit.core import Core
from siltstone.engine.read.past import CommitHistory, PastRecords
from siltstone.engine.read.reader import Readers
from siltstone.engine.read.view import State
from siltstone.errors import RequestError
from siltstone.maintenance.compaction.optimize import Optimizer
from siltstone.maintenance.compaction.plain_table_commit import PlainTables
from siltstone.maintenance.flush import checkpoint
from siltstone.maintenance.flush.commit_parts import COMMIT_PARTS_MAX
from siltstone.maintenance.flush.fallback import FALLBACK_BYTES_MAX
from siltstone.maintenance.index.index_plan import Execute
from siltstone.maintenance.index.indexer import Indexer
from siltstone.maintenance.merge.merge import Merger, Promoter
from siltstone.maintenance.thinning import BOUNDS, Bounds
from siltstone.options import Options
from siltstone.paths import Place, scratch_of
from siltstone.process import malloc
from siltstone.storage.cache.part_cache import PartCache
from siltstone.storage.files.files import Files, RealFiles
from siltstone.storage.lance import lance_tables
from siltstone.storage.manifest.format_check import refuse_others
from siltstone.storage.manifest.manifest_store import random_token, system_time_us
from siltstone.storage.site import Site, site_at
from siltstone.storage.tables.store_tables import Tables

if TYPE_CHECKING:
    from siltstone.formats.manifest import Record
    from siltstone.maintenance.backup.backup import Backuper
    from siltstone.maintenance.backup.following import Following
    from siltstone.maintenance.repair.external_appends import Adopter
    from siltstone.maintenance.repair.repair import Repairer
    from siltstone.maintenance.repair.verify import Verifier
    from siltstone.storage.wal.follower import LogFollower


@dataclass(frozen=True, slots=True)
class Env:
    """The seam to the outside: files, tables, the clock (microseconds), fresh names.

    `load_rows_min`: the rows per file from which on history names a load and has no copy of it.
    `fallback_bytes_max`: of rows that Lance refuses, from which on their table takes no more.
    `commit_parts_max`: the parts of `commits` from which on a checkpoint joins some.
    `bounds`: what vacuum may thin. `part_cache`: what keeps rows in files of the user; by default
    as the options say, for a store that is real. `mirror`: what mirrors a store to a URL.
    """

    files: Files = field(default_factory=RealFiles)
    tables: Callable[[Path, Files, str], Tables] = lance_tables.lance_tables
    now_us: Callable[[], int] = system_time_us
    new_token: Callable[[], str] = random_token
    warm_up: Callable[[], None] = lance_tables.warm_up
    load_rows_min: int = field(default_factory=lambda: checkpoint.LOAD_ROWS_MIN)
    fallback_bytes_max: int = FALLBACK_BYTES_MAX
    commit_parts_max: int = COMMIT_PARTS_MAX
    bounds: Bounds = BOUNDS
    part_cache: Callable[[Site, Options], PartCache | None] | None = None
    mirror: Callable[[Site, Options], Following] | None = None

    def parts(self, site: Site, options: Options) -> PartCache | None:
        """Return what keeps rows of a store in files of the user; None: nothing does."""
        if self.part_cache is not None:
            return self.part_cache(site, options)
        scratch = scratch_of(options.scratch) if self.is_real else None
        if scratch is None or options.cache_bytes_max == 0:
            return None
        return PartCache(
            scratch,
            cache(site.manifests.store_id),
            bytes_max=options.cache_bytes_max,
            open_bytes_max=options.shares.bases // 4,
        )

    def following(self, site: Site, options: Options) -> Following | None:
        """Return what mirrors a store to the bucket of its options; None: they name none.

        Raises:
            RequestError, UnavailableError: It is no URL of a bucket; obstore is not installed.
        """
        if options.mirror is None:
            return None
        if self.mirror is not None:
            return self.mirror(site, options)
        from siltstone.open.mirroring import Mirroring  # noqa: PLC0415 - few have one

        return Mirroring(
            site, options.mirror, options.retention_s, options.storage_options
        ).in_background()

    @property
    def is_real(self) -> bool:
        """Whether other processes see the same files, by the same clock."""
        return type(self.files) is RealFiles and self.now_us is system_time_us

    def require_store(self, root: Path) -> None:
        """Refuse a directory that is no store, and a store of another format.

        Raises:
            RequestError, UnsupportedFormatError: As said; not a byte was changed.
        """
        if isinstance(root, Place):
            return  # the first look at its chain says it, without a request of its own
        if not self.files.is_dir(root):
            is_file = self.files.exists(root)
            why = "it is a file" if is_file else "there is no such directory"
            raise RequestError(f"{root} is not a store: {why}")
        if not self.files.is_dir(root / "manifest"):
            raise RequestError(f"{root} is not a siltstone store: it has no directory 'manifest'")
        refuse_others(self.files, root)


class Storage(msgspec.Struct, frozen=True):
    """The files of one store, as any process works with them, whether it owns the store or not."""

    site: Site
    readers: Readers

    @classmethod
    def of(cls, root: Path, options: Options, env: Env) -> Self:
        """Return the storage of the store at `root`, as of the directory that is there now.

        From here on the process may use much memory, so here its malloc is bound, if that is asked.
        """
        if options.tune_malloc:
            malloc.bound()
        shares, verify = options.shares, options.verify
        if isinstance(root, Place):
            site = site_at(root, options.storage_options)
        else:
            site = Site.of(
                root,
                env.files,
                lambda at, files: env.tables(at, files, verify),
                env.now_us,
                env.new_token,
            )
        site.tables.reader.bound(shares.lance)
        readers = Readers(
            site.tables.reader,
            site.tables.keys,
            PastRecords(site.manifests),
            index_bytes_max=shares.bases,
            parts=env.parts(site, options),
        )
        return cls(site, readers)

    def backuper(self) -> Backuper:
        """Return what makes backups of the store."""
        from siltstone.maintenance.backup.backup import Backuper  # noqa: PLC0415 - few ask for it

        if isinstance(self.site.root, Place):
            raise RequestError(
                f"{self.site.root} is in a bucket, which has no log to back up: restore it to a"
                " directory, which can be backed up"
            )
        return Backuper(self.site)

    def adopter(self) -> Adopter:
        """Return what commits the rows that other programs appended."""
        from siltstone.maintenance.repair.external_appends import Adopter  # noqa: PLC0415 - as above
        from siltstone.maintenance.repair.quarantine import Quarantine  # noqa: PLC0415

        return Adopter(self.site, Quarantine(self.site))

    def verifier(self) -> Verifier:
        """Return what finds damage, also in a store that does not open any more."""
        from siltstone.maintenance.repair.verify import Verifier  # noqa: PLC0415 - as above

        return Verifier(self.site, self.readers, look_in_bucket(self.site))

    def repairer(self) -> Repairer:
        """Return what repairs damage, also in a store that does not open any more."""
        from siltstone.maintenance.repair.repair import Repairer  # noqa: PLC0415 - as above

        return Repairer(self.site, self.verifier(), self.indexer(), self.readers.parts)

    def indexer(self) -> Indexer:
        """Return what builds indexes."""
        return Indexer(self.site, Promoter(self.site).promote_late)


def look_in_bucket(site: Site) -> Callable[[], int] | None:
    """Return what looks at all files of a store at a URL; None: it is in a directory."""
    if not isinstance(site.root, Place):
        return None
    from siltstone.storage.bucket.bucket_files import BucketFiles  # noqa: PLC0415 - as below

    assert isinstance(site.files, BucketFiles)
    return site.files.look_at_all


def log_elsewhere(site: Site, bytes_max: int) -> Callable[[Record], LogFollower] | None:
    """Return what reads the log of a store at a URL; None: the log is in its directory.

    `bytes_max`: how much of it a reader holds above the newest record.
    """
    if not isinstance(site.root, Place):
        return None
    from siltstone.storage.bucket.bucket_chain import BucketChain  # noqa: PLC0415 - as below
    from siltstone.storage.bucket.bucket_log import BucketLog  # noqa: PLC0415 - as below

    assert isinstance(site.manifests, BucketChain)
    return partial(BucketLog, site.manifests, bytes_max=bytes_max)


def give_way(storage: Storage) -> Callable[[], bool]:
    """Return what deletes the cache of the user on the store's disk, for a store without space."""
    parts, root = storage.readers.parts, storage.site.root
    return (lambda: False) if parts is None else partial(parts.give_way, root)


class Maintainers(msgspec.Struct, frozen=True):
    """What any process may do to a store, whether it owns the store or not."""

    merger: Merger
    optimizer: Optimizer
    indexer: Indexer


def maintainers(storage: Storage, plain: PlainTables, build: Execute | None = None) -> Maintainers:
    """Return the maintainers of a store; they hold no lock and no state.

    `build` runs what indexes lack after a merge; by default it runs here.
    """
    site, indexer = storage.site, storage.indexer()
    merger = Merger(site, storage.readers, partial(indexer.catch_up_late, execute=build))
    optimizer = Optimizer(site, Promoter(site).promote_late, indexer, plain)
    return Maintainers(merger, optimizer, indexer)


def core_of(
    storage: Storage, commits: CommitHistory, options: Options, state: Callable[[], State]
) -> Core:
    """Return the core of a store that is only read; its owner adds what writes."""
    return Core(
        site=storage.site,
        readers=storage.readers,
        commits=commits,
        state=state,
        verify=options.verify,
        sql=options.sql,
    )
