"""A server of buckets for the tests of stores that are read at a URL, and their environment."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.bucket_url import BucketUrl
from siltstone.local.store import LocalStore
from siltstone.storage.bucket.bucket_files import BucketFiles
from siltstone.storage.objects.obstore_server import ObstoreServer
from tests.maintenance.mirrors import mirrored
from tests.nightly import by_day
from tests.support import bucket_servers
from tests.support.bucket_servers import RunningServer

REAL = {
    "seaweedfs": bucket_servers.seaweed,
    "moto": bucket_servers.moto,
    "azurite": bucket_servers.azurite,
}


@pytest.fixture(scope="module", params=by_day(["moto"], [*REAL]))
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    pytest.importorskip("obstore", reason="obstore is not installed")
    with REAL[request.param](tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture
def url(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a URL where nothing is yet; the environment has what its clients need."""
    for name, text in server.environment.items():
        monkeypatch.setenv(name, text)
    return f"{server.url}/lake/{uuid.uuid4().hex}"


@pytest.fixture
def mirror(url: str) -> Callable[[Path], str]:
    """Return what mirrors a store to the URL, and returns that.

    Without the probe of the server: puts that race for a key of moto may all win.
    """
    bucket = ObstoreServer(BucketUrl.of(url))

    def to_url(root: Path) -> str:
        mirrored(root, bucket)
        return url

    return to_url


def requests_of(db: st.Store) -> dict[str, int]:
    """Return how many requests a reader made so far, by kind: its own, without Lance's."""
    assert isinstance(db, LocalStore)
    files = db._parts.site.files  # pyright: ignore[reportPrivateUsage]
    assert isinstance(files, BucketFiles)
    return files.objects.counts.by_kind()
