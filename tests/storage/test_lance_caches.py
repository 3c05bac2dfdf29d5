"""What Lance caches is bounded for all open versions together, and no version reads another's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from siltstone.local.store import LocalStore
from siltstone.open.environment import Env
from siltstone.options import Options
from siltstone.process.shares import LanceShares, Shares
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.files.caches import LanceCaches
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.tables.values import IndexSpec

MIB = 1 << 20
ROWS = 20_000
SCHEMA = pa.schema([("id", pa.int64()), *((f"c{n}", pa.int64()) for n in range(8))])
SMALL = LanceShares(
    index_cache=MIB,
    metadata_cache=MIB // 4,
    read_ahead=4 * MIB,
    read_ahead_far=4 * MIB,
    batch=MIB,
)


def rows(first: int = 0) -> pa.RecordBatch:
    numbers = np.arange(first, first + ROWS)
    return pa.RecordBatch.from_arrays([pa.array(numbers)] * len(SCHEMA), schema=SCHEMA)


def test_the_caches_of_many_tables_stay_within_one_bound(tmp_path: Path) -> None:
    tables = lance_tables(tmp_path, RealFiles(), shares=SMALL)
    spec, opened, most = IndexSpec("by_id", "id", "btree"), [], 0
    for number in range(24):
        pin = tables.writer.append(tables.writer.create(f"t{number}", SCHEMA), [rows()])
        spans = tables.reader.open(pin).spans
        pin = tables.indexer.put(pin, [tables.indexer.build(pin, spec, spans)])
        opened.append(tables.reader.open(pin))
        for key in range(0, ROWS, ROWS // 8):
            found = opened[-1].scan(["id"], prefilter=f"id = {key}", indexed=True)
            assert [batch.column(0).to_pylist() for batch in found] == [[key]]
        most = max(most, tables.reader.cached_bytes())
        assert most <= SMALL.caches
    assert most > SMALL.caches // 2, "the caches must be full to show that they are bounded"


def test_two_versions_of_one_number_read_their_own_rows_and_indexes(tmp_path: Path) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = tables.writer.append(tables.writer.create("t", SCHEMA), [rows()])
    spec = IndexSpec("by_id", "id", "btree")
    mine, theirs = (tables.writer.append(pin, [rows(first)]) for first in (ROWS, 3 * ROWS))
    pins = []
    for each in (mine, theirs):
        spans = tables.reader.open(each).spans
        pins.append(tables.indexer.put(each, [tables.indexer.build(each, spec, spans)]))
    assert pins[0].version == pins[1].version
    fresh = lance_tables(tmp_path, RealFiles())
    for _ in range(2):
        for each, key in zip(pins, (ROWS, 3 * ROWS), strict=True):
            table = fresh.reader.open(each)
            for wanted, count in ((key, 1), (4 * ROWS - key, 0), (7, 1)):
                found = table.scan(["c1"], prefilter=f"id = {wanted}", indexed=True)
                assert sum(batch.num_rows for batch in found) == count


def test_a_session_serves_one_manifest_for_each_place_and_number(tmp_path: Path) -> None:
    caches = LanceCaches(SMALL, served_max=3)
    first = caches.session(tmp_path, 1, tmp_path / "a")
    assert caches.session(tmp_path, 1, tmp_path / "a") is first
    assert caches.session(tmp_path, 2, tmp_path / "b") is first
    assert caches.session(tmp_path, 1, tmp_path / "b") is not first
    assert caches.session(tmp_path / "other", 1, tmp_path / "b") is first
    assert caches.session(tmp_path, 3, tmp_path / "c") is not first, "it has served three"


def test_the_handles_of_a_store_share_a_session_as_large_as_its_share(tmp_path: Path) -> None:
    options = Options(background=False, memory_bytes_max=64 * MIB)
    with LocalStore.open(tmp_path / "db", options, env=Env()) as db:
        for name in ("a", "b"):
            db.create_table(name, {"id": "int64"}, primary_key="id").upsert({"id": 1})
        db.checkpoint()
        db.merge()
        reader = db._parts.site.tables.reader
        levels = db._core.state().view.levels.values()
        a, b = (found.base.table.dataset.session() for found in levels)
        assert a.is_same_as(b)
        assert [db[name].get(1) for name in "ab"] == [{"id": 1}] * 2
        assert 0 < db.status().memory.lance_caches <= Shares.of(64 * MIB).lance.caches
        assert db.status().memory.lance_caches == reader.cached_bytes()


def test_the_shares_are_no_more_than_the_memory() -> None:
    for memory in (1 * MIB, 32 * MIB, 256 * MIB, 1 << 30, (1 << 30) + 95, 64 << 30):
        found = Options(memory_bytes_max=memory).shares
        parts = found.memtables, found.history_indexes, found.bases, found.flushed
        ahead = found.lance.read_ahead if memory >= 128 * MIB else 0  # below it has its floor
        assert sum(parts) + found.recent_writes + found.lance.caches + ahead <= memory
        assert found.lance.batch <= found.lance.read_ahead
        # A reader at a URL has no recent writes, and reads ahead by their share.
        assert found.lance.read_ahead_far == found.lance.read_ahead + found.recent_writes
