"""A mirror goes on with each newest record, in its own process or the owner's, and ends with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import siltstone as st
from siltstone.errors import BusyError, RequestError
from siltstone.formats import bucket as formats
from siltstone.maintenance.backup.following import Following, Stop
from siltstone.maintenance.backup.mirror import Mirrored
from siltstone.storage.bucket.bucket import Bucket
from siltstone.storage.files.files import RealFiles
from siltstone.storage.site import Site
from tests.maintenance.mirrors import (
    TABLES,
    at,
    content,
    content_of,
    followed,
    go_on,
    lived,
    mirrored,
    objects_of,
    with_mirror,
)
from tests.support.simulated_objects import Fault, SimBucket, SimServer

WAIT_S = 120.0


class Held(SimServer):
    """A server whose puts of files wait until they may go on, once `held` was asked for."""

    def __init__(self, bucket: SimBucket) -> None:
        super().__init__(bucket, below="shop/")
        self.may_go, self.is_held = threading.Event(), threading.Event()
        self.may_go.set()

    def put(self, key: str, data: bytes, *, is_new: bool = False, etag: str | None = None) -> str:
        if key.startswith("tables/") and not self.may_go.is_set():
            self.is_held.set()
            assert self.may_go.wait(WAIT_S)
        return super().put(key, data, is_new=is_new, etag=etag)


class Running:
    """A mirror in a thread of this test, and what it said."""

    def __init__(self, root: Path, server: SimServer, **options: object) -> None:
        self._said = threading.Condition()
        self.made: list[Mirrored] = []
        site = Site.of(root, RealFiles(), TABLES)
        self.following: Following = followed(site, server, hears=self._hear, **options)
        self.following.start()

    def _hear(self, made: Mirrored) -> None:
        with self._said:
            self.made.append(made)
            self._said.notify_all()

    def until(self, seq: int) -> Mirrored:
        def is_there() -> bool:
            return bool(self.made) and self.made[-1].seq >= seq

        with self._said:
            assert self._said.wait_for(is_there, WAIT_S), self.following.state
            return self.made[-1]

    def end(self) -> bool:
        return self.following.finish(WAIT_S)


@pytest.fixture
def db(tmp_path: Path):
    with lived(tmp_path / "s") as store:
        yield store


@pytest.fixture
def bucket() -> SimBucket:
    return SimBucket()


def until(claim: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(WAIT_S / 0.01)):
        if claim():
            return
        pause.wait(0.01)
    raise AssertionError("it never became true")


def puts_of(server: SimServer) -> list[str]:
    return [each.removeprefix("put ") for each in server.trace if each.startswith("put")]


def test_each_newest_record_is_mirrored_and_a_checkpoint_takes_few_requests(db, bucket, tmp_path):
    server = at(bucket)
    mirror = Running(db.path, server)
    mirror.until(db.seq)
    for number in range(2):
        go_on(db, number)
        mirror.until(db.seq)
    before = server.requests
    go_on(db, 7)  # a checkpoint of two datasets, and of `commits`
    made = mirror.until(db.seq)
    assert server.requests - before <= made.uploaded + 2  # the record, FLOOR: nothing is listed
    assert not [each for each in server.trace[before:] if each.startswith("list")]
    assert mirror.end()
    assert server.trace[-1] == "put STORE"
    assert content_of(at(bucket), tmp_path / "r") == (db.seq, content(db))


def test_records_that_came_while_it_uploaded_are_skipped_and_the_newest_is_next(db, bucket):
    server = Held(bucket)
    mirror = Running(db.path, server)
    mirror.until(db.seq)
    server.may_go.clear()
    go_on(db, 0)
    assert server.is_held.wait(WAIT_S)
    held = db.seq
    for number in range(1, 4):
        go_on(db, number)
    server.may_go.set()
    mirror.until(db.seq)
    seqs = list(dict.fromkeys(made.seq for made in mirror.made))
    assert seqs[-2:] == [held, db.seq]
    chain = Bucket(objects_of(at(bucket)))
    assert chain.numbers() == list(range(1, len(chain.numbers()) + 1))
    assert mirror.end()


def test_a_slow_upload_keeps_its_files_from_the_vacuum_and_status_says_how_many(bucket, tmp_path):
    server = Held(bucket)
    with with_mirror(tmp_path / "s", server, retention="0s") as db:
        table = db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        table.upsert([{"id": n, "v": "x" * 100} for n in range(1000)])
        server.may_go.clear()
        db.checkpoint()
        assert server.is_held.wait(WAIT_S)
        for number in range(3):
            table.upsert([{"id": n, "v": f"{number}" * 100} for n in range(1000)])
            db.checkpoint()
            db.merge()
        db.vacuum(dry_run=False, grace_s=0)
        (found,) = db.status().mirrors
        assert found.left_bytes > 0
        assert found.held_bytes > 0
        assert "wait for it" in str(db.status())
        server.may_go.set()
        until(lambda: db.status().mirrors[0].behind == 0)
        (found,) = db.status().mirrors
        assert (found.held_bytes, found.left_bytes, found.age_s) == (0, 0, 0.0)
    with st.connect(tmp_path / "s", background=False) as again:
        assert content_of(at(bucket), tmp_path / "r") == (again.seq, content(again))


def test_the_owner_mirrors_what_it_flushes_and_its_close_the_rest(bucket, tmp_path):
    db = with_mirror(tmp_path / "s", at(bucket))
    table = db.create_table("t", {"id": "int64"}, primary_key="id")
    table.upsert([{"id": n} for n in range(10)])
    db.checkpoint()
    until(lambda: db.status().mirrors[0].seq == db.seq)
    table.upsert({"id": 99})
    (found,) = db.status().mirrors
    assert (found.url, found.behind, found.failure) == ("s3://simulated/shop", 1, None)
    assert found.age_s > 0
    expected, seq = content(db), db.seq
    db.close()
    assert content_of(at(bucket), tmp_path / "r") == (seq, expected)
    with st.connect(tmp_path / "s", read_only=True) as reader:  # any process can say it
        assert [(each.seq, each.behind) for each in reader.status().mirrors] == [(seq, 0)]
        assert reader.status().owed == ()


def test_what_does_not_fit_into_a_close_is_owed_and_the_next_mirror_has_it(bucket, tmp_path):
    server = Held(bucket)
    stop = Stop()
    db = with_mirror(tmp_path / "s", server, stop=stop, close_mirror_s=0)
    db.create_table("t", {"id": "int64"}, primary_key="id").upsert({"id": 1})
    until(lambda: db.status().mirrors[0].record == 1)
    server.may_go.clear()
    db.checkpoint()
    assert server.is_held.wait(WAIT_S)
    closing = threading.Thread(target=db.close)
    closing.start()
    until(lambda: stop.is_set)
    server.may_go.set()  # the requests that run are waited for, the record is not put
    closing.join(WAIT_S)
    with st.connect(tmp_path / "s", read_only=True) as reader:
        (found,) = reader.status().mirrors
        assert found.is_owed
        assert found.behind > 0
        assert reader.status().owed == ("mirror",)
        assert "a close did not wait for it" in str(reader.status())
    mirrored(tmp_path / "s", at(bucket))
    with st.connect(tmp_path / "s", read_only=True) as reader:
        assert reader.status().owed == ()
        (found,) = reader.status().mirrors
        assert (found.behind, found.is_owed) == (0, False)


def test_a_bucket_that_is_claimed_elsewhere_is_asked_again(db, bucket):
    first = Running(db.path, at(bucket))
    first.until(db.seq)
    second = Running(db.path, at(bucket))
    until(lambda: second.following.state.failure is not None)
    assert "another mirror of" in str(second.following.state.failure)
    assert first.end()
    go_on(db, 1)
    second.until(db.seq)
    assert second.end()


def test_without_patience_a_mirror_that_cannot_begin_says_so(db, bucket):
    first = Running(db.path, at(bucket))
    first.until(db.seq)
    site = Site.of(db.path, RealFiles(), TABLES)
    with pytest.raises(BusyError, match="another mirror of"):
        followed(site, at(bucket), is_patient=False).run()
    assert first.end()


def test_an_outage_is_waited_for_and_a_mirror_that_diverged_ends(db, bucket):
    server = at(bucket)
    mirror = Running(db.path, server)
    mirror.until(db.seq)
    server.always = Fault.BUSY
    go_on(db, 1)
    until(lambda: mirror.following.state.failure is not None)
    server.always = None
    mirror.until(db.seq)
    newest = formats.record_key(Bucket(objects_of(at(bucket))).numbers()[-1] + 1)
    found = Bucket(objects_of(at(bucket))).read(1)
    other = msgspec.structs.replace(
        found, number=int(newest[9:29]), record=msgspec.structs.replace(found.record, writer="x")
    )
    bucket.objects[f"shop/{newest}"] = (formats.encode_record(other), 1.0)
    go_on(db, 2)
    until(lambda: "diverged at record" in str(mirror.following.state.failure))
    assert not mirror.end()


def test_a_store_without_a_mirror_imports_nothing_of_it(tmp_path):
    with pytest.raises(RequestError, match="no URL of a bucket"):
        st.connect(tmp_path / "s", mirror="shop")
    with pytest.raises(RequestError, match="takes no mirror"):
        st.connect(":memory:", mirror="s3://shop/x")
    assert not (tmp_path / "s").exists()
