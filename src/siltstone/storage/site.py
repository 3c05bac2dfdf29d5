"""Site: the storage of a store for any process, by the path alone; it owns nothing.

Tasks in other processes use it. Sites are cached per process, up to a bound.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from siltstone.bucket_url import is_bucket_url
from siltstone.errors import CorruptionError, ReplacedError, RequestError, SiltstoneError
from siltstone.formats.manifest import Record
from siltstone.paths import Place
from siltstone.storage.files.files import ABSENT, Files, RealFiles, refusals
from siltstone.storage.files.place import in_place
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.manifest.manifest_store import ManifestStore, random_token, system_time_us
from siltstone.storage.tables.inventories import Inventories
from siltstone.storage.tables.jobs import Jobs
from siltstone.storage.tables.new_files import NewFiles
from siltstone.storage.tables.store_tables import Tables

SITES_MAX = 8
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Site:
    """The parts of one store's storage that hold no state of their own."""

    root: Path
    files: Files
    manifests: ManifestStore
    tables: Tables
    jobs: Jobs
    now_us: Callable[[], int] = system_time_us
    new_token: Callable[[], str] = random_token

    @classmethod
    def of(
        cls,
        root: Path,
        files: Files,
        tables: Callable[[Path, Files], Tables],
        now_us: Callable[[], int] = system_time_us,
        new_token: Callable[[], str] = random_token,
        chain: ManifestStore | None = None,
    ) -> Site:
        """Return the site of the store at `root`, bound to the directory that is there now.

        `chain`: its records; None: those in its directory.

        Raises:
            RequestError: There is none.
            UnavailableError: The file system refuses.
        """
        bound = bound_to(files, root)
        made = tables(root, bound)
        inventories = Inventories(root, bound, new_token)
        manifests = chain or ManifestStore(
            bound,
            root,
            now_us=now_us,
            new_token=new_token,
            first_missing=NewFiles(root, bound, inventories, made.paths).first_missing,
        )
        jobs = Jobs(bound, root, now_us, new_token)
        return cls(root, bound, manifests, made, jobs, now_us, new_token)

    @contextlib.contextmanager
    def held(self, known: Record | None = None) -> Generator[None]:
        """Hold a job to the store that it began on: it ends by name if another one is there.

        `known`: a record that the store had; by default the one that is the newest now.

        Raises:
            ReplacedError: The directory was moved or replaced, or its contents were, also if the
                block failed: that is why it did.
        """
        with in_place(self.files, self.root):
            if known is None:
                known = self._newest()
            else:
                self._require_ours(known)
            try:
                yield
            except ReplacedError:
                raise
            except (SiltstoneError, OSError) as error:
                replaced = self._replaced(known)
                if replaced is not None:
                    raise replaced from error
                raise
            self._require_ours(known)

    def _newest(self) -> Record | None:
        try:
            return self.manifests.newest()
        except CorruptionError:  # it says nothing of whose the store is
            return None

    def _replaced(self, known: Record | None) -> ReplacedError | None:
        """Return how the store was replaced; None: it was not, or the file system hides it."""
        try:
            self._require_ours(known)
        except ReplacedError as error:
            return error
        except (SiltstoneError, OSError):
            return None
        return None

    def _require_ours(self, known: Record | None) -> None:
        if known is not None:
            self.manifests.require_ours(known)


class OfSite(Protocol):
    """What works on one store."""

    @property
    def site(self) -> Site: ...


Job = TypeVar("Job", bound=OfSite)


def held(work: Callable[Concatenate[Job, P], T]) -> Callable[Concatenate[Job, P], T]:
    """Hold each call of a method to the store that is there when it begins; see `Site.held`."""

    @functools.wraps(work)
    def run(self: Job, /, *args: P.args, **options: P.kwargs) -> T:
        with self.site.held():
            return work(self, *args, **options)

    return run


def bound_to(files: Files, root: Path) -> Files:
    """Return the files, bound to the directory of a store.

    Raises:
        RequestError: There is none.
        UnavailableError: The file system refuses.
    """
    try:
        with refusals(f"cannot open {root}", but=ABSENT):
            return files.below(root)
    except ABSENT as error:
        raise RequestError(f"{root} is not a store: there is no such directory") from error


def site_at(place: Place, storage_options: Mapping[str, str]) -> Site:
    """Return the site of the mirror at a URL, to be read.

    Args:
        place: The URL.
        storage_options: Of the bucket's clients, above what the environment says.

    Raises:
        RequestError: It is no URL of a bucket, or the client refuses a setting.
        UnavailableError: A package of the extra `objects` is missing.
    """
    # A path needs none of it.
    from siltstone.storage.bucket.opened import lance_settings, opened  # noqa: PLC0415
    from siltstone.storage.lance.files.reach import LanceReach  # noqa: PLC0415

    files, chain, leases = opened(place, storage_options, random_token)
    reach = LanceReach(lance_settings(storage_options), leases.refuse_if_expired)
    tables = functools.partial(lance_tables, verify="scrub", reach=reach)
    return Site.of(place, files, tables, chain=chain)


def site_of(root: str, verify: str) -> Site:
    """Return the site of the store at `root`; opened datasets are cached.

    At a URL of a bucket: with the credentials of this process' environment.
    """
    site = _site(root, verify, os.getpid())
    if not site.files.are_in_place():  # another store is there since: it has its own
        _site.cache_clear()
        site = _site(root, verify, os.getpid())
    return site


@functools.lru_cache(maxsize=SITES_MAX)
def _site(root: str, verify: str, pid: int) -> Site:
    """`pid`: Lance does not survive a fork, so a child must not use its parent's."""
    del pid
    if is_bucket_url(root):
        return site_at(Place(root), {})
    return Site.of(Path(root), RealFiles(), functools.partial(lance_tables, verify=verify))
