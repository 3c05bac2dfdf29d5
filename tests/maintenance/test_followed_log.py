"""A reader at a URL shows the commits of the shipped log, each as a restore would have it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

import siltstone as st
from siltstone.errors import CorruptionError, UnavailableError
from siltstone.formats import bucket as formats
from siltstone.formats.log import log_object
from siltstone.formats.log.log_object import Kind, LogObject, LogPlace
from siltstone.local.store import LocalStore
from siltstone.storage.bucket.bucket import Bucket
from siltstone.storage.bucket.bucket_chain import LIST_S
from siltstone.storage.bucket.bucket_log import HOLE_S
from siltstone.storage.manifest.floor import Floor, text_of
from siltstone.storage.objects.log.claim import take_over
from siltstone.storage.objects.log.log import ObjectLog
from tests.maintenance.far_readers import Looks, reader_at
from tests.maintenance.mirrors import Content, at, content, lived, objects_of, restored, taken_from
from tests.maintenance.test_shipping import Shipping, log_keys, write
from tests.nightly import by_day
from tests.storage.objects.logs import SleepyServer, new_token
from tests.support.simulated_objects import Fault, SimBucket, SimServer


@pytest.fixture
def bucket() -> SimBucket:
    return SimBucket()


@pytest.fixture
def shipping(tmp_path: Path, bucket: SimBucket) -> Iterator[Shipping]:
    with lived(tmp_path / "s") as db:
        made = Shipping(db, at(bucket))
        made.mirror()
        yield made


Open = Callable[..., LocalStore]


@pytest.fixture
def reader(
    shipping: Shipping, bucket: SimBucket, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Open]:
    """Return what opens a reader of the bucket, at a server of its own."""
    opened: list[LocalStore] = []

    def make(server: SimServer | None = None, **options: object) -> LocalStore:
        found = reader_at(server or at(bucket), shipping.db.path, monkeypatch, **options)  # type: ignore[arg-type]
        opened.append(found)
        return found

    yield make
    for each in opened:
        each.close()


def seen_by(db: st.Store) -> tuple[int, Content]:
    return db.seq, content(db)


def put_frame(bucket: SimBucket, place: LogPlace, like: LogObject) -> None:
    """Put a frame at a place, with the commits of another one."""
    seqs = like.first_seq, like.last_seq
    data, _ = log_object.encode(Kind.FRAME, place, seqs, like.writer, like.previous, [like.payload])
    bucket.objects[f"shop/{place.key}"] = data, bucket.now()


def places(bucket: SimBucket) -> list[LogPlace]:
    found = (log_object.place_of(key) for key in log_keys(bucket))
    return [place for place, _ in filter(None, found)]


# what is shown


def test_a_reader_shows_what_was_shipped_above_the_record(shipping, reader):
    db = shipping.db
    write(db, 1)
    shipping.ship()
    shipped = seen_by(db)
    write(db, 2)
    far = reader()
    assert seen_by(far) == shipped
    with far.snapshot() as before:
        shipping.ship()
        assert seen_by(far) == seen_by(db)
        assert before.seq == shipped[0]
        assert before["plain"].count() == len(shipped[1]["plain"])


def test_a_reader_that_was_there_first_sees_the_log_begin(shipping, reader):
    far = reader()
    for number in range(3):
        write(shipping.db, number)
        shipping.ship()
        assert seen_by(far) == seen_by(shipping.db)


def test_a_reader_goes_on_over_checkpoints_merges_and_records(shipping, reader, bucket):
    db, far = shipping.db, reader()
    for number in range(4):
        write(db, number)
        db["keyed"].delete(5000 + number - 1)
        shipping.ship()
        assert seen_by(far) == seen_by(db)
        db.checkpoint()
        if number % 2:
            db.merge()
        shipping.mirror()
        assert seen_by(far) == seen_by(db)
        assert far.status().record == number + 2
    assert far.changes(0)["keyed"].read_all().equals(db.changes(0)["keyed"].read_all())


def test_a_reader_shows_loads_tables_and_columns_that_the_log_alone_has(shipping, reader):
    db, far = shipping.db, reader()
    stage = db.stage("keyed")
    staged = stage.run(pa.table({"id": range(7000, 7010), "v": ["staged"] * 10}))
    with db.transaction() as tx:
        tx.attach(stage, [staged])
    db["plain"].append([{"a": 77}])
    made = db.create_table("made", {"id": "int64"}, primary_key="id")
    made.upsert([{"id": 1}])
    made.add_column("x", "int64", default=3)
    shipping.ship()
    assert seen_by(far) == seen_by(db)
    assert far["made"].get(1) == {"id": 1, "x": 3}
    with far.snapshot(seq=tx.seq) as past:
        assert past["keyed"].count() == db["keyed"].count()
        assert "made" not in past.tables()


def test_a_reader_waits_for_the_record_that_has_what_was_never_shipped(shipping, reader):
    db = shipping.db
    write(db, 0)
    shipping.ship()
    far, shipped = reader(), seen_by(db)
    for number in range(3):
        write(db, number)
        db.checkpoint()  # the segments are free for others
    write(db, 3)
    shipping.ship()
    assert "recycled before commits behind" in (shipping.shipper.failure or "")
    assert seen_by(far) == shipped
    shipping.mirror()
    shipping.ship()
    assert seen_by(far) == seen_by(db)


@dataclass
class BusyServer(SimServer):
    """A server to whose log the owner puts one more frame behind each request for an object."""

    ship: Callable[[], object] = lambda: None
    left: int = 0
    busy: threading.Lock = field(default_factory=threading.Lock)

    def _do(self, what: str, request: Callable[[], Any], *, has_condition: bool = False) -> Any:
        try:
            return super()._do(what, request, has_condition=has_condition)
        finally:
            with self.busy:
                if what.startswith("get wal/") and self.left:
                    self.left -= 1
                    self.ship()


def test_a_look_ends_although_its_owner_ships_on(shipping, reader, bucket):
    """Else a reader would show nothing for as long as it finds something."""
    db = shipping.db

    def ship() -> None:
        write(db, 0)
        shipping.ship()

    ship()
    server = BusyServer(bucket, below="shop/", ship=ship)
    far = reader(server)
    for _ in range(3):
        ship()
    server.left = 100
    assert far.seq < db.seq
    assert server.left > 50
    server.left = 0
    assert seen_by(far) == seen_by(db)


# what is not shown


def test_what_lies_behind_the_fence_in_an_epoch_that_it_ended_is_never_shown(
    shipping, reader, bucket
):
    db = shipping.db
    write(db, 1)
    shipping.ship()
    far, (last,) = reader(), places(bucket)
    later = Shipping(db, at(bucket))
    later.ship()  # it has the log from here on: a fence is behind the last frame
    shown = seen_by(far)
    write(db, 2)
    later.ship()
    key = places(bucket)[-1].key
    like = ObjectLog(objects_of(at(bucket))).get(places(bucket)[-1])
    assert like is not None
    taken = bucket.objects.pop(f"shop/{key}")
    for number in range(2, 5):  # puts of the first one that land late
        put_frame(bucket, LogPlace(last.epoch, last.number + number), like)
    assert seen_by(far) == shown == seen_by(reader())
    bucket.objects[f"shop/{key}"] = taken
    assert seen_by(far) == seen_by(db) == seen_by(reader())


def test_no_commit_is_shown_behind_an_object_that_is_gone(shipping, reader, bucket):
    db = shipping.db
    write(db, 0)
    shipping.ship()
    looks = Looks()
    far, shown = reader(looks=looks), seen_by(db)
    for number in range(1, 4):
        write(db, number)
        shipping.ship()
    gone = places(bucket)[1]
    taken = bucket.objects.pop(f"shop/{gone.key}")
    assert seen_by(far) == shown
    with pytest.raises(CorruptionError, match=f"s3://simulated/shop/{gone.key}: .*missing"):
        reader()
    looks.now += HOLE_S  # a reader that goes on hears it within a minute
    with pytest.raises(CorruptionError, match="missing"):
        far.snapshot()
    bucket.objects[f"shop/{gone.key}"] = taken
    assert seen_by(far) == seen_by(db)


def test_an_owner_that_claims_a_log_with_a_gap_ends_it_there_and_sends_the_rest_again(
    shipping, reader, bucket, tmp_path
):
    """The claim does not look behind the gap: it would hold up those who can fill it."""
    db = shipping.db
    shown: list[tuple[int, Content]] = []
    for number in range(4):
        write(db, number)
        shipping.ship()
        shown.append(seen_by(db))
    gone = places(bucket)[1]
    bucket.objects.pop(f"shop/{gone.key}")
    with pytest.raises(CorruptionError, match=f"{gone.key}: .*missing"):
        reader()
    claims = ObjectLog(objects_of(at(bucket)))
    floor = Bucket(claims.objects).read(1).log_begin
    taken = take_over(claims, lambda: floor, new_token())  # and ends
    assert len(taken.frames) == 1
    assert seen_by(reader()) == shown[0]  # until the owner has sent more, with no word of a gap
    restored(at(bucket), tmp_path / "r")
    assert taken_from(tmp_path / "r") == shown[0]
    assert Shipping(db, at(bucket)).ship() == db.seq
    assert seen_by(reader()) == shown[-1]
    restored(at(bucket), tmp_path / "again")
    assert taken_from(tmp_path / "again") == shown[-1]


def test_no_mirror_begins_above_a_gap_before_its_owner_has_shipped_again(shipping, reader, bucket):
    db = shipping.db
    for number in range(3):
        write(db, number)
        shipping.ship()
    bucket.objects.pop(f"shop/{places(bucket)[1].key}")
    db.checkpoint()
    with pytest.raises(CorruptionError, match="missing"):
        shipping.mirror()
    again = Shipping(db, at(bucket))
    again.ship()
    again.mirror()
    assert seen_by(reader()) == seen_by(db)


def test_a_damaged_object_is_named_and_never_shown(shipping, reader, bucket):
    db = shipping.db
    far = reader()
    write(db, 0)
    shipping.ship()
    shown = seen_by(db)
    assert seen_by(far) == shown
    write(db, 1)
    shipping.ship()
    key = f"shop/{places(bucket)[-1].key}"
    data, modified = bucket.objects[key]
    for byte in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[byte] ^= 4
        bucket.objects[key] = bytes(damaged), modified
        with pytest.raises((CorruptionError, st.UnsupportedFormatError), match="wal/"):
            far.snapshot()
    bucket.objects[key] = data, modified
    assert seen_by(far) == seen_by(db)


def test_the_log_of_another_line_is_left_out_as_a_restore_leaves_it_out(
    shipping, reader, bucket, tmp_path
):
    """The record of a copy is above the log of the store: their commits at its seq differ."""
    db = shipping.db
    for number in range(3):
        write(db, number)
    shipping.ship()
    frames = {key: bucket.objects[f"shop/{key}"] for key in log_keys(bucket)}
    db.checkpoint()
    shipping.mirror()
    bucket.objects |= {f"shop/{key}": found for key, found in frames.items()}
    key = f"shop/{formats.record_key(2)}"
    found = formats.decode_record(bucket.objects[key][0], "")
    record = replace(found.record, last_time_us=found.record.last_time_us + 1)
    data = formats.encode_record(replace(found, record=record, wal_epoch=0, wal_floor=0))
    bucket.objects[key] = data, bucket.now()
    write(db, 9)
    shipping.ship()
    far = reader()
    assert far.seq == found.seq < db.seq
    assert restored(at(bucket), tmp_path / "r").seq == found.seq


# readers that sleep


def test_a_reader_that_slept_finds_newer_records_though_the_next_one_was_given_up(
    shipping, reader, bucket
):
    db, looks = shipping.db, Looks()
    far = reader(looks=looks)
    for number in range(3):
        write(db, number)
        shipping.ship()
        db.checkpoint()
        shipping.mirror()
    objects = objects_of(at(bucket))
    objects.put(formats.FLOOR, text_of(Floor(4)))
    objects.delete([formats.record_key(number) for number in (1, 2, 3)])
    looks.now += LIST_S
    assert seen_by(far) == seen_by(db)


@contextmanager
def two_tables(path):
    """Yield a store with an empty table of each kind."""
    with st.connect(path, background=False) as db:
        db.create_table("keyed", {"id": "int64", "v": "string"}, primary_key="id")
        db.create_table("plain", {"a": "int64"})
        db.checkpoint()
        yield db


def begun_to_ship(db):
    """Return a bucket with one record and one frame of a store, and what ships there."""
    bucket = SimBucket()
    shipping = Shipping(db, at(bucket))
    shipping.mirror()
    write(db, 0)
    shipping.ship()
    return bucket, shipping


def test_a_reader_that_opens_has_what_was_shipped_though_the_next_record_was_given_up(
    tmp_path, monkeypatch
):
    """It slept while the frames went into later records, of which the vacuum thinned the first."""
    number, requests = 1, 2
    with two_tables(tmp_path / "s") as db:
        while number <= requests:
            bucket, shipping = begun_to_ship(db)
            shipped = db.seq

            def goes_on(bucket: SimBucket = bucket, shipping: Shipping = shipping) -> None:
                for each in range(1, 3):
                    write(db, each)
                    shipping.ship()
                    db.checkpoint()
                    shipping.mirror()
                objects = objects_of(at(bucket))
                objects.put(formats.FLOOR, text_of(Floor(1, (), 3)))
                objects.delete([formats.record_key(2)])

            server = SleepyServer(bucket, below="shop/", is_behind=True)
            server.asleep = {number: goes_on}
            with reader_at(server, db.path, monkeypatch, Looks(0.0)) as far:
                requests = server.requests
                assert far.seq >= shipped, server.trace[number - 1 :]
            number += 1
    assert number > 3


def others(shipping: Shipping, bucket: SimBucket) -> list[Callable[[], object]]:
    """Return what others may do while a reader sleeps."""
    db = shipping.db
    numbers = iter(range(100, 1000))

    def ships() -> None:
        write(db, next(numbers))
        shipping.ship()

    def publishes() -> None:
        ships()
        db.checkpoint()
        shipping.mirror()  # what it holds is deleted from the log, and nothing is behind it

    def another_owner() -> None:
        ships()
        later = Shipping(db, at(bucket))
        write(db, next(numbers))
        later.ship()
        db.checkpoint()
        later.mirror()
        write(db, next(numbers))
        later.ship()

    return [ships, publishes, another_owner]


@pytest.mark.parametrize("which", by_day([1, 2], range(3)))
@pytest.mark.parametrize("is_behind", by_day([True], [False, True]))
@pytest.mark.parametrize("is_there", [False, True], ids=["opens", "looks"])
def test_a_reader_that_sleeps_at_any_request_shows_one_whole_prefix(
    tmp_path, monkeypatch, which, is_behind, is_there
):
    """One that opens has all that was shipped before; one that was there has it at the next look,
    at the latest."""
    number, requests = 1, 2
    with two_tables(tmp_path / "s") as db:
        while number <= requests:
            bucket, shipping = begun_to_ship(db)
            shown, shipped = db.seq, db.seq
            server = SleepyServer(bucket, below="shop/", is_behind=is_behind)
            meanwhile = others(shipping, bucket)[which]
            looks = Looks(0.0)
            far = reader_at(server, db.path, monkeypatch, looks) if is_there else None
            if far is not None:
                write(db, 1)
                shipping.ship()
                looks.now += 1.0
            server.trace.clear()
            server.asleep = {number: meanwhile}
            if far is None:
                far = reader_at(server, db.path, monkeypatch, looks)
            with far, far.snapshot() as seen:
                requests = server.requests
                assert seen.seq >= (shown if is_there else shipped)
                with db.snapshot(seq=seen.seq) as expected:
                    assert content(seen) == content(expected)
                server.asleep.clear()
                looks.now += 1.0
                assert seen_by(far) == seen_by(db)
            number += 1 if is_there else by_day(4, 1)
    assert number > 3


READ_FAULTS = [Fault.NOT_DONE, Fault.BUSY, Fault.HALF, Fault.DENIED, Fault.LATER, Fault.TWICE]


@pytest.mark.parametrize("fault", READ_FAULTS)
def test_a_request_without_an_answer_costs_a_look_and_never_a_commit(
    shipping, bucket, reader, fault
):
    db = shipping.db
    for number in range(3):
        write(db, number)
        shipping.ship()
    server = at(bucket)
    assert seen_by(reader(server)) == seen_by(db)
    for number in range(1, server.requests + 1):
        failing = at(bucket)
        failing.faults[number] = fault
        try:
            found = seen_by(reader(failing))
        except UnavailableError:
            assert fault is Fault.DENIED
        else:
            assert found == seen_by(db)


# bounds


def test_the_rows_of_the_log_that_a_reader_holds_are_bounded(shipping, reader, caplog):
    db = shipping.db
    far = reader(memory_bytes_max=64 << 20)
    text = "x" * (1 << 20)
    seqs = [db.seq]
    for number in range(40):
        db["keyed"].upsert({"id": 9000 + number, "v": text})
        shipping.ship()
        seqs.append(far.seq)
    stays = seqs[-1]
    assert stays < db.seq
    assert stays == seqs[-2]
    assert 20 <= seqs.index(stays) <= 22  # MiB: a third
    assert sum("bytes of its log" in each for each in caplog.messages) == 1
    assert far["keyed"].get(9000)["v"] == text
    db.checkpoint()
    shipping.mirror()
    db["keyed"].upsert({"id": 1, "v": "next"})
    shipping.ship()
    assert far.seq == db.seq
    assert far["keyed"].get(1) == {"id": 1, "v": "next"}


def test_what_a_log_adds_to_the_requests_of_a_reader(shipping, reader, bucket):
    server = at(bucket)
    far = reader(server)
    assert [each.split("/")[0] for each in server.trace] == [
        "list manifest",
        "list manifest",
        "get manifest",
        "put leases",
        "get manifest",
        "get wal",
    ]  # the simulated server gives three keys a page
    write(shipping.db, 0)
    shipping.ship()
    assert far.seq == shipping.db.seq
    server.trace.clear()
    for _ in range(5):
        far.snapshot().close()
    assert (
        server.trace
        == ["get manifest/00000000000000000002.json", "get wal/00000001/00000000000000000003"] * 5
    )


def test_looks_are_a_second_apart(shipping, bucket, monkeypatch):
    looks, server = Looks(0.0), at(bucket)
    with reader_at(server, shipping.db.path, monkeypatch, looks) as far:
        write(shipping.db, 0)
        shipping.ship()
        server.trace.clear()
        before = far.seq
        assert server.trace == []
        looks.now += 1.0
        assert far.seq == shipping.db.seq > before


def test_a_seq_that_another_reader_shows_is_looked_for_at_once(shipping, bucket, monkeypatch):
    """As plans of Spark do, which are made in other processes than the tables that they read."""
    looks, server = Looks(0.0), at(bucket)
    with reader_at(server, shipping.db.path, monkeypatch, looks) as far:
        write(shipping.db, 0)
        shipping.ship()
        with reader_at(at(bucket), shipping.db.path, monkeypatch, looks) as other:
            seq, shown = seen_by(other)
        with far.snapshot(seq=seq) as snapshot:
            assert content(snapshot) == shown
        server.trace.clear()
        with pytest.raises(st.SnapshotExpiredError):
            far.snapshot(seq=seq + 1)
        assert len(server.trace) == 2
        assert far.seq == seq
        assert len(server.trace) == 2


# the rest of a store


def test_state_and_verify_of_a_store_with_a_shipped_log(shipping, reader):
    write(shipping.db, 0)
    shipping.ship()
    shipping.db.checkpoint()
    shipping.mirror()
    write(shipping.db, 1)
    shipping.ship()
    far = reader()
    status = far.status()
    assert (status.visible_seq, status.is_read_only) == (shipping.db.seq, True)
    assert far.verify().findings == ()
    assert far.verify(deep=True).findings == ()
