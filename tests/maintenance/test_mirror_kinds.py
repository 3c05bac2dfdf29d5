"""A mirror has everything that a store has: loads, key runs, indexes, versions, dropped tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.storage.bucket.bucket import Bucket
from tests.maintenance.mirrors import at, content, mirrored, objects_of, restored
from tests.maintenance.test_attach import attach, rows
from tests.maintenance.test_bucket_vacuum import vacuumed
from tests.support.simulated_objects import SimBucket


@pytest.fixture
def db(tmp_path: Path):
    with st.connect(tmp_path / "s", background=False, retention_s=0) as store:
        yield store


@pytest.fixture
def bucket() -> SimBucket:
    return SimBucket()


def is_the_same_elsewhere(db: st.Store, bucket: SimBucket, target: Path) -> None:
    """Mirror, vacuum store and bucket, restore, and compare; the restored store goes on."""
    mirrored(db.path, at(bucket))
    db.vacuum(dry_run=False, grace_s=0)
    vacuumed(db.path, at(bucket), retention_s=0.0)
    restored(at(bucket), target)
    with st.connect(target, background=False) as again:
        assert again.verify(deep=True).findings == ()
        assert content(again) == content(db)
        assert {n: again[n].indexes() for n in again} == {n: db[n].indexes() for n in db}
        for step in (again.checkpoint, again.merge, again.optimize):
            step()
        assert content(again) == content(db)
        assert again.verify(deep=True).findings == ()


@pytest.mark.parametrize("steps", [("checkpoint",), ("checkpoint", "merge"), ()])
def test_a_load_is_mirrored_once_a_record_names_it(db, bucket, tmp_path, steps):
    schema = {"id": "int64", "name": "string", "amount": "int64"}
    db.create_table("t", schema, primary_key="id").upsert({"id": 5, "name": "x", "amount": 0})
    db.checkpoint()
    attach(db, rows(0, 2_000, 1))
    attach(db, rows(500, 900, 2))
    for step in steps:
        getattr(db, step)()
    if steps:
        is_the_same_elsewhere(db, bucket, tmp_path / "r")
        return
    made = mirrored(db.path, at(bucket))  # the log alone names it
    assert (made.seq, made.behind) == (db.seq - 2, 2)
    restored(at(bucket), tmp_path / "r")
    with st.connect(tmp_path / "r", background=False) as again:
        assert again["t"].count() == 1


def test_a_large_first_load_and_its_key_runs_are_mirrored(db, bucket, tmp_path):
    table = db.create_table("t", {"id": "string", "v": "int64"}, primary_key="id")
    ids = pa.array([f"key-{number:06d}" for number in range(20_000)])
    table.upsert(pa.table({"id": ids, "v": np.arange(20_000)}))
    for step in (db.checkpoint, db.merge):
        step()
    table.upsert([{"id": f"key-{n:06d}", "v": -1} for n in range(0, 20_000, 97)])
    for step in (db.checkpoint, db.merge, db.optimize):
        step()
    assert "_keys/" in "".join(mirrored_keys(db, bucket))
    is_the_same_elsewhere(db, bucket, tmp_path / "r")


def mirrored_keys(db: st.Store, bucket: SimBucket) -> list[str]:
    mirrored(db.path, at(bucket))
    return sorted(bucket.objects)


def test_indexes_of_all_kinds_are_mirrored_and_used(db, bucket, tmp_path):
    vectors = pa.list_(pa.float32(), 8)
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("kind", pa.string()),
            pa.field("words", pa.string()),
            pa.field("v", vectors),
        ]
    )
    table = db.create_table("t", schema, primary_key="id")
    random = np.random.default_rng(1)
    flat = pa.array(random.random(600 * 8, np.float32))
    table.upsert(
        pa.table(
            {
                "id": np.arange(600),
                "kind": [f"k{n % 7}" for n in range(600)],
                "words": [f"the {n % 11} quick fox {n}" for n in range(600)],
                "v": pa.FixedSizeListArray.from_arrays(flat, 8),
            },
            schema=schema,
        )
    )
    for step in (db.checkpoint, db.merge):
        step()
    table.create_index("kind", kind="bitmap")
    table.create_index("words", kind="fts")
    table.create_index("v", kind="vector")
    is_the_same_elsewhere(db, bucket, tmp_path / "r")
    with st.connect(tmp_path / "r", read_only=True) as again:
        found = again["t"].search("fox", column="words", k=3)
        assert len(found) == 3


def test_versions_of_plain_tables_and_dropped_ones_are_mirrored(db, bucket, tmp_path):
    plain = db.create_table("plain", {"a": "int64", "b": "string"})
    plain.append([{"a": n, "b": str(n)} for n in range(100)])
    db.checkpoint()
    first = mirrored(db.path, at(bucket)).seq
    expected = content(db)
    plain.delete_where("a < 10")
    plain.append([{"a": 1_000, "b": "new"}])
    db.create_table("gone", {"id": "int64"}, primary_key="id").upsert({"id": 1})
    db.checkpoint()
    second = mirrored(db.path, at(bucket)).seq
    has_gone = content(db)
    db.drop_table("gone")
    plain.overwrite([{"a": 7, "b": "all"}])
    db.checkpoint()
    mirrored(db.path, at(bucket))
    for seq, rows_then in ((first, expected), (second, has_gone)):
        restored(at(bucket), tmp_path / f"r{seq}", seq=seq)
        with st.connect(tmp_path / f"r{seq}", read_only=True) as again:
            assert content(again) == rows_then
    is_the_same_elsewhere(db, bucket, tmp_path / "r")
    chain = Bucket(objects_of(at(bucket)))
    assert chain.read(chain.numbers()[-1]).seq == db.seq
