"""What is acknowledged as shipped outlives the machine; all else goes on as without a bucket."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.api import runs
from siltstone.errors import (
    CorruptionError,
    InDoubtError,
    NotShippedError,
    RequestError,
    SnapshotExpiredError,
)
from siltstone.formats.log.log_object import LogPlace
from siltstone.local.store import LocalStore
from siltstone.maintenance.backup.mirror import Mirrorer
from siltstone.maintenance.backup.shipped_log import newest_with_shipped
from siltstone.maintenance.shipping.shipper import Shipper
from siltstone.open.mirroring import shipper_of
from siltstone.storage.bucket.bucket import Bucket
from siltstone.storage.manifest.manifest_store import RESTORING
from siltstone.storage.objects.server import BucketServer
from tests.maintenance.mirrors import (
    at,
    content,
    lived,
    mirrored,
    mirrorer,
    objects_of,
    restored,
    taken_from,
    with_mirror,
)
from tests.support.simulated_objects import Fault, SimBucket, SimServer, SimulatedKill


class Shipping:
    """A store with a mirror and a shipper that a test runs step by step, in no thread."""

    def __init__(self, db: st.Store, server: BucketServer) -> None:
        assert isinstance(db, LocalStore)
        self.db, self.server = db, server
        self.mirrorer: Mirrorer = mirrorer(db.path, server)
        core = db.core
        self.shipper: Shipper = shipper_of(self.mirrorer, lambda: core.state().view.record)

    def mirror(self) -> int:
        return self.mirrorer.run().seq

    def ship(self) -> int:
        self.shipper.ship()
        return self.shipper.shipped_seq


@pytest.fixture
def bucket() -> SimBucket:
    return SimBucket()


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with lived(tmp_path / "s") as store:
        yield store


@pytest.fixture
def shipping(db: st.Store, bucket: SimBucket) -> Shipping:
    made = Shipping(db, at(bucket))
    made.mirror()
    return made


def log_keys(bucket: SimBucket) -> list[str]:
    """Return the keys of the frames."""
    found = sorted(key.removeprefix("shop/") for key in bucket.objects if "/wal/" in key)
    return [key for key in found if len(bucket.objects[f"shop/{key}"][0]) > 88]


def write(db: st.Store, number: int) -> None:
    """Change a keyed and a plain table in one commit."""
    with db.transaction() as tx:
        tx["keyed"].upsert({"id": 5000 + number, "v": f"w{number}"})
        tx["plain"].append([{"a": 5000 + number}])


# what is shipped


def test_a_restored_store_has_what_was_shipped_above_the_record(shipping, bucket, tmp_path):
    db = shipping.db
    for number in range(3):
        write(db, number)
        assert shipping.ship() == db.seq
    expected, seq = content(db), db.seq
    write(db, 9)  # never shipped
    assert restored(at(bucket), tmp_path / "r").seq == seq
    with st.connect(tmp_path / "r", background=False) as again:
        assert (again.seq, content(again)) == (seq, expected)
        write(again, 10)
        again.checkpoint()
        again.merge()
        assert again.verify(deep=True).findings == ()


def test_commits_that_waited_go_into_one_frame_and_one_put(shipping, bucket):
    shipping.ship()
    before = len(log_keys(bucket))
    for number in range(20):
        shipping.db["keyed"].upsert({"id": number, "v": "x"})
    shipping.server.trace.clear()
    assert shipping.ship() == shipping.db.seq
    assert len(log_keys(bucket)) == before + 1
    assert [each[:8] for each in shipping.server.trace] == ["put wal/"]


def test_the_files_that_a_frame_names_are_in_the_bucket_before_it(shipping, bucket, tmp_path):
    db = shipping.db
    shipping.ship()
    stage = db.stage("keyed")
    staged = stage.run(pa.table({"id": range(7000, 7010), "v": ["staged"] * 10}))
    with db.transaction() as tx:
        tx.attach(stage, [staged])
    db["plain"].append([{"a": 77}])
    shipping.server.trace.clear()
    assert shipping.ship() == db.seq
    puts = [each for each in shipping.server.trace if each.startswith("put ")]
    assert puts[-1].startswith("put wal/")
    assert any("/.attached/" in each for each in puts[:-1])
    assert any("plain" in each for each in puts[:-1])
    assert [each for each in puts if "wal/" in each] == puts[-1:]
    expected = content(db)
    restored(at(bucket), tmp_path / "r")
    assert taken_from(tmp_path / "r") == (db.seq, expected)


@pytest.mark.parametrize("is_mirrored", [False, True])
def test_a_restore_that_is_run_again_says_what_the_store_has(
    shipping, bucket, tmp_path, is_mirrored
):
    """It was killed once it had made the store; the log and the mirror have gone on since."""
    db = shipping.db
    write(db, 1)
    shipping.ship()
    expected, seq = content(db), db.seq
    learning = at(bucket)
    restored(learning, tmp_path / "learning")
    killed = at(bucket)
    killed.faults[learning.requests] = Fault.KILLED_BEFORE  # it gives its lease back
    with pytest.raises(SimulatedKill):
        restored(killed, tmp_path / "r")
    write(db, 2)
    shipping.ship()
    if is_mirrored:
        db.checkpoint()
        shipping.mirror()
    assert restored(at(bucket), tmp_path / "r").seq == seq
    assert taken_from(tmp_path / "r") == (seq, expected)


def test_a_seq_in_the_middle_of_what_was_shipped_is_restored(shipping, bucket, tmp_path):
    db = shipping.db
    expected = {}
    with_group = [{"id": 6000 + number, "v": "g"} for number in range(3)]
    for row in with_group:
        db["keyed"].upsert(row)
        expected[db.seq] = content(db)
    shipping.ship()
    for seq, rows in expected.items():
        restored(at(bucket), tmp_path / "r", seq=seq)
        assert taken_from(tmp_path / "r") == (seq, rows)
    with pytest.raises(RequestError, match=f"no record at seq {db.seq + 1}") as told:
        restored(at(bucket), tmp_path / "r", seq=db.seq + 1)
    assert f"what was shipped above them ends at {db.seq}" in str(told.value)


def test_a_seq_between_two_records_is_refused_with_what_the_upper_one_keeps(
    shipping, bucket, tmp_path
):
    """A log holds what is above the newest record alone."""
    db = shipping.db
    below = db.seq
    for number in range(2):
        write(db, number)
    shipping.ship()
    expected = {}
    with db.snapshot(seq=below + 1) as past:
        expected = content(past)
    db.checkpoint()
    shipping.mirror()
    near = f"one below is at {below}; the next one above is at {db.seq}"
    with pytest.raises(RequestError, match=near) as told:
        restored(at(bucket), tmp_path / "r", seq=below + 1)
    assert str(told.value).endswith(f": snapshot(seq={below + 1}) reads that past there")
    assert not (tmp_path / "r").exists()
    restored(at(bucket), tmp_path / "r", seq=db.seq)
    with st.connect(tmp_path / "r", background=False) as again:
        with again.snapshot(seq=below + 1) as past:
            assert content(past) == expected
        assert again.seq == db.seq


def test_a_restore_that_ended_but_for_its_sign_is_not_one_up_to_another_seq(
    shipping, bucket, tmp_path
):
    """It was killed behind its record: what is asked for now must not be taken for done."""
    db, target = shipping.db, tmp_path / "r"
    write(db, 0)
    first = db.seq
    write(db, 1)
    shipping.ship()
    done = restored(at(bucket), target, seq=first)
    (target / RESTORING).write_text(done.backup)
    with pytest.raises(RequestError, match=f"was restored up to seq {first}"):
        restored(at(bucket), target, seq=db.seq)
    assert restored(at(bucket), target).seq == first
    assert taken_from(target)[0] == first


def test_a_record_that_keeps_no_past_does_not_promise_it(bucket, tmp_path):
    with lived(tmp_path / "s", retention_s=0) as db:
        shipping = Shipping(db, at(bucket))
        shipping.mirror()
        seq = db.seq + 1
        for number in range(3):
            write(db, number)
            db.checkpoint()
            db.merge()
        db.vacuum(dry_run=False, grace_s=0)
        shipping.mirror()
        newest = Bucket(objects_of(at(bucket))).choose(None, None)
        assert newest.record.oldest_seq > seq
        with pytest.raises(RequestError, match=f"keeps no seq below {newest.record.oldest_seq}$"):
            restored(at(bucket), tmp_path / "r", seq=seq)


def test_a_record_that_was_merged_promises_only_the_past_that_a_restore_of_it_keeps(
    shipping, bucket, tmp_path
):
    """The store still reads more, by its older records, which are not in the bucket."""
    db = shipping.db
    seq = db.seq + 1
    for number in range(3):
        write(db, number)
    db.checkpoint()
    db.merge()
    shipping.mirror()
    with db.snapshot(seq=seq) as past:
        assert past.seq == seq
    with pytest.raises(RequestError, match=f"and keeps no seq below {db.seq}$"):
        restored(at(bucket), tmp_path / "r", seq=seq)
    done = restored(at(bucket), tmp_path / "r", seq=db.seq)
    assert done.oldest_seq == db.seq
    with (
        st.connect(tmp_path / "r", background=False) as again,
        pytest.raises(SnapshotExpiredError, match=f"keeps seq {db.seq} to {db.seq}"),
    ):
        again.snapshot(seq=seq)


def test_an_async_commit_is_shipped_once_it_is_durable(shipping):
    db = shipping.db
    shipping.ship()
    with db.transaction(durability="async") as tx:
        tx["keyed"].upsert({"id": 1, "v": "async"})
    durable = db.durable_seq
    assert shipping.ship() == durable
    db.core.committer.sync()
    assert shipping.ship() == db.seq == durable + 1


# the log and the records


def test_frames_are_deleted_below_the_floor_of_a_record_of_the_bucket_alone(shipping, bucket):
    db = shipping.db
    for number in range(3):
        write(db, number)
        shipping.ship()
    before = log_keys(bucket)
    db.checkpoint()  # a record of the store: nothing in the bucket has these rows
    shipping.ship()
    assert log_keys(bucket) == before
    write(db, 5)
    shipping.ship()
    kept = log_keys(bucket)[len(before) :]
    shipping.server.trace.clear()
    shipping.mirror()
    trace = [
        each for each in shipping.server.trace if each.startswith(("put manifest", "delete wal"))
    ]
    assert trace[0].startswith("put manifest")
    assert trace.count(trace[0]) == 1
    assert log_keys(bucket) == kept
    newest = Bucket(objects_of(at(bucket))).choose(None, None)
    assert LogPlace(newest.wal_epoch, newest.wal_floor).key == kept[0]


def test_a_mirror_that_does_not_ship_leaves_the_floor_where_it_is(shipping, bucket, tmp_path):
    db = shipping.db
    write(db, 1)
    shipping.ship()
    db.checkpoint()
    shipping.mirror()
    write(db, 2)
    shipping.ship()
    expected = content(db)
    mirrorer(db.path, at(bucket)).run()
    db.checkpoint()
    mirrorer(db.path, at(bucket)).run()
    restored(at(bucket), tmp_path / "r")
    assert taken_from(tmp_path / "r") == (db.seq, expected)


def test_what_was_recycled_before_it_was_shipped_is_waited_for_in_a_record(
    shipping, bucket, tmp_path
):
    db = shipping.db
    shipping.ship()
    for number in range(3):
        write(db, number)
        db.checkpoint()  # the segments are free for others
    flushed = db.seq
    write(db, 3)
    shipped = shipping.ship()
    assert shipped < flushed
    assert "recycled before commits behind" in (shipping.shipper.failure or "")
    assert shipping.ship() == shipped
    assert newest_with_shipped(Bucket(objects_of(at(bucket))))[1] == []
    assert shipping.mirror() == flushed
    expected = content(db)
    assert shipping.ship() == db.seq
    assert shipping.shipper.failure is None
    restored(at(bucket), tmp_path / "r")
    assert taken_from(tmp_path / "r") == (db.seq, expected)


def test_a_record_that_is_gone_between_two_stretches_of_the_log_is_missed(
    shipping, bucket, tmp_path
):
    db = shipping.db
    write(db, 0)
    shipping.ship()
    for number in range(2):
        write(db, number)
        db.checkpoint()
    shipping.ship()
    shipping.mirror()
    write(db, 4)
    shipping.ship()
    newest = Bucket(objects_of(at(bucket))).numbers()[-1]
    del bucket.objects[f"shop/manifest/{newest:020d}.json"]
    with pytest.raises(CorruptionError, match=r"nothing has those behind|missing"):
        restored(at(bucket), tmp_path / "r")


def test_the_next_owner_goes_on_behind_what_was_shipped(bucket, tmp_path):
    root = tmp_path / "s"
    with lived(root) as db:
        first = Shipping(db, at(bucket))
        first.mirror()
        write(db, 1)
        first.ship()
        write(db, 2)
    with st.connect(root, background=False) as db:
        second = Shipping(db, at(bucket))
        assert second.ship() == db.seq
        assert second.shipper.failure is None
        write(db, 3)
        assert second.ship() == db.seq
        expected, seq = content(db), db.seq
        first.shipper.ship()  # a process that slept
        write(db, 4)
        first.shipper.ship()
        assert "FencedError" in (first.shipper.failure or "")
    restored(at(bucket), tmp_path / "r")
    assert taken_from(tmp_path / "r") == (seq, expected)


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_copy_of_the_store_does_not_go_on_with_the_log_of_the_other(bucket, tmp_path, is_flushed):
    root, other = tmp_path / "s", tmp_path / "copy"
    with lived(root) as db:
        Shipping(db, at(bucket)).mirror()
    shutil.copytree(root, other)
    with st.connect(root, background=False) as db:
        shipping = Shipping(db, at(bucket))
        for number in range(3):
            write(db, number)
        shipping.ship()
        expected, seq = content(db), db.seq
    with st.connect(other, background=False) as db:
        for number in range(2):
            write(db, 10 + number)
        if is_flushed:
            db.checkpoint()
        write(db, 20)
        copied = Shipping(db, at(bucket))
        copied.ship()
        assert "is not claimed for this store" in (copied.shipper.failure or "")
        assert copied.shipper.wait(db.seq, 0) is not None
        if is_flushed:  # else there is nothing to mirror
            with pytest.raises(RequestError, match="diverged: its log has commits up to seq"):
                copied.mirror()
    restored(at(bucket), tmp_path / "r")
    assert taken_from(tmp_path / "r") == (seq, expected)


def test_without_a_record_in_the_bucket_nothing_is_shipped(db, bucket):
    shipping = Shipping(db, at(bucket))
    assert shipping.ship() == 0
    assert "no record yet" in (shipping.shipper.failure or "")
    assert log_keys(bucket) == []
    shipping.mirror()
    assert shipping.ship() == db.seq


def test_who_adopts_the_mirror_of_a_lost_machine_has_all_of_its_log_and_fences_it(
    shipping, bucket, tmp_path
):
    db = shipping.db
    write(db, 1)
    shipping.ship()
    restored(at(bucket), tmp_path / "r")
    write(db, 2)
    shipping.ship()  # the machine was not lost
    with pytest.raises(RequestError, match="has shipped commits up to seq"):
        mirrored(tmp_path / "r", at(bucket), adopt=True)
    restored(at(bucket), tmp_path / "r2")
    mirrored(tmp_path / "r2", at(bucket), adopt=True)
    write(db, 3)
    shipped = shipping.ship()
    assert shipped == db.seq - 1
    assert "FencedError" in (shipping.shipper.failure or "")
    with st.connect(tmp_path / "r2", background=False) as again:
        adopted = Shipping(again, at(bucket))
        write(again, 4)
        assert adopted.ship() == again.seq
        expected, seq = content(again), again.seq
    restored(at(bucket), tmp_path / "r3")
    assert taken_from(tmp_path / "r3") == (seq, expected)


# faults


FAULTS = [
    Fault.KILLED_BEFORE,
    Fault.KILLED_AFTER,
    Fault.LATER,
    Fault.LOST,
    Fault.CONFLICT,
    Fault.DENIED,
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_shipper_that_ends_at_any_request_loses_nothing_shipped(shipping, bucket, fault):
    db = shipping.db
    shipping.ship()

    def run(server: SimServer) -> int:
        made = Shipping(db, server)
        try:
            for number in range(2):
                db["keyed"].upsert({"id": number, "v": "x"})
                made.ship()
        except SimulatedKill:
            pass
        return made.shipper.shipped_seq

    def copied() -> SimServer:
        return at(SimBucket(dict(bucket.objects)))

    learning = copied()
    run(learning)
    for number in range(1, learning.requests + 1):
        server = copied()
        server.faults[number] = fault
        told = run(server)
        server.land()
        record, groups = newest_with_shipped(Bucket(objects_of(at(server.bucket))))
        assert told <= (groups[-1].last_seq if groups else record.seq) <= db.seq
        assert Shipping(db, at(server.bucket)).ship() == db.seq
        _, groups = newest_with_shipped(Bucket(objects_of(at(server.bucket))))
        assert groups[-1].last_seq == db.seq


# the store's own calls


@pytest.fixture
def open_mirrored(tmp_path: Path, bucket: SimBucket) -> Iterator[Callable[..., LocalStore]]:
    opened: list[LocalStore] = []

    def make(server: SimServer | None = None) -> LocalStore:
        opened.append(with_mirror(tmp_path / "s", server or at(bucket)))
        return opened[-1]

    with lived(tmp_path / "s"):
        pass
    yield make
    for each in opened:
        each.close()


def test_a_shipped_commit_is_in_the_bucket_when_it_returns(open_mirrored, bucket, tmp_path):
    db = open_mirrored()
    assert db.status().unshipped is None
    with db.transaction(durability="shipped") as tx:
        tx["keyed"].upsert({"id": 1, "v": "shipped"})
    assert db.status().unshipped == 0
    expected = content(db)
    objects = SimBucket(dict(bucket.objects))  # the machine is gone
    restored(at(objects), tmp_path / "r")
    assert taken_from(tmp_path / "r") == (tx.seq, expected)


def test_a_commit_that_is_not_shipped_in_time_is_committed_here_and_never_run_again(
    open_mirrored, bucket
):
    server = at(bucket)
    db = open_mirrored(server)
    db.wait_shipped()
    server.always = Fault.NOT_DONE
    db.core.shipped_wait_s = 0.0
    tried: list[st.Transaction] = []

    def work(tx: st.Transaction) -> None:
        tried.append(tx)
        tx["keyed"].upsert({"id": 1, "v": "here"})

    with pytest.raises(NotShippedError, match="committed here") as caught:
        runs.run(lambda: db.transaction(durability="shipped"), db.core.turns, work, 10)
    error = caught.value
    assert isinstance(error, InDoubtError)
    assert len(tried) == 1
    assert isinstance(error.receipt, st.Receipt)
    assert error.receipt.seq == error.seq == db.seq
    assert db["keyed"].get(1) == {"id": 1, "v": "here"}
    assert db.outcome(error.transaction_id) == "committed"
    assert db.status().unshipped == 1
    with pytest.raises(NotShippedError):
        db.wait_shipped(error.seq, timeout_s=0)
    server.always = None
    assert db.wait_shipped(error.seq) >= error.seq
    assert db.status().unshipped == 0


def test_without_a_mirror_a_shipped_commit_is_refused_before_it_begins(db):
    with pytest.raises(RequestError, match="open the store with mirror="):
        db.transaction(durability="shipped")
    with pytest.raises(RequestError, match="open the store with mirror="):
        db.wait_shipped()
    assert db.status().unshipped is None


def test_a_seq_that_is_not_committed_is_not_waited_for(open_mirrored):
    db = open_mirrored()
    with pytest.raises(RequestError, match="no commit at seq"):
        db.wait_shipped(db.seq + 1)
    assert db.wait_shipped(db.seq) == db.seq


def test_a_close_ships_what_is_durable(open_mirrored, bucket, tmp_path):
    db = open_mirrored()
    db.wait_shipped()
    for number in range(5):
        write(db, number)
    expected, seq = content(db), db.seq
    db.close()
    restored(at(bucket), tmp_path / "r")
    assert taken_from(tmp_path / "r") == (seq, expected)


def test_who_waits_once_the_store_is_closed_takes_the_log_from_nobody(shipping, bucket):
    """A commit may be amid its end when another thread closes the store."""
    shipping.shipper.finish(0.0)
    assert shipping.shipper.wait(shipping.db.seq, 0.0) == "the store was closed"
    assert not shipping.shipper.is_begun
    assert not [key for key in bucket.objects if "/wal/" in key]
