"""One mirror at a time writes to a bucket; a second one hears who that is, and may take over."""

from __future__ import annotations

import platform
import shutil
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import pytest

import siltstone as st
from siltstone.errors import BusyError, RequestError
from siltstone.formats import bucket as formats
from siltstone.formats.bucket import BucketMark
from siltstone.maintenance.backup.leased_records import lease
from siltstone.maintenance.backup.mirror import MirrorSession
from siltstone.storage.bucket.bucket import Bucket
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.floor import Floor, text_of
from tests.maintenance.mirrors import (
    at,
    content,
    go_on,
    lived,
    mirrored,
    mirrorer,
    objects_of,
    restored,
)
from tests.support.simulated_objects import Fault, SimBucket, SimServer, SimulatedKill


@pytest.fixture
def db(tmp_path: Path):
    with lived(tmp_path / "s") as store:
        yield store


@pytest.fixture
def bucket() -> SimBucket:
    return SimBucket()


def mark_of(bucket: SimBucket) -> BucketMark:
    found = Bucket(objects_of(at(bucket))).mark()
    assert found is not None
    return found


def chain_of(bucket: SimBucket) -> Bucket:
    return Bucket(objects_of(at(bucket)))


def say(*_: object) -> None:
    """Take no notice."""


class OpenMirror:
    """A mirror that has claimed the bucket, and goes on when it is told to."""

    def __init__(self, root: Path, server: SimServer, held: ExitStack) -> None:
        self.mirrorer = mirrorer(root, server)
        with ExitStack() as leases:
            source = lease(self.mirrorer.site, leases, with_log=False)
            self.session: MirrorSession = held.enter_context(self.mirrorer.session(source))

    def publish(self) -> int:
        with ExitStack() as leases:
            source = lease(self.mirrorer.site, leases, with_log=False)
            return self.session.publish(source, say).record


def test_a_claim_begins_and_ends_with_the_mirror_and_its_epoch_rises(db, bucket):
    mirrored(db.path, at(bucket))
    assert (mark_of(bucket).epoch, mark_of(bucket).holder) == (1, None)
    mirrored(db.path, at(bucket))  # nothing new: nothing is claimed
    assert mark_of(bucket).epoch == 1
    go_on(db, 1)
    with ExitStack() as held:
        OpenMirror(db.path, at(bucket), held)
        found = mark_of(bucket)
        assert found.holder is not None
        assert (found.epoch, found.holder.host) == (2, platform.node())
        assert found.holder.path == str(db.path)
    assert mark_of(bucket).holder is None


def test_a_second_mirror_is_refused_with_host_and_time_and_writes_nothing(db, bucket, tmp_path):
    mirrored(db.path, at(bucket))
    go_on(db, 1)
    with ExitStack() as held:
        OpenMirror(db.path, at(bucket), held)
        with pytest.raises(BusyError, match="another mirror of"):  # here the lock says it
            mirrored(db.path, at(bucket))
    elsewhere(bucket)
    before = dict(bucket.objects)
    words = r"process 7 on atlas, of the store at /data/shop, since 2026-11-29T12:00:00Z;.*--take"
    with pytest.raises(BusyError, match=words):
        mirrored(db.path, at(bucket))
    assert bucket.objects == before
    assert mirrored(db.path, at(bucket), take=True).record == 2
    assert mark_of(bucket).holder is None


def elsewhere(bucket: SimBucket) -> None:
    """Let a mirror on another machine claim the bucket, and be gone."""
    holder = formats.MirrorHolder("atlas", "/data/shop", 7, 1_795_953_600_000_000)
    found = mark_of(bucket)
    mark = msgspec.structs.replace(found, writer="w", epoch=found.epoch + 1, holder=holder)
    bucket.objects["shop/STORE"] = (formats.encode_mark(mark), 1.0)


def test_the_claim_of_a_killed_mirror_of_the_same_store_here_is_continued(db, bucket):
    mirrored(db.path, at(bucket))
    go_on(db, 1)
    learning = at(SimBucket(dict(bucket.objects)))
    mirrored(db.path, learning)
    with pytest.raises(SimulatedKill):
        mirrored(db.path, SimServer(bucket, {learning.requests - 2: Fault.KILLED_BEFORE}, "shop/"))
    assert mark_of(bucket).holder is not None
    assert mirrored(db.path, at(bucket)).record == 2
    assert mark_of(bucket).epoch == 3


def test_a_mirror_whose_claim_was_taken_ends_at_its_next_publish(db, bucket, tmp_path):
    db.close()
    with ExitStack() as held:
        sleeper = OpenMirror(tmp_path / "s", at(bucket), held)
        assert sleeper.publish() == 1
        shutil.copytree(tmp_path / "s", tmp_path / "copy")
        with st.connect(tmp_path / "copy", background=False) as copy:
            go_on(copy, 1)
            expected = content(copy)
        assert mirrored(tmp_path / "copy", at(bucket), take=True).record == 2
        with st.connect(tmp_path / "s", background=False) as store:
            go_on(store, 2)
        with pytest.raises(RequestError, match="was taken by"):
            sleeper.publish()
    assert mark_of(bucket).holder is None
    assert chain_of(bucket).numbers() == [1, 2]
    restored(at(bucket), tmp_path / "r")
    with st.connect(tmp_path / "r", background=False) as again:
        assert content(again) == expected


