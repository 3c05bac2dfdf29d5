"""The bucket's vacuum gives up old records, and deletes only what no record needs."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.errors import RequestError, SiltstoneError, SnapshotExpiredError
from siltstone.formats import bucket as formats
from siltstone.formats.bucket import BucketLease
from siltstone.maintenance.backup.backup import named_by
from siltstone.maintenance.backup.bucket_vacuum import BucketVacuum, BucketVacuumed
from siltstone.maintenance.backup.leased_records import lease
from siltstone.maintenance.backup.shipped_log import newest_with_shipped
from siltstone.maintenance.thinning import Bounds
from siltstone.storage.bucket.bucket import Bucket
from tests.maintenance.far_readers import reader_at
from tests.maintenance.mirrors import (
    TABLES,
    at,
    content,
    go_on,
    lived,
    mirrored,
    mirrorer,
    objects_of,
    restored,
    taken_from,
)
from tests.maintenance.test_shipping import Shipping
from tests.nightly import by_day
from tests.support.simulated_objects import Fault, SimBucket, SimServer, SimulatedKill

HOUR_S, WEEK_S = 3_600.0, 7 * 86_400.0
EAGER = Bounds(gap_bytes=1 << 40, recent_s=0.0)
"""Thins what it may."""


class Clock:
    """The server's time, which a test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bucket(clock: Clock) -> SimBucket:
    return SimBucket(now=clock)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with lived(tmp_path / "s", retention_s=0) as store:
        yield store


def vacuumed(
    root: Path,
    server: SimServer,
    *,
    retention_s: float = WEEK_S,
    bounds: Bounds = EAGER,
    grace_s: float = 0.0,
) -> BucketVacuumed:
    """Claim the bucket, publish, and vacuum, as a mirror does."""
    mirror = mirrorer(root, server)
    vacuum = BucketVacuum(
        mirror.site, mirror.objects, TABLES, retention_s=retention_s, bounds=bounds
    )
    with ExitStack() as held:
        source = lease(mirror.site, held, with_log=False)
        session = held.enter_context(mirror.session(source))
        session.publish(source, lambda *_: None, anyway=True)
        return vacuum.run(grace_s=grace_s)


def chain_of(bucket: SimBucket) -> Bucket:
    return Bucket(objects_of(at(bucket)))


def seqs_of(bucket: SimBucket) -> list[int]:
    chain = chain_of(bucket)
    return sorted({chain.read(number).seq for number in chain.numbers()})


def all_restore(bucket: SimBucket, rows: Mapping[int, object], target: Path) -> None:
    """Check that each record of the bucket has all its files, and the rows of its seq."""
    for seq in seqs_of(bucket):
        restored(at(bucket), target, seq=seq)
        assert taken_from(target) == (seq, rows[seq]), seq


def mirrored_hourly(
    db: st.Store, bucket: SimBucket, clock: Clock, hours: int, *, merges: bool = True
) -> dict[int, object]:
    """Change, flush and mirror each hour; return the rows of each seq."""
    rows: dict[int, object] = {mirrored(db.path, at(bucket)).seq: content(db)}
    for number in range(hours):
        clock.now += HOUR_S
        go_on(db, number)
        if merges and number % 2:
            db.merge()
        rows[mirrored(db.path, at(bucket)).seq] = content(db)
    return rows


def test_what_stays_is_whole_and_what_is_older_than_the_retention_goes(db, bucket, clock, tmp_path):
    rows = mirrored_hourly(db, bucket, clock, 6)
    before = set(bucket.objects)
    done = vacuumed(db.path, at(bucket), retention_s=2 * HOUR_S)
    assert done.records >= 4
    assert done.floor == chain_of(bucket).numbers()[0]
    kept = seqs_of(bucket)
    assert kept[-1] == db.seq
    assert kept == sorted(rows)[-len(kept) :]
    all_restore(bucket, rows, tmp_path / "r")
    db.vacuum(dry_run=False, grace_s=0)  # the store's own past is gone, too
    db.optimize()
    go_on(db, 99)
    rows[mirrored(db.path, at(bucket)).seq] = content(db)
    clock.now += 8 * HOUR_S
    done = vacuumed(db.path, at(bucket), retention_s=2 * HOUR_S)
    assert done.objects > 0
    assert set(bucket.objects) & before < before
    all_restore(bucket, rows, tmp_path / "r")


