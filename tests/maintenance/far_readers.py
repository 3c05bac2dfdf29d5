"""Readers of a mirror in a simulated bucket: the chain, the log and leases are those of a URL.

Lance's own client cannot reach such a bucket, so what it opens it opens in the store's directory,
where the files of the same names are.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import siltstone as st
from siltstone.local.store import LocalStore
from siltstone.paths import Place
from siltstone.storage.bucket.bucket import Bucket
from siltstone.storage.bucket.bucket_chain import BucketChain
from siltstone.storage.bucket.bucket_files import BucketFiles
from siltstone.storage.bucket.bucket_leases import BucketLeases
from siltstone.storage.files.files import RealFiles
from siltstone.storage.objects.server import BucketServer
from siltstone.storage.site import Site
from tests.maintenance.mirrors import TABLES, objects_of

URL = "s3://simulated/shop"
_tokens = itertools.count()


class Looks:
    """The time of readers: it goes on by `seconds` with each question, so that each is a look."""

    def __init__(self, seconds: float = 2.0) -> None:
        self.seconds, self.now = seconds, 0.0

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


def reader_at(
    server: BucketServer,
    root: Path,
    patch: pytest.MonkeyPatch,
    looks: Callable[[], float] | None = None,
    **options: object,
) -> LocalStore:
    """Open the mirror of the store at `root`, as `connect(url, read_only=True)` does."""

    def site_at(place: Place, settings: Mapping[str, str]) -> Site:
        del settings
        objects, clock = objects_of(server), looks or Looks()
        leases = BucketLeases(Bucket(objects), "a test", lambda: f"reader-{next(_tokens)}")
        files = BucketFiles(place, objects, leases)
        chain = BucketChain(place, files, leases, clock=clock)
        return Site.of(place, files, lambda *_: TABLES(root, RealFiles()), chain=chain)

    with patch.context() as patched:
        patched.setattr("siltstone.open.environment.site_at", site_at)
        db = st.connect(URL, read_only=True, **options)  # type: ignore[call-overload]
    assert isinstance(db, LocalStore)
    return db
