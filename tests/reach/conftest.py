"""A server of buckets for the tests of stores that are read at a URL, and a mirrored store."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.bucket_url import BucketUrl
from siltstone.local.store import LocalStore
from siltstone.storage.bucket.bucket_files import BucketFiles
from siltstone.storage.objects.objects import Objects
from siltstone.storage.objects.obstore_server import ObstoreServer
from tests.maintenance.mirrors import Content, content, go_on, lived, mirrored
from tests.nightly import by_day
from tests.support import bucket_servers
from tests.support.bucket_servers import RunningServer

REAL = {
    "seaweedfs": bucket_servers.seaweed,
    "moto": bucket_servers.moto,
    "azurite": bucket_servers.azurite,
}
DIMENSIONS = 4


@pytest.fixture(scope="module", params=by_day(["moto"], [*REAL]))
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """Return a server; the environment has what its clients need."""
    pytest.importorskip("obstore", reason="obstore is not installed")
    with (
        REAL[request.param](tmp_path_factory.mktemp(request.param)) as running,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, text in running.environment.items():
            patch.setenv(name, text)
        yield running


@pytest.fixture
def url(server: RunningServer) -> str:
    """Return a URL where nothing is yet."""
    return new_url(server)


def new_url(server: RunningServer) -> str:
    return f"{server.url}/lake/{uuid.uuid4().hex}"


def mirror(root: Path, url: str) -> None:
    """Mirror a store without the probe of the server: puts that race for a key of moto all win."""
    mirrored(root, ObstoreServer(BucketUrl.of(url)))


def objects_at(url: str) -> Objects:
    return Objects(ObstoreServer(BucketUrl.of(url)), "tests")


@dataclass(frozen=True)
class Mirrored:
    """A mirrored store: where it is, and what it has at the seqs that were mirrored.

    `changed` is the first of these seqs; `tagged` has the tag "first", and is older.
    """

    url: str
    root: Path
    seq: int
    at: dict[int, Content]
    tagged: int
    changed: int


@pytest.fixture(scope="module")
def shop(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Mirrored:
    """Return a mirror with a past, keyed, plain and indexed tables: nobody changes it."""
    root, url = tmp_path_factory.mktemp("shop") / "s", new_url(server)
    at: dict[int, Content] = {}
    with lived(root) as db:
        vectors = {"id": "int64", "s": "string", "v": pa.list_(pa.float32(), DIMENSIONS)}
        docs = db.create_table("docs", vectors, primary_key="id")
        words = ("red", "fox", "blue")
        docs.upsert([{"id": n, "s": f"{words[n % 3]} {n}", "v": [n, 1, 2, 3]} for n in range(200)])
        db.checkpoint()
        db.merge()
        docs.create_index("s", kind="fts")
        for number in range(3):
            go_on(db, number)
            at[db.seq] = content(db)
            mirror(root, url)
            if number == 1:
                db.merge()
        tagged = db.tags()["first"]
        with db.snapshot(tag="first") as old:
            at[tagged] = {name: _rows(old, name) for name in old.tables()}
        return Mirrored(url, root, db.seq, at, tagged, min(seq for seq in at if seq > tagged))


def _rows(old: st.Snapshot, name: str) -> list[dict[str, object]]:
    return sorted(old[name].scan().read_all().to_pylist(), key=repr)


@pytest.fixture
def far(shop: Mirrored) -> Iterator[st.Store]:
    """Return the mirrored store, opened at its URL."""
    with st.connect(shop.url, read_only=True) as db:
        yield db


def requests_of(db: st.Store, caller: str | None = None) -> int:
    """Return how many requests a reader made so far: its own, without Lance's; or of a caller."""
    assert isinstance(db, LocalStore)
    files = db._parts.site.files  # pyright: ignore[reportPrivateUsage]
    assert isinstance(files, BucketFiles)
    found = files.objects.counts.by_caller()
    return sum(count for (who, _), count in found.items() if caller in (None, who))