def test_a_mirror_that_slept_through_a_vacuum_publishes_nothing(db, bucket, tmp_path):
    """Its number is free again, as the record that had it was deleted; FLOOR is above."""
    db.close()
    with ExitStack() as held:
        sleeper = OpenMirror(tmp_path / "s", at(bucket), held)
        assert sleeper.publish() == 1
        shutil.copytree(tmp_path / "s", tmp_path / "copy")
        for number in range(2):
            with st.connect(tmp_path / "copy", background=False) as copy:
                go_on(copy, number)
            mirrored(tmp_path / "copy", at(bucket), take=True)
        bucket.objects["shop/manifest/FLOOR"] = (text_of(Floor(3)), 1.0)
        for number in (1, 2):  # as the bucket's vacuum does
            del bucket.objects[f"shop/{formats.record_key(number)}"]
        with st.connect(tmp_path / "s", background=False) as store:
            go_on(store, 9)
        with pytest.raises(RequestError, match="was taken by"):
            sleeper.publish()
    assert chain_of(bucket).numbers() == [3]


def test_a_claim_that_changes_while_it_is_looked_at_is_looked_at_again(db, bucket):
    mirrored(db.path, at(bucket))
    go_on(db, 1)

    class Meanwhile(SimServer):
        """Another mirror claims the bucket, and ends, before the first claim of this one."""

        is_first = True

        def put(self, key: str, data: bytes, *, is_new: bool = False, etag: str | None = None):
            if key == formats.MARK and self.is_first:
                self.is_first = False
                found = mark_of(self.bucket)
                mark = msgspec.structs.replace(found, writer="w", epoch=found.epoch + 1)
                self.bucket.objects["shop/STORE"] = (formats.encode_mark(mark), 1.0)
            return super().put(key, data, is_new=is_new, etag=etag)

    server = Meanwhile(bucket, below="shop/")
    assert mirrored(db.path, server).record == 2
    assert server.trace.count("put STORE") == 3
    assert mark_of(bucket).epoch == 3


# --- a restored store goes on with its mirror


def test_a_restored_store_goes_on_with_its_mirror_if_nobody_else_did(db, bucket, tmp_path):
    mirrored(db.path, at(bucket))
    db.close()
    restored(at(bucket), tmp_path / "r")
    with st.connect(tmp_path / "r", background=False) as again:
        go_on(again, 1)
        expected = content(again)
    with pytest.raises(RequestError, match="has the mirror of store"):
        mirrored(tmp_path / "r", at(bucket))
    made = mirrored(tmp_path / "r", at(bucket), adopt=True)
    assert made.record == 2
    assert made.uploaded < made.files  # what was restored is there
    with pytest.raises(RequestError, match="has the mirror of store"):
        mirrored(tmp_path / "s", at(bucket))
    with st.connect(tmp_path / "r", background=False) as again:
        go_on(again, 2)
        expected = content(again)
    assert mirrored(tmp_path / "r", at(bucket)).record == 3  # it is its own by now
    restored(at(bucket), tmp_path / "r2")
    with st.connect(tmp_path / "r2", background=False) as again:
        assert content(again) == expected


def test_a_store_that_is_not_restored_from_the_newest_record_adopts_nothing(db, bucket, tmp_path):
    first = mirrored(db.path, at(bucket))
    restored(at(bucket), tmp_path / "r")
    go_on(db, 1)
    mirrored(db.path, at(bucket))
    restored(at(bucket), tmp_path / "older", seq=first.seq)
    before = dict(bucket.objects)
    with lived(tmp_path / "other"):
        for name in ("r", "older", "other"):
            with pytest.raises(RequestError, match="was not restored from the newest record"):
                mirrored(tmp_path / name, at(bucket), adopt=True)
    assert bucket.objects == before


def test_an_adoption_that_was_cut_off_at_any_request_goes_on(db, bucket, tmp_path):
    mirrored(db.path, at(bucket))
    db.close()
    restored(at(bucket), tmp_path / "r")
    learning = at(SimBucket(dict(bucket.objects)))
    copy_of(tmp_path)
    mirrored(tmp_path / "learnt", learning, adopt=True)
    for number in range(1, learning.requests + 1):
        left = SimBucket(dict(bucket.objects))
        root = copy_of(tmp_path)
        with suppress(SimulatedKill):
            mirrored(root, SimServer(left, {number: Fault.KILLED_AFTER}, "shop/"), adopt=True)
        assert mirrored(root, at(left), adopt=True).record == 2
        assert chain_of(left).numbers() == [1, 2]


def copy_of(tmp_path: Path) -> Path:
    root = tmp_path / "learnt"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(tmp_path / "r", root)
    return root


def test_what_a_store_knows_of_its_mirrors_is_in_its_directory(db, bucket):
    from siltstone.maintenance.backup.sent_records import mirrors_of

    made = mirrored(db.path, at(bucket))
    (known,) = mirrors_of(RealFiles(), db.path)
    assert (known.url, known.record, known.seq) == ("s3://simulated/shop", 1, made.seq)
    assert known.time_us == made.time_us
    (file,) = db.path.glob("mirrors/*.json")
    file.write_bytes(b"x")
    assert mirrors_of(RealFiles(), db.path) == ()
