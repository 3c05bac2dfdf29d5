"""A reader of a bucket leases what it reads, and hears if the bucket's vacuum took it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

import siltstone as st
from siltstone.errors import CorruptionError, SnapshotExpiredError, UnavailableError
from siltstone.formats import bucket as formats
from siltstone.storage.bucket.bucket import Bucket
from siltstone.storage.bucket.bucket_leases import BucketLeases
from siltstone.storage.manifest.floor import Floor, text_of
from siltstone.storage.objects.objects import Objects
from tests.maintenance.mirrors import at, go_on, lived, mirrored, objects_of
from tests.reach.conftest import mirror, objects_at
from tests.support.simulated_objects import Fault, SimBucket


def leased(objects: Objects) -> list[int]:
    found = [objects.get(head.key) for head in objects.list_after(formats.LEASES)]
    return sorted(formats.decode_lease(each.data, "").record for each in found if each is not None)


def leases_at(bucket: SimBucket) -> BucketLeases:
    names = iter(range(100))
    return BucketLeases(Bucket(objects_of(at(bucket))), "a test", lambda: f"token-{next(names)}")


@pytest.fixture
def bucket(tmp_path: Path) -> SimBucket:
    """Return a bucket with records 1 and 2 of a mirror."""
    made = SimBucket()
    with lived(tmp_path / "s") as db:
        mirrored(db.path, at(made))
        go_on(db, 1)
        mirrored(db.path, at(made))
    return made


def give_up(objects: Objects, number: int) -> None:
    """Do as a vacuum that keeps no record below one."""
    objects.put(formats.FLOOR, text_of(Floor(number)))


def test_a_record_is_leased_once_until_the_last_reader_lets_go(bucket: SimBucket) -> None:
    leases, objects = leases_at(bucket), objects_of(at(bucket))
    one, other = leases.hold(2), leases.hold(2)
    assert one is not None
    assert other is not None
    assert leased(objects) == [2]
    one.release()
    leases.renew()
    assert leased(objects) == [2]
    other.release()
    leases.renew()
    assert leased(objects) == []


def test_a_lease_that_was_lost_is_made_anew(bucket: SimBucket) -> None:
    leases, objects = leases_at(bucket), objects_of(at(bucket))
    assert leases.hold(2) is not None
    objects.delete([head.key for head in objects.list_after(formats.LEASES)])
    leases.renew()
    assert leased(objects) == [2]
    leases.end()
    assert leased(objects) == []


def test_a_record_that_was_given_up_is_not_leased(bucket: SimBucket) -> None:
    leases, objects = leases_at(bucket), objects_of(at(bucket))
    give_up(objects, 2)
    assert leases.hold(1) is None
    assert leases.hold(1, below_floor=True) is not None  # another process may lease it
    objects.delete([formats.record_key(1)])
    assert leases_at(bucket).hold(1, below_floor=True) is None


def test_floor_is_read_after_the_lease_is_there(bucket: SimBucket) -> None:
    server = at(bucket)
    leases = BucketLeases(Bucket(objects_of(server)), "a test", lambda: "token")
    leases.hold(2)
    assert [each.split()[0] for each in server.trace][-2:] == ["put", "get"]
    assert server.trace[-1].endswith(formats.FLOOR)


@pytest.mark.parametrize("fault", [Fault.DENIED, Fault.BUSY])
def test_who_may_not_put_reads_without_a_lease(bucket: SimBucket, fault: Fault) -> None:
    server = at(bucket)
    leases = BucketLeases(Bucket(objects_of(server)), "a test", lambda: "token")
    server.faults = dict.fromkeys(range(1, 100 if fault is Fault.BUSY else 2), fault)
    with pytest.raises(UnavailableError) if fault is Fault.BUSY else _nothing():
        assert leases.hold(2) is not None
    assert leased(objects_of(at(bucket))) == []


@contextmanager
def _nothing() -> Generator[None]:
    yield


def test_an_open_reader_holds_its_record_and_lets_go_when_it_is_closed(
    url: str, tmp_path: Path
) -> None:
    with lived(tmp_path / "s") as db:
        mirror(db.path, url)
    with st.connect(url, read_only=True):
        assert leased(objects_at(url)) == [1]
    assert leased(objects_at(url)) == []


def test_a_file_that_is_absent_is_damage_or_was_given_up(url: str, tmp_path: Path) -> None:
    with lived(tmp_path / "s") as db:
        mirror(db.path, url)
    objects = objects_at(url)
    for kind in ("/data/", ".manifest", "inventory/"):
        keys = [head.key for head in objects.list_after("") if kind in head.key]
        taken = {key: found.data for key in keys if (found := objects.get(key)) is not None}
        with st.connect(url, read_only=True) as far, far.snapshot() as seen:  # of record 1
            objects.delete(keys)
            with pytest.raises(CorruptionError, match=r"missing|Not found"):
                seen["plain"].scan().read_all()
            with pytest.raises(CorruptionError, match=r"missing|Not found"):
                seen["keyed"].scan().read_all()
            give_up(objects, 2)
            objects.put(formats.record_key(2), _second(objects))
            with pytest.raises(SnapshotExpiredError, match="record 1 of the mirror"):
                seen["plain"].scan().read_all()
        objects.delete([formats.FLOOR, formats.record_key(2)])
        for key, data in taken.items():
            objects.put(key, data)


def _second(objects: Objects) -> bytes:
    first = Bucket(objects).read(1)
    return formats.encode_record(msgspec.structs.replace(first, number=2, writer="second"))
