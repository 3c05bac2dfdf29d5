"""Site: the storage of a store for any process, by the path alone; it owns nothing.

Tasks in other processes use it. Sites are cached per process, up to a bound.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from siltstone.storage.files.files import Files, RealFiles
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.manifest.manifest_store import ManifestStore, random_token, system_time_us
from siltstone.storage.tables.jobs import Jobs
from siltstone.storage.tables.tables import Tables

SITES_MAX = 8


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


def site_of(root: str, verify: str) -> Site:
    """Return the site of the store at `root`; opened datasets are cached."""
    return _site(root, verify, os.getpid())


@functools.lru_cache(maxsize=SITES_MAX)
def _site(root: str, verify: str, pid: int) -> Site:
    """`pid`: Lance does not survive a fork, so a child must not use its parent's."""
    del pid
    path, files = Path(root), RealFiles()
    tables = lance_tables(path, files, verify=verify)
    jobs = Jobs(files, path, system_time_us, random_token)
    return Site(path, files, ManifestStore(files, path), tables, jobs)
