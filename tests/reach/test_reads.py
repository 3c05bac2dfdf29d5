"""A mirror at a URL is read as a store is: by any process that has the URL and the credentials."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.bucket_url import BucketUrl
from siltstone.errors import ReadOnlyError, RequestError, SnapshotExpiredError
from siltstone.storage.objects.obstore_server import ObstoreServer
from tests.maintenance.mirrors import content, go_on, lived
from tests.maintenance.test_shipping import Shipping, write
from tests.reach.conftest import DIMENSIONS, Mirrored, mirror, requests_of


def test_a_store_is_read_at_its_url(shop: Mirrored, far: st.Store) -> None:
    assert far.seq == shop.seq
    assert content(far) == shop.at[shop.seq]
    assert far["keyed"].get(8) == {"id": 8, "v": "again"}
    assert far["keyed"].get(7) is None
    assert repr(far) == f"<Store {shop.url}, read-only, 3 tables>"


def test_each_seq_that_was_mirrored_is_read_and_a_tag_below_them(
    shop: Mirrored, far: st.Store
) -> None:
    for seq, expected in shop.at.items():
        with far.snapshot(seq=seq) as past:
            found = {
                name: sorted(past[name].scan().read_all().to_pylist(), key=repr)
                for name in past.tables()
            }
            assert found == expected
    with far.snapshot(tag="first") as past:
        assert past.seq == shop.tagged


def test_a_time_of_the_past_is_read(shop: Mirrored, far: st.Store) -> None:
    newest, before = far.log(2)
    with far.snapshot(at=before.time) as past:
        assert past.seq == before.seq < newest.seq == shop.seq


def test_a_seq_that_the_bucket_never_had_is_refused_with_what_the_bucket_has(
    url: str, tmp_path: Path
) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        for name in ("early", "late"):
            db.create_table(name, {"id": "int64"}, primary_key="id")
        begins = 0
        for number in range(4):
            for name in ("early", "late")[: 1 + number % 2]:
                db[name].upsert({"id": number})
                db[name].upsert({"id": number})
            db.checkpoint()
            db.merge()
            if number:
                mirror(db.path, url)
                begins = begins or db.seq
        newest = db.seq
        for seq in range(newest):
            db.snapshot(seq=seq).close()
    with st.connect(url, read_only=True) as far:
        assert 1 < begins < newest == far.seq
        for seq in range(begins, newest):
            with far.snapshot(seq=seq) as past:
                assert past["early"].count() > 0
        kept = f"the store keeps seq {begins} to {newest}$"
        for seq in (1, begins - 1):
            with pytest.raises(SnapshotExpiredError, match=kept):
                far.snapshot(seq=seq)
        assert far.changes(begins)["early"].read_all().num_rows > 0


def test_changes_are_those_of_the_store(shop: Mirrored, far: st.Store) -> None:
    with st.connect(shop.root, read_only=True) as near:
        for since in (0, shop.changed):
            expected = near.changes(since)["keyed"].read_all()
            assert far.changes(since)["keyed"].read_all().equals(expected)
            assert expected.num_rows > 0


def test_searches_find_what_they_find_in_the_store(shop: Mirrored, far: st.Store) -> None:
    vector = [3.0, *range(1, DIMENSIONS)]
    with st.connect(shop.root, read_only=True) as near:
        for query in ("fox", vector):
            expected = near["docs"].search(query, 5)
            assert far["docs"].search(query, 5).to_pylist() == expected.to_pylist()
            assert len(expected.to_pylist()) == 5
        where = "v >= 'v3' and v < 'v5'"
        assert far["keyed"].count(where) == near["keyed"].count(where) > 0


def test_statements_join_tables(far: st.Store) -> None:
    found = far.sql("select count(*) as n from keyed join docs using (id)").to_pylist()
    assert found == [{"n": 49}]


def test_tasks_and_handles_are_read_where_they_are_sent(shop: Mirrored, far: st.Store) -> None:
    tasks = pickle.loads(pickle.dumps(far.snapshot().scan_tasks("keyed")))
    rows = [row for task in tasks for batch in task.read() for row in batch.to_pylist()]
    assert sorted(rows, key=repr) == shop.at[shop.seq]["keyed"]
    with pickle.loads(pickle.dumps(far)) as again:
        assert again["keyed"].count() == len(rows)
    with pickle.loads(pickle.dumps(far.snapshot(seq=shop.changed))) as past:
        assert past["keyed"].count() == len(shop.at[shop.changed]["keyed"])


def test_its_state_and_its_files_are_looked_at(far: st.Store) -> None:
    status = far.status()
    assert (status.is_read_only, status.wal_bytes, status.visible_seq) == (True, 0, far.seq)
    assert list(far.jobs()) == []
    before = requests_of(far)
    assert far.verify().findings == ()
    # Not one for each file, nor for each directory: a list has the sizes.
    assert requests_of(far) - before < 150
    assert far.verify(deep=True).findings == ()


def test_a_url_is_only_read(shop: Mirrored, far: st.Store, tmp_path: Path) -> None:
    for join in (False, True):
        with pytest.raises(RequestError, match=r"is only read, connect\(url, read_only=True\)"):
            st.connect(shop.url, join=join)
    with pytest.raises(ReadOnlyError):
        far["keyed"].delete(1)
    with pytest.raises(RequestError, match="no log to back up"):
        far.backup(tmp_path / "copies")


def test_an_open_costs_the_same_requests_whatever_the_number_of_tables(
    url: str, tmp_path: Path
) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        for number in range(12):
            db.create_table(f"t{number}", {"id": "int64"}, primary_key="id").upsert({"id": number})
        db.checkpoint()
        db.merge()
        mirror(db.path, url)
    with st.connect(url, read_only=True) as far:
        assert requests_of(far) <= 5
        assert far["t7"].scan().read_all().to_pylist() == [{"id": 7}]
        assert requests_of(far) <= 5 + 6
        before = requests_of(far)
        assert far["t7"].get(7) == {"id": 7}
        assert requests_of(far) - before <= 3
        assert far["t7"].scan().read_all().to_pylist() == [{"id": 7}]
        assert requests_of(far) - before <= 3 + 1


def test_a_reader_sees_what_was_mirrored_since(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("siltstone.storage.bucket.bucket_chain.LOOK_S", 0.0)
    with lived(tmp_path / "s") as db:
        mirror(db.path, url)
        with st.connect(url, read_only=True) as far, far.snapshot() as old:
            before = content(far)
            go_on(db, 1)
            db.merge()
            assert content(far) == before
            mirror(db.path, url)
            assert content(far) == content(db)
            assert old["keyed"].count() == len(before["keyed"])


def test_a_reader_at_a_url_shows_what_was_shipped_above_the_record(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("siltstone.storage.bucket.bucket_chain.LOOK_S", 0.0)
    with lived(tmp_path / "s") as db:
        shipping = Shipping(db, ObstoreServer(BucketUrl.of(url)))
        shipping.mirror()
        stage = db.stage("keyed")
        staged = stage.run(pa.table({"id": range(7000, 7010), "v": ["staged"] * 10}))
        with db.transaction() as tx:
            tx.attach(stage, [staged])
        write(db, 0)
        shipping.ship()
        with st.connect(url, read_only=True) as far:
            # A fence, a frame, what is not there, some of it asked for ahead; a list.
            assert requests_of(far, "log") <= 8
            assert content(far) == content(db)
            tasks = pickle.loads(pickle.dumps(far.snapshot().scan_tasks("keyed")))
            rows = [row for task in tasks for batch in task.read() for row in batch.to_pylist()]
            assert sorted(rows, key=repr) == content(db)["keyed"]
            write(db, 1)
            shipping.ship()
            assert (far.seq, content(far)) == (db.seq, content(db))
            assert far.changes(0)["keyed"].read_all().equals(db.changes(0)["keyed"].read_all())
            db.checkpoint()
            shipping.mirror()
            write(db, 2)
            shipping.ship()
            assert (far.seq, content(far)) == (db.seq, content(db))
            assert far.sql("select count(*) as n from plain").to_pylist() == [
                {"n": db["plain"].count()}
            ]
            assert far.verify().findings == ()
            assert far.verify(deep=True).findings == ()