def test_a_week_of_hours_leaves_few_records_and_the_chain_has_no_gap_above_them(
    db, bucket, clock, tmp_path
):
    rows = mirrored_hourly(db, bucket, clock, by_day(12, 60))
    done = vacuumed(db.path, at(bucket), retention_s=WEEK_S)
    numbers = chain_of(bucket).numbers()
    assert len(numbers) < len(rows) / 2
    assert done.records > len(rows) / 2
    go_on(db, 1)
    rows[db.seq] = content(db)
    made = mirrored(db.path, at(bucket))
    assert made.record == numbers[-1] + 1
    all_restore(bucket, rows, tmp_path / "r")


def test_a_mirror_that_was_off_for_a_week_beside_hourly_vacuums_is_whole_again(
    db, bucket, clock, tmp_path
):
    first = mirrored(db.path, at(bucket))
    rows = {first.seq: content(db)}
    for number in range(by_day(10, 168)):
        clock.now += WEEK_S / 10
        go_on(db, number)
        if not number % 3:
            db.merge()
        db.vacuum(dry_run=False, grace_s=0)
    made = mirrored(db.path, at(bucket))
    rows[made.seq] = content(db)
    assert made.record == first.record + 1
    all_restore(bucket, rows, tmp_path / "r")
    vacuumed(db.path, at(bucket), retention_s=0.0)
    assert seqs_of(bucket)[-1] == made.seq
    all_restore(bucket, rows, tmp_path / "r")


def test_a_mirror_vacuums_by_itself_once_an_hour_by_the_servers_time(db, bucket, clock):
    site = mirrorer(db.path, at(bucket)).site

    def run(server: SimServer) -> None:
        from siltstone.open.mirroring import Mirroring, mirrorer_of

        how = Mirroring(site, "s3://simulated/shop", HOUR_S)
        mirrorer_of(how, objects_of(server), lambda _: "simulated")[0].run()

    def floors(server: SimServer) -> int:
        return server.trace.count(f"put {formats.FLOOR}")

    counts = []
    for number in range(6):
        go_on(db, number)
        server = at(bucket)
        run(server)
        counts.append(floors(server))
        clock.now += HOUR_S / 2
    assert counts[0] == 0  # there is nothing old
    assert 1 <= sum(counts) < 5


def test_a_tagged_record_stays_and_its_files_too(bucket, clock, tmp_path):
    with st.connect(tmp_path / "s", background=False, retention_s=0) as db:
        table = db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        table.upsert({"id": 1, "v": 1})
        db.checkpoint()
        db.merge()
        db.tag("old")
        for number in range(2, 6):
            table.upsert({"id": 1, "v": number})
            db.checkpoint()
            db.merge()
            clock.now += HOUR_S
            mirrored(db.path, at(bucket))
            db.vacuum(dry_run=False, grace_s=0)
        vacuumed(db.path, at(bucket), retention_s=0.0)
    restored(at(bucket), tmp_path / "r")
    with st.connect(tmp_path / "r", background=False) as again:
        assert again.snapshot(tag="old")["t"].get(1) == {"id": 1, "v": 1}
        assert again["t"].get(1) == {"id": 1, "v": 5}
        assert again.verify(deep=True).findings == ()


# --- who reads


def put_lease(bucket: SimBucket, record: int, *, ttl_s: float = 600.0) -> str:
    key = f"{formats.LEASES}reader"
    found = BucketLease(record, ttl_s, "a reader on atlas")
    objects_of(at(bucket)).put(key, formats.encode_lease(found))
    return key


def test_a_leased_record_stays_until_its_lease_is_over(db, bucket, clock, tmp_path):
    rows = mirrored_hourly(db, bucket, clock, 4)
    first = seqs_of(bucket)[0]
    key = put_lease(bucket, 1)
    done = vacuumed(db.path, at(bucket), retention_s=0.0)
    assert done.leases == 1
    assert f"shop/{formats.record_key(1)}" in bucket.objects
    files = dict(bucket.objects)
    restored_from(files, 1, tmp_path / "r", rows[first])
    clock.now += 600.0 + 61.0
    go_on(db, 100)
    mirrored(db.path, at(bucket))
    done = vacuumed(db.path, at(bucket), retention_s=0.0)
    assert done.leases == 0
    assert f"shop/{key}" not in bucket.objects
    assert f"shop/{formats.record_key(1)}" not in bucket.objects


