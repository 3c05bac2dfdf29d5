"""Buckets for the tests of objects: simulated, a directory, and real servers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from siltstone.bucket_url import BucketUrl
from siltstone.storage.objects.obstore_server import ObstoreServer
from siltstone.storage.objects.server import BucketServer
from tests.nightly import by_day
from tests.support import bucket_servers
from tests.support.bucket_servers import RunningServer
from tests.support.folder_objects import FolderServer
from tests.support.simulated_objects import SimServer

REAL = {
    "seaweedfs": bucket_servers.seaweed,
    "moto": bucket_servers.moto,
    "azurite": bucket_servers.azurite,
}
ALL = ["simulated", "folder", *by_day(["moto"], [*REAL])]


@pytest.fixture(scope="module", params=ALL)
def make_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], BucketServer]]:
    """Return what makes servers of the test's own, at an empty prefix of the same bucket each."""
    if request.param == "simulated":
        yield SimServer
    elif request.param == "folder":
        yield lambda: FolderServer(tmp_path_factory.mktemp("bucket"))
    else:
        pytest.importorskip("obstore", reason="obstore is not installed")
        with REAL[request.param](tmp_path_factory.mktemp(request.param)) as running:
            yield lambda: at(running, uuid.uuid4().hex)


def at(running: RunningServer, prefix: str) -> ObstoreServer:
    url = BucketUrl.of(f"{running.url}/{prefix}")
    return ObstoreServer(url, running.settings(), environment={})
