"""A bucket holds one record of a store with all its files, and a store is made of it again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import siltstone as st
from siltstone.errors import (
    BusyError,
    CorruptionError,
    ReplacedError,
    RequestError,
    UnavailableError,
    UnsupportedFormatError,
)
from siltstone.formats import bucket as formats
from siltstone.maintenance.backup.sent_records import SentRecords
from siltstone.storage.bucket.bucket import Bucket
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.manifest_store import ManifestStore
from tests.maintenance.mirrors import at, content, go_on, lived, mirrored, objects_of, restored
from tests.support.simulated_objects import Fault, SimBucket, SimServer


@pytest.fixture
def db(tmp_path: Path):
    with lived(tmp_path / "s") as store:
        yield store


@pytest.fixture
def bucket() -> SimBucket:
    return SimBucket()


def pages(bucket: SimBucket) -> int:
    return -(-len(bucket.objects) // SimServer.page)


def test_a_restored_store_has_the_rows_of_the_mirror_and_goes_on(db, bucket, tmp_path):
    made = mirrored(db.path, at(bucket))
    expected = content(db)
    assert (made.seq, made.behind, made.record) == (db.seq, 0, 1)
    done = restored(at(bucket), tmp_path / "r")
    assert (done.seq, done.files, done.nbytes) == (made.seq, made.files, made.nbytes)
    with st.connect(tmp_path / "r", background=False) as again:
        assert again.seq == db.seq
        assert content(again) == expected
        assert again.verify(deep=True).findings == ()
        assert again.snapshot(tag="first")["keyed"].get(7) == {"id": 7, "v": "v7"}
        again["keyed"].upsert({"id": 99, "v": "x"})
        again["plain"].append([{"a": 99}])
        for step in (again.checkpoint, again.merge, again.optimize):
            step()
        assert again["keyed"].get(99) == {"id": 99, "v": "x"}
        assert again.verify(deep=True).findings == ()


def test_commits_in_the_log_alone_are_behind_and_the_next_mirror_has_them(db, bucket, tmp_path):
    expected = content(db)
    seq = db.seq
    db["keyed"].upsert({"id": 500, "v": "late"})
    made = mirrored(db.path, at(bucket))
    assert (made.seq, made.behind) == (seq, 1)
    assert "1 commits are in the store's log alone" in str(made)
    restored(at(bucket), tmp_path / "r")
    with st.connect(tmp_path / "r", background=False) as again:
        assert (again.seq, content(again)) == (seq, expected)
    db.checkpoint()
    assert mirrored(db.path, at(bucket)).seq == db.seq


def test_the_next_mirror_sends_only_what_is_missing_and_the_same_one_nothing(db, bucket):
    first = mirrored(db.path, at(bucket))
    server = at(bucket)
    same = mirrored(db.path, server)
    assert (same.record, same.uploaded, same.files) == (first.record, 0, first.files)
    assert same.requests == 2 + pages(bucket)  # STORE, list, the newest record
    assert not [each for each in server.trace if each.startswith("put")]
    go_on(db, 1)
    server, before = at(bucket), SimBucket(dict(bucket.objects))
    more = mirrored(db.path, server)
    assert more.record == 2
    puts = [each for each in server.trace if each.startswith("put")]
    claim, *files, record, end = puts
    assert (claim, record, end) == ("put STORE", f"put {formats.record_key(2)}", "put STORE")
    assert len(files) == more.uploaded < first.uploaded
    asked = 2 + pages(before) + 2  # STORE, the bucket, the claim, whether there is a log
    assert more.requests == asked + more.uploaded + 2  # files, record, FLOOR


def test_a_store_that_was_only_opened_since_has_nothing_new(db, bucket, tmp_path):
    mirrored(db.path, at(bucket))
    db.close()
    st.connect(tmp_path / "s", background=False).close()  # its owner published an epoch
    again = mirrored(tmp_path / "s", at(bucket))
    assert (again.record, again.uploaded) == (1, 0)
    with st.connect(tmp_path / "s", background=False) as store:
        store.tag("new")
        store.checkpoint()
    assert mirrored(tmp_path / "s", at(bucket)).record == 2


def test_the_record_is_put_behind_all_its_files(db, bucket):
    server = at(bucket)
    mirrored(db.path, server)
    puts = [each.removeprefix("put ") for each in server.trace if each.startswith("put")]
    assert puts[0] == puts[-1] == formats.MARK
    assert puts[-2] == formats.record_key(1)
    assert formats.record_key(1) not in puts[:-2]


def test_the_chain_of_a_bucket_has_no_gap_whatever_records_the_store_skipped(db, bucket, tmp_path):
    mirrored(db.path, at(bucket))
    for number in range(3):  # a week in which nobody mirrors, beside a vacuum that thins
        go_on(db, number)
        db.merge()
        db.optimize()
    db.vacuum(dry_run=False, grace_s=0)
    made = mirrored(db.path, at(bucket))
    chain = Bucket(objects_of(at(bucket)))
    assert chain.numbers() == [1, 2]
    assert chain.read(2).copied[0] == made.copied > chain.read(1).copied[0] + 1
    restored(at(bucket), tmp_path / "r")
    with st.connect(tmp_path / "r", background=False) as again:
        assert content(again) == content(db)


def test_a_record_of_the_chain_is_restored_by_its_seq_or_a_time(db, bucket, tmp_path):
    expected = {}
    times = {}
    for number in range(4):
        go_on(db, number)
        made = mirrored(db.path, at(bucket))
        expected[made.seq], times[made.seq] = content(db), made.time_us
    for seq, rows in expected.items():
        for choice in ({"seq": seq}, {"at_us": times[seq]}):
            restored(at(bucket), tmp_path / "r", **choice)
            with st.connect(tmp_path / "r", background=False) as again:
                assert (again.seq, content(again)) == (seq, rows)
            shutil.rmtree(tmp_path / "r")
    with pytest.raises(RequestError, match=f"the next one below is at {max(expected)}"):
        restored(at(bucket), tmp_path / "r", seq=max(expected) + 5)
    with pytest.raises(RequestError, match="no record at seq 0"):
        restored(at(bucket), tmp_path / "r", seq=0)
    with pytest.raises(RequestError, match="as old as that time"):
        restored(at(bucket), tmp_path / "r", at_us=1)
    with pytest.raises(RequestError, match="no two of them"):
        restored(at(bucket), tmp_path / "r", seq=1, at_us=1)
    assert not (tmp_path / "r").exists()


def test_a_record_of_the_chain_is_restored_by_a_tag_at_its_seq(db, bucket, tmp_path):
    go_on(db, 1)
    expected, seq = content(db), mirrored(db.path, at(bucket)).seq
    db.tag("audit")
    go_on(db, 2)
    assert mirrored(db.path, at(bucket)).seq > seq
    assert restored(at(bucket), tmp_path / "r", tag="audit").seq == seq
    with st.connect(tmp_path / "r", background=False) as again:
        assert content(again) == expected
    with pytest.raises(RequestError, match="no record at seq"):
        restored(at(bucket), tmp_path / "r2", tag="first")  # it was not mirrored then
    with pytest.raises(RequestError, match="no tag 'audti'; did you mean 'audit'"):
        restored(at(bucket), tmp_path / "r2", tag="audti")


def test_a_tag_below_the_retention_is_mirrored_with_the_record_that_serves_it(bucket, tmp_path):
    with st.connect(tmp_path / "s", background=False, retention_s=0) as db:
        table = db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        table.upsert({"id": 1, "v": 1})
        db.checkpoint()
        db.merge()
        db.tag("old")
        for number in range(2, 5):
            table.upsert({"id": 1, "v": number})
            db.checkpoint()
            db.merge()
        db.vacuum(dry_run=False, grace_s=0)
        made = mirrored(db.path, at(bucket))
        assert made.lost_tags == ()
    record = Bucket(objects_of(at(bucket))).read(1)
    assert len(record.islands) == 1
    restored(at(bucket), tmp_path / "r")
    with st.connect(tmp_path / "r", background=False) as again:
        assert again.snapshot(tag="old")["t"].get(1) == {"id": 1, "v": 1}
        assert again["t"].get(1) == {"id": 1, "v": 4}


# --- whose mirror it is


def test_a_bucket_with_the_mirror_of_another_store_is_refused_by_name(db, bucket, tmp_path):
    mirrored(db.path, at(bucket))
    before = dict(bucket.objects)
    with lived(tmp_path / "other") as other, pytest.raises(RequestError, match="choose another"):
        mirrored(other.path, at(bucket))
    assert bucket.objects == before


def test_a_restored_store_is_another_store(db, bucket, tmp_path):
    mirrored(db.path, at(bucket))
    restored(at(bucket), tmp_path / "r")
    with pytest.raises(RequestError, match="has the mirror of store"):
        mirrored(tmp_path / "r", at(bucket))


def test_of_two_copies_of_a_store_only_the_one_that_went_on_is_mirrored(db, bucket, tmp_path):
    mirrored(db.path, at(bucket))
    db.close()
    shutil.copytree(tmp_path / "s", tmp_path / "copy")
    for name, number in (("s", 1), ("copy", 2)):
        with st.connect(tmp_path / name, background=False) as store:
            go_on(store, number)
    assert mirrored(tmp_path / "s", at(bucket)).record == 2
    before = dict(bucket.objects)
    with pytest.raises(RequestError, match="diverged at record 2"):
        mirrored(tmp_path / "copy", at(bucket))
    assert bucket.objects == before
    with st.connect(tmp_path / "copy", background=False) as store:  # also when it is ahead
        for number in range(5):
            go_on(store, number)
        store.vacuum(dry_run=False, grace_s=0)
    with pytest.raises(RequestError, match="diverged at record 2"):
        mirrored(tmp_path / "copy", at(bucket))
    assert bucket.objects == before


def test_of_two_copies_that_race_one_is_mirrored_and_the_other_hears_it(db, bucket, tmp_path):
    mirrored(db.path, at(bucket))
    db.close()
    shutil.copytree(tmp_path / "s", tmp_path / "copy")
    for name, number in (("s", 1), ("copy", 2)):
        with st.connect(tmp_path / name, background=False) as store:
            go_on(store, number)

    class Overtaken(SimServer):
        """The other copy publishes while this one is about to."""

        def put(self, key: str, data: bytes, *, is_new: bool = False, etag: str | None = None):
            if key == formats.record_key(2):
                with pytest.raises(BusyError, match="claimed by the mirror of process"):
                    mirrored(tmp_path / "copy", at(bucket))
                mirrored(tmp_path / "copy", at(bucket), take=True)
            return super().put(key, data, is_new=is_new, etag=etag)

    with pytest.raises(RequestError, match="was taken by another mirror, which ended; this"):
        mirrored(tmp_path / "s", Overtaken(bucket, below="shop/"))
    with pytest.raises(RequestError, match="diverged at record 2"):
        mirrored(tmp_path / "s", at(bucket))
    assert mirrored(tmp_path / "copy", at(bucket)).record == 2
    assert Bucket(objects_of(at(bucket))).numbers() == [1, 2]


def test_a_store_that_is_replaced_while_it_is_mirrored_publishes_nothing(db, bucket, tmp_path):
    db.close()
    lived(tmp_path / "other").close()

    class Replaced(SimServer):
        """Another store is put at the path once the first file is there."""

        def put(self, key: str, data: bytes, *, is_new: bool = False, etag: str | None = None):
            made = super().put(key, data, is_new=is_new, etag=etag)
            if key.startswith("tables/") and (tmp_path / "other").exists():
                (tmp_path / "s").rename(tmp_path / "aside")
                (tmp_path / "other").rename(tmp_path / "s")
            return made

    with pytest.raises(ReplacedError):
        mirrored(tmp_path / "s", Replaced(bucket, below="shop/"))
    assert Bucket(objects_of(at(bucket))).numbers() == []
    assert mirrored(tmp_path / "aside", at(bucket), take=True).record == 1


def test_a_store_that_was_rolled_back_to_a_copy_is_refused(db, bucket, tmp_path):
    db.close()
    shutil.copytree(tmp_path / "s", tmp_path / "old")
    with st.connect(tmp_path / "s", background=False) as store:
        go_on(store, 1)
    mirrored(tmp_path / "s", at(bucket))
    with pytest.raises(RequestError, match="diverged at record 1"):
        mirrored(tmp_path / "old", at(bucket))


def test_a_record_that_the_store_thinned_is_still_known_as_its_own(db, bucket):
    made = mirrored(db.path, at(bucket))
    for number in range(3):
        go_on(db, number)
        db.merge()
    path = ManifestStore(RealFiles(), db.path).path(made.copied)
    path.unlink()  # as a vacuum does in time
    assert mirrored(db.path, at(bucket)).record == 2


def test_a_put_that_lands_after_its_process_gave_up_is_known(db, bucket):
    server = at(bucket)
    mirrored(db.path, server)
    go_on(db, 1)
    slow = at(bucket)
    slow.always = None
    count = server.requests
    for number in range(1, count + 50):
        slow.faults[number] = Fault.LATER if number > 3 else None
    slow.faults = {number: fault for number, fault in slow.faults.items() if fault}
    with pytest.raises(UnavailableError):
        mirrored(db.path, slow)
    slow.land()
    go_on(db, 2)
    made = mirrored(db.path, at(bucket))
    assert made.seq == db.seq


def test_a_prefix_with_other_objects_is_refused(db, bucket):
    bucket.objects["shop/photo.jpg"] = (b"x", 1.0)
    bucket.objects["other/photo.jpg"] = (b"x", 1.0)
    with pytest.raises(RequestError, match=r"neither empty nor a mirror: it has 'photo.jpg'"):
        mirrored(db.path, at(bucket))
    assert set(bucket.objects) == {"shop/photo.jpg", "other/photo.jpg"}


def test_a_damaged_list_of_sent_records_is_named_and_may_be_deleted(db, bucket):
    mirrored(db.path, at(bucket))
    go_on(db, 1)
    (path,) = db.path.glob("mirrors/*.json")
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(CorruptionError, match=path.name):
        mirrored(db.path, at(bucket))
    path.unlink()
    assert mirrored(db.path, at(bucket)).record == 2


def test_an_object_that_was_deleted_is_sent_again(db, bucket, tmp_path):
    mirrored(db.path, at(bucket))
    lost = next(key for key in bucket.objects if "/.history/data/" in key)
    del bucket.objects[lost]
    with pytest.raises(CorruptionError, match="the object is missing"):
        restored(at(bucket), tmp_path / "r")
    again = mirrored(db.path, at(bucket))
    assert (again.record, again.uploaded) == (1, 1)
    assert lost in bucket.objects
    shutil.rmtree(tmp_path / "r")
    restored(at(bucket), tmp_path / "r")


def test_one_mirror_of_a_store_runs_at_a_time(db, bucket):
    sent = SentRecords(RealFiles(), db.path, at(bucket).url)
    with sent.locked(), pytest.raises(BusyError, match="another mirror"):
        mirrored(db.path, at(bucket))
    assert mirrored(db.path, at(bucket)).record == 1


# --- damage


def test_a_damaged_file_of_the_store_is_named_and_nothing_is_published(db, bucket):
    files = sorted(db.path.glob("tables/keyed-*/base/**/data/*.lance"))
    data = bytearray(files[0].read_bytes())
    data[10] ^= 1
    for file in files:
        if file.stat().st_ino == files[0].stat().st_ino:
            file.write_bytes(data)
    with pytest.raises(CorruptionError, match=r"\.lance"):
        mirrored(db.path, at(bucket))
    assert formats.record_key(1) not in {key.removeprefix("shop/") for key in bucket.objects}


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_a_damaged_object_is_named_and_there_is_no_store(db, bucket, tmp_path, damage):
    mirrored(db.path, at(bucket))
    for key in sorted(bucket.objects):
        if key == "shop/STORE":
            continue
        data, time = bucket.objects[key]
        flipped = bytes([*data[:-9], data[-9] ^ 1, *data[-8:]])
        if damage == "gone":
            del bucket.objects[key]
        else:
            bucket.objects[key] = (flipped if damage == "flipped" else data[:-1], time)
        no_mirror = damage == "gone" and key.startswith("shop/manifest/")
        with pytest.raises(RequestError if no_mirror else CorruptionError) as refused:
            restored(at(bucket), tmp_path / "r")
        assert no_mirror or key.removeprefix("shop/") in str(refused.value)
        with pytest.raises(st.SiltstoneError):
            st.connect(tmp_path / "r", read_only=True)
        shutil.rmtree(tmp_path / "r", ignore_errors=True)
        bucket.objects[key] = (data, time)
    restored(at(bucket), tmp_path / "r")


def test_an_object_that_was_put_half_way_is_put_again(db, bucket, tmp_path):
    mirrored(db.path, at(bucket))
    keys = [key for key in bucket.objects if key.endswith(".lance")]
    for key in keys:
        bucket.objects[key] = (bucket.objects[key][0][:-1], 1.0)
    go_on(db, 1)
    mirrored(db.path, at(bucket))
    restored(at(bucket), tmp_path / "r")
    with st.connect(tmp_path / "r", background=False) as again:
        assert content(again) == content(db)


def test_a_mirror_of_another_format_is_refused_by_name(db, bucket, tmp_path, monkeypatch):
    from siltstone.formats import checked_json, store_format

    mirrored(db.path, at(bucket))
    monkeypatch.setattr(checked_json, "STORE_FORMAT", store_format.STORE_FORMAT + 1)
    monkeypatch.setattr(store_format, "STORE_FORMAT", store_format.STORE_FORMAT + 1)
    with pytest.raises(UnsupportedFormatError, match="STORE"):
        restored(at(bucket), tmp_path / "r")


def test_no_answer_is_no_damage_and_an_absent_mirror_is_said(db, bucket, tmp_path):
    with pytest.raises(RequestError, match="has no mirror of a store"):
        restored(at(bucket), tmp_path / "r")
    mirrored(db.path, at(bucket))
    server = at(bucket)
    server.always = Fault.BUSY
    with pytest.raises(UnavailableError, match="503"):
        restored(server, tmp_path / "r")
    with pytest.raises(UnavailableError, match="503"):
        mirrored(db.path, server)
    for at_request in range(2, 20):
        server = SimServer(bucket, {at_request: Fault.DENIED}, "shop/")
        try:
            restored(server, tmp_path / "r")
            said = server.trace[at_request - 1]
        except UnavailableError as denied:
            said = str(denied)
        assert said.startswith("put leases/") or "no right" in said  # who only reads has no lease
        shutil.rmtree(tmp_path / "r", ignore_errors=True)


def test_a_restore_that_was_cut_off_goes_on_with_its_record(db, bucket, tmp_path):
    mirrored(db.path, at(bucket))
    expected, seq = content(db), db.seq
    whole = at(bucket)
    restored(whole, tmp_path / "whole")
    server = SimServer(bucket, {whole.requests - 2: Fault.DENIED}, "shop/")
    with pytest.raises(UnavailableError):
        restored(server, tmp_path / "r")
    go_on(db, 1)
    mirrored(db.path, at(bucket))
    again = at(bucket)
    assert restored(again, tmp_path / "r").seq == seq
    assert len([each for each in again.trace if each.startswith("get tables")]) < len(
        [each for each in whole.trace if each.startswith("get tables")]
    )
    with st.connect(tmp_path / "r", background=False) as store:
        assert content(store) == expected


def test_what_was_sent_and_may_still_land_is_known_whatever_else_the_bucket_has(db, bucket):
    mirrored(db.path, at(bucket))
    sent = SentRecords(RealFiles(), db.path, at(bucket).url)
    sent.add((77, "late"))
    mirrored(db.path, at(bucket))  # there is nothing new
    assert sent.has((77, "late"))
    go_on(db, 1)
    mirrored(db.path, at(bucket))
    assert not sent.has((77, "late"))  # its number is taken by now
