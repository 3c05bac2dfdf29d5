"""A mirror of small and large files goes to real servers and comes back, byte by byte."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.bucket_url import BucketUrl
from siltstone.errors import CorruptionError
from siltstone.storage.objects.obstore_server import ObstoreServer
from siltstone.storage.objects.server import PART_BYTES, BucketServer
from tests.maintenance.mirrors import at, content, go_on, lived, mirrored, restored
from tests.nightly import by_day
from tests.support import bucket_servers
from tests.support.bucket_servers import RunningServer
from tests.support.simulated_objects import SimBucket

START = {
    "seaweedfs": bucket_servers.seaweed,
    "moto": bucket_servers.moto,
    "azurite": bucket_servers.azurite,
}


@pytest.fixture(scope="module", params=by_day(["moto"], [*START]))
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """Return a server; the environment has what its clients need."""
    pytest.importorskip("obstore", reason="obstore is not installed")
    with (
        START[request.param](tmp_path_factory.mktemp(request.param)) as running,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, text in running.environment.items():
            patch.setenv(name, text)
        yield running


@pytest.fixture
def url(running: RunningServer) -> str:
    return f"{running.url}/lake/{uuid.uuid4().hex}"


@pytest.fixture
def server(running: RunningServer, url: str) -> BucketServer:
    return ObstoreServer(BucketUrl.of(url), running.settings(), environment={})


def with_a_large_file(root: Path) -> st.Store:
    db = lived(root)
    blobs = db.create_table("blobs", {"id": "int64", "data": "binary"})
    blobs.append([{"id": number, "data": os.urandom(1 << 20)} for number in range(10)])
    db.checkpoint()
    return db


def large_files(root: Path) -> list[Path]:
    found = root.glob("tables/blobs-*/**/*.lance")
    return [path for path in found if path.stat().st_size > PART_BYTES]


def test_a_mirror_on_a_real_server_is_restored_and_goes_on(server: BucketServer, tmp_path: Path):
    with with_a_large_file(tmp_path / "s") as db:
        assert large_files(db.path)
        first = mirrored(db.path, server)
        go_on(db, 1)
        second = mirrored(db.path, server)
        assert (first.record, second.record) == (1, 2)
        assert second.uploaded_bytes < first.uploaded_bytes / 100
        done = restored(server, tmp_path / "r")
        assert (done.seq, done.nbytes) == (second.seq, second.nbytes)
        with st.connect(tmp_path / "r", background=False) as again:
            assert content(again) == content(db)
            assert again.verify(deep=True).findings == ()


def test_what_was_shipped_to_a_real_server_is_restored(
    server: BucketServer, url: str, tmp_path: Path
):
    with lived(tmp_path / "s") as db:
        mirrored(db.path, server)  # vouches for the server
    with st.connect(tmp_path / "s", background=False, mirror=url, close_mirror_s=0) as db:
        for number in range(3):
            with db.transaction(durability="shipped") as tx:
                tx["keyed"].upsert({"id": 5000 + number, "v": "shipped"})
                tx["plain"].append([{"a": 5000 + number}])
        expected, seq = content(db), db.seq
        assert restored(server, tmp_path / "r").seq == seq
    with st.connect(tmp_path / "r", background=False) as again:
        assert (again.seq, content(again)) == (seq, expected)
        assert again.verify(deep=True).findings == ()


def test_a_large_file_that_is_damaged_is_put_nowhere(tmp_path: Path) -> None:
    bucket = SimBucket()
    with with_a_large_file(tmp_path / "s") as db:
        files = large_files(db.path)
        data = bytearray(files[0].read_bytes())
        data[-100] ^= 1  # in the last part
        for file in files:
            file.write_bytes(data)
        with pytest.raises(CorruptionError, match="xxh3"):
            mirrored(db.path, at(bucket))
    names = {str(file.relative_to(tmp_path / "s")) for file in files}
    assert not [key for key in bucket.objects if key.removeprefix("shop/") in names]


def test_a_large_object_that_is_damaged_or_short_is_named(tmp_path: Path) -> None:
    bucket = SimBucket()
    with with_a_large_file(tmp_path / "s") as db:
        mirrored(db.path, at(bucket))
    (key,) = (key for key, found in bucket.objects.items() if len(found[0]) > PART_BYTES)
    data = bucket.objects[key][0]
    for damaged in (bytes([*data[:9], data[9] ^ 1, *data[10:]]), data[:-1], data[:PART_BYTES]):
        bucket.objects[key] = (damaged, 1.0)
        with pytest.raises(CorruptionError, match=key.removeprefix("shop/")):
            restored(at(bucket), tmp_path / "r")
        assert not list((tmp_path / "r").rglob("*.tmp"))
    bucket.objects[key] = (data, 1.0)
    restored(at(bucket), tmp_path / "r")