def restored_from(objects: dict, number: int, target: Path, rows: object) -> None:
    """Restore a record that FLOOR gave up and a lease keeps, as its reader sees it."""
    left = SimBucket({key: found for key, found in objects.items() if "FLOOR" not in key})
    seq = Bucket(objects_of(at(left))).read(number).seq
    restored(at(left), target, seq=seq)
    assert taken_from(target)[1] == rows


def test_a_lease_that_comes_while_the_vacuum_runs_is_seen_or_hears_of_floor(db, bucket, clock):
    """Between any two requests: the lease is on the list, or FLOOR says that it came too late."""
    mirrored_hourly(db, bucket, clock, 3, merges=False)
    learning = at(SimBucket(dict(bucket.objects), now=clock))
    vacuumed(db.path, learning, retention_s=0.0)
    fates = set()
    for moment in range(1, learning.requests + 1):
        left = SimBucket(dict(bucket.objects), now=clock)

        class Reader(SimServer):
            """Leases record 1 just before a request of the vacuum, and looks at FLOOR."""

            is_kept: bool | None = None

            def _do(self, what, request, *, has_condition=False, moment=moment):
                with self.bucket.lock:  # some requests are made side by side
                    if self.is_kept is None and len(self.trace) + 1 >= moment:
                        put_lease(self.bucket, 1)
                        self.is_kept = chain_of(self.bucket).floor().keeps(1)
                return super()._do(what, request, has_condition=has_condition)

        server = Reader(left, below="shop/")
        vacuumed(db.path, server, retention_s=0.0)
        is_there = f"shop/{formats.record_key(1)}" in left.objects
        assert is_there or not server.is_kept, (moment, server.trace[moment - 3 : moment])
        fates.add(server.is_kept)
    assert fates == {True, False}


def test_a_restore_leases_its_record_and_one_that_is_too_late_hears_that_it_expired(
    db, bucket, clock, tmp_path
):
    mirrored_hourly(db, bucket, clock, 3)
    oldest = seqs_of(bucket)[0]

    class Vacuumed(SimServer):
        """A vacuum runs just before a request of the restore, once."""

        before = ""

        def _do(self, what, request, *, has_condition=False):
            if self.before and what.startswith(self.before):
                self.before = ""
                vacuumed(db.path, at(self.bucket), retention_s=0.0)
            return super()._do(what, request, has_condition=has_condition)

    left = SimBucket(dict(bucket.objects), now=clock)
    leased = Vacuumed(left, below="shop/")
    leased.before = "get tables/"
    restored(leased, tmp_path / "r", seq=oldest)
    assert taken_from(tmp_path / "r")[0] == oldest
    assert not [key for key in left.objects if formats.LEASES in key]
    late = Vacuumed(SimBucket(dict(bucket.objects), now=clock), below="shop/")
    late.before = f"put {formats.LEASES}"
    with pytest.raises(SnapshotExpiredError, match=f"seq {oldest} of the mirror"):
        restored(late, tmp_path / "r", seq=oldest)
    shutil.rmtree(tmp_path / "r")
    with pytest.raises(RequestError, match="the next one above is at"):
        restored(late, tmp_path / "r", seq=oldest)


# --- crashes, and those who slept


def test_a_vacuum_cut_off_at_any_request_leaves_whole_records_and_the_next_goes_on(
    db, bucket, clock, tmp_path
):
    rows = mirrored_hourly(db, bucket, clock, 4)
    learning = at(SimBucket(dict(bucket.objects), now=clock))
    vacuumed(db.path, learning, retention_s=HOUR_S)
    kinds = (Fault.KILLED_AFTER, Fault.LATER, Fault.LOST)
    faults = list(itertools.product(range(1, learning.requests + 1), kinds))
    for number, fault in random.Random(3).sample(faults, min(len(faults), by_day(12, 10_000))):
        left = SimBucket(dict(bucket.objects), now=clock)
        server = SimServer(left, {number: fault}, "shop/")
        with suppress(SimulatedKill, SiltstoneError):
            vacuumed(db.path, server, retention_s=HOUR_S)
        newest = max(rows)
        restored(at(left), tmp_path / "r")
        assert taken_from(tmp_path / "r") == (newest, rows[newest]), (number, fault)
        vacuumed(db.path, at(left), retention_s=HOUR_S)
        server.is_killed = False
        server.land()
        all_restore(left, rows, tmp_path / "r")


