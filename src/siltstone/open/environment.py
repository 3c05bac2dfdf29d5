"""Environment: the seam to the outside, and what any process works with on a store's files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from siltstone.engine.read.past import PastRecords
from siltstone.engine.read.reader import Readers
from siltstone.errors import RequestError
from siltstone.formats.manifest import Record
from siltstone.maintenance.compaction.optimize import Optimizer
from siltstone.maintenance.compaction.plain_table_commit import PlainTables
from siltstone.maintenance.index.indexer import Indexer
from siltstone.maintenance.merge.merge import Merger, Promoter
from siltstone.maintenance.repair.repair import Repairer
from siltstone.maintenance.repair.verify import Verifier
from siltstone.options import Options
from siltstone.storage.files.files import Files, RealFiles
from siltstone.storage.lance import lance_tables
from siltstone.storage.manifest.format_check import refuse_newer
from siltstone.storage.manifest.manifest_store import ManifestStore, random_token, system_time_us
from siltstone.storage.site import Site
from siltstone.storage.tables.jobs import Jobs
from siltstone.storage.tables.tables import Tables


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

    def require_store(self, root: Path) -> None:
        """Refuse a directory that is no store, and a store that a newer siltstone wrote.

        Raises:
            RequestError, UnsupportedFormatError: As said; not a byte was changed.
        """
        if not self.files.is_dir(root):
            raise RequestError(f"{root} is not a store: there is no such directory")
        if not self.files.is_dir(root / "manifest"):
            raise RequestError(f"{root} is not a siltstone store: it has no directory 'manifest'")
        refuse_newer(self.files, root)


@dataclass(frozen=True, slots=True)
class Storage:
    """The files of one store, as any process works with them, whether it owns the store or not."""

    root: Path
    files: Files
    manifests: ManifestStore
    tables: Tables
    readers: Readers
    jobs: Jobs
    now_us: Callable[[], int] = system_time_us
    new_token: Callable[[], str] = random_token

    @classmethod
    def of(cls, root: Path, options: Options, env: Env) -> Self:
        """Return the storage of the store at `root`; nothing is read or written."""
        manifests = ManifestStore(env.files, root, now_us=env.now_us, new_token=env.new_token)
        tables = env.tables(root, env.files, options.verify)
        readers = Readers(
            tables.reader, PastRecords(manifests), index_bytes_max=options.memory_bytes_max // 4
        )
        jobs = Jobs(env.files, root, env.now_us, env.new_token)
        return cls(root, env.files, manifests, tables, readers, jobs, env.now_us, env.new_token)

    def gc_horizon_us(self, known: Record) -> int:
        """Return the time before which vacuum takes files that no record names for garbage, now."""
        return (self.manifests.newer_record(known) or known).gc_horizon_us

    @property
    def site(self) -> Site:
        """The parts that hold no state of their own."""
        made = (self.manifests, self.tables, self.jobs)
        return Site(self.root, self.files, *made, self.now_us, self.new_token)


@dataclass(frozen=True, slots=True)
class Maintainers:
    """What any process may do to a store, whether it owns the store or not."""

    merger: Merger
    optimizer: Optimizer
    indexer: Indexer


def maintainers(storage: Storage, plain: PlainTables) -> Maintainers:
    """Return the maintainers of a store; they hold no lock and no state."""
    site = storage.site
    promote_late = Promoter(site).promote_late
    indexer = Indexer(site, promote_late)
    merger = Merger(site, storage.readers, indexer.catch_up_late)
    return Maintainers(merger, Optimizer(site, promote_late, indexer, plain), indexer)


@dataclass(frozen=True, slots=True)
class RepairTools:
    """What finds and repairs damage in a store, also in one that does not open any more."""

    verifier: Verifier
    repairer: Repairer


def repair_tools(storage: Storage) -> RepairTools:
    """Return the repair tools of a store; they hold no lock and no state between two calls."""
    site = storage.site
    verifier = Verifier(site, storage.readers)
    indexer = Indexer(site, Promoter(site).promote_late)
    return RepairTools(verifier, Repairer(site, verifier, indexer))