def test_what_a_sleeping_vacuum_deletes_later_was_garbage_for_ever(db, bucket, clock, tmp_path):
    """Its deletes land after another mirror has taken the claim, and published."""
    rows = mirrored_hourly(db, bucket, clock, 3)
    late: list[str] = []

    class Sleeper(SimServer):
        """Its deletes are done after all that follows."""

        def delete(self, key: str) -> None:
            late.append(key)

    vacuumed(db.path, Sleeper(bucket, below="shop/"), retention_s=0.0)
    assert late
    for number in range(50, 53):
        clock.now += HOUR_S
        go_on(db, number)
        db.tag(f"t{number}")
        db.merge()
        rows[mirrored(db.path, at(bucket)).seq] = content(db)
    for key in late:
        bucket.objects.pop(f"shop/{key}", None)
    all_restore(bucket, rows, tmp_path / "r")


def test_what_the_store_still_has_is_no_garbage_of_the_bucket(bucket, clock, tmp_path):
    """A tag may need a record that only the store keeps; deletes may land much later."""
    with lived(tmp_path / "s") as db:  # with a retention
        mirrored_hourly(db, bucket, clock, 3)
        late: list[str] = []

        class Sleeper(SimServer):
            def delete(self, key: str) -> None:
                late.append(key)

        vacuumed(db.path, Sleeper(bucket, below="shop/"), retention_s=0.0)
    here = {str(path.relative_to(tmp_path / "s")) for path in (tmp_path / "s").rglob("*")}
    assert late
    assert not [key for key in late if key in here and not key.startswith(formats.RECORDS)]


def test_what_was_uploaded_by_a_run_that_was_cut_off_goes_after_the_grace_period(db, bucket, clock):
    mirrored(db.path, at(bucket))
    bucket.objects["shop/tables/x/data/left.lance"] = (b"x", clock.now)
    bucket.objects["shop/wal/1/2"] = (b"x", clock.now)
    go_on(db, 1)
    mirrored(db.path, at(bucket))
    vacuumed(db.path, at(bucket), grace_s=86_400.0)
    assert "shop/tables/x/data/left.lance" in bucket.objects
    clock.now += 86_401.0
    go_on(db, 2)
    mirrored(db.path, at(bucket))
    vacuumed(db.path, at(bucket), grace_s=86_400.0)
    assert "shop/tables/x/data/left.lance" not in bucket.objects
    assert "shop/wal/1/2" in bucket.objects  # a log is none of its business


def test_a_vacuum_takes_few_requests(db, bucket, clock):
    mirrored_hourly(db, bucket, clock, 6)
    server = at(bucket)
    server.page = 1_000
    done = vacuumed(db.path, server, retention_s=HOUR_S)
    lists = [each for each in server.trace if each.startswith("list")]
    # The mirror's look, the chain, the leases, the bucket; the server asks once more at each end.
    # And twice the log, which is empty: by the claim, and for the files that it names.
    assert len(lists) <= 2 * 3 + 1 + 2
    assert sum(each.startswith("delete") for each in server.trace) == done.records + done.objects


def test_what_a_reader_has_of_a_log_that_was_deleted_stays_while_it_reads(
    db, bucket, clock, monkeypatch
):
    """It was put days ago, and a frame alone named it when the reader began."""
    shipping = Shipping(db, at(bucket))
    shipping.mirror()
    stage = db.stage("keyed")
    staged = stage.run(pa.table({"id": [7000], "v": ["staged"]}))
    with db.transaction() as tx:
        tx.attach(stage, [staged])
    shipping.ship()
    clock.now += 48 * HOUR_S
    with reader_at(at(bucket), db.path, monkeypatch) as far:
        reading = far.snapshot()
        assert reading.seq == db.seq
        _, groups = newest_with_shipped(chain_of(bucket))
        reader = shipping.mirrorer.site.tables.reader
        named = {f"shop/{file.path}" for pin in named_by(groups) for file in reader.files(pin)}
        db.merge()
        go_on(db, 1)
        db.merge()
        db.vacuum(dry_run=False, grace_s=0)
        shipping.mirror()
        vacuumed(db.path, at(bucket), grace_s=24 * HOUR_S)
        assert named <= set(bucket.objects)
        reading.close()
    assert vacuumed(db.path, at(bucket), grace_s=24 * HOUR_S).leases == 0
    assert not named & set(bucket.objects)
