"""A ranking by Lance leaves hidden rows out before it ranks; and we measure rows as Lance does."""

from __future__ import annotations

import itertools
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.dataset import serialize_row_addrs

from siltstone.engine.columns.row_vectors import block_of
from siltstone.formats.bits import Bits, all_of
from siltstone.formats.manifest import Pin
from siltstone.query.search.distances import measured, roughly
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.files.row_addresses import RowIds
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.lance.read.pinned_search import LanceSearch
from siltstone.storage.lance.search.block_list import BlockLists
from siltstone.storage.tables.store_tables import Tables
from siltstone.storage.tables.values import IndexSpec, NearestQuery
from tests.query.nearest_rows import vectors

FOLDER = "tables/notes-3/base"
SIZE, PART, K = 8, 400, 12
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.list_(pa.float32(), SIZE))]
)
RNG = np.random.default_rng(3)
MATRIX = RNG.standard_normal((4 * PART, SIZE)).astype(np.float32)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return lance_tables(tmp_path, RealFiles())


def batch(start: int, count: int) -> pa.RecordBatch:
    rows = MATRIX[start : start + count]
    column = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), SIZE)
    return pa.RecordBatch.from_arrays(
        [pa.array(range(start, start + count)), column], schema=SCHEMA
    )


def three_parts(tables: Tables) -> Pin:
    pin = tables.writer.create(FOLDER, SCHEMA)
    for n in range(3):
        pin = tables.writer.append(pin, [batch(PART * n, PART)], seqs=(n + 1, n + 1))
    return pin


def asked(query: np.ndarray, *, indexed: bool = True, k: int = K) -> NearestQuery:
    return NearestQuery("v", query[None], k, "l2", indexed, 1_000)


def by_hand(query: np.ndarray, live: np.ndarray) -> list[int]:
    far = ((MATRIX[live] - query) ** 2).sum(axis=1)
    return live[np.argsort(far)][:K].tolist()


NONE = np.zeros(0, np.int64)


def check(tables: Tables, pin: Pin, hidden: np.ndarray = NONE) -> None:
    table = tables.reader.open(pin)
    ids = table.take(np.arange(table.rows), ["id"]).column(0).to_numpy()
    visible = table.live.without(np.flatnonzero(np.isin(ids, hidden)))
    live = ids[visible.bools()]
    for query, indexed in product(MATRIX[::150], (True, False)):
        found = table.search.nearest(asked(query, indexed=indexed), visible)
        assert ids[found.positions].tolist() == by_hand(query, np.sort(live))


def test_rows_outside_of_the_visible_ones_take_no_place(tables: Tables) -> None:
    pin = three_parts(tables)
    for hidden in (NONE, np.arange(0, 3 * PART, 3), np.arange(150, 170)):
        check(tables, pin, hidden)


def test_an_index_of_some_parts_serves_them_and_the_others_are_scanned(tables: Tables) -> None:
    pin = three_parts(tables)
    spans = list(tables.reader.open(pin).spans)
    spec = IndexSpec("place.1", "v", "vector", (("metric", "l2"),))
    pin = tables.indexer.put(pin, [tables.indexer.build(pin, spec, spans[:2])])
    check(tables, pin)
    check(tables, pin, np.arange(0, 3 * PART, 7))


def test_of_two_indexes_that_with_the_metric_serves_its_parts_and_the_others_are_scanned(
    tables: Tables,
) -> None:
    pin = three_parts(tables)
    spans = list(tables.reader.open(pin).spans)
    for name, metric, count in (("one.1", "cosine", 3), ("two.2", "l2", 1), ("three.3", "l2", 2)):
        spec = IndexSpec(name, "v", "vector", (("metric", metric),))
        for span in spans[:count]:
            pin = tables.indexer.put(pin, [tables.indexer.build(pin, spec, [span])])
    assert asked_of(tables, pin) == {"one.1": 3, "three.3": 2}
    check(tables, pin)
    check(tables, pin, np.arange(0, 3 * PART, 7))
    pin = tables.rewriter.fold(pin, drop=np.arange(PART + 30), batches=[], compact_below=0)
    check(tables, pin)
    check(tables, pin, np.arange(2 * PART, 2 * PART + 90))
    search = tables.reader.open(pin).search
    both = replace(asked(MATRIX[0]), vectors=MATRIX[[0, 500]], prefilter="id % 2 = 0")
    together = search.nearest(both)
    for number in range(2):
        alone = search.nearest(replace(both, vectors=both.vectors[number][None]))
        mine = together.positions[together.queries == number]
        assert mine.tolist() == alone.positions.tolist()
        ids = tables.reader.open(pin).take(np.sort(mine), ["id"]).column(0).to_numpy()
        live = np.arange(PART + 30, 3 * PART)
        assert ids.tolist() == sorted(by_hand(MATRIX[number * 500], live[live % 2 == 0]))
    assert asked_of(tables, pin) == {"one.1": 2, "three.3": 1}


def asked_of(tables: Tables, pin: Pin) -> dict[str, int]:
    """Return the number of segments of each index that is asked for a metric."""
    search = tables.reader.open(pin).search
    assert isinstance(search, LanceSearch)
    found = (search.index_for("v", metric) for metric in ("l2", "cosine", "dot"))
    return {index.name: len(index.segments) for index in found if index is not None}


def test_an_index_finds_no_row_that_a_fold_hid_or_rewrote_or_that_was_compacted(
    tables: Tables,
) -> None:
    pin = three_parts(tables)
    spec = IndexSpec("place.1", "v", "vector", (("metric", "l2"),))
    pin = tables.indexer.put(pin, [tables.indexer.build(pin, spec, tables.reader.open(pin).spans)])
    pin = tables.rewriter.fold(pin, drop=np.arange(30), batches=[], compact_below=0)
    assert pin.hidden == 30
    check(tables, pin)
    gone = np.append(np.arange(30), np.arange(PART, PART + 300))
    pin = tables.rewriter.fold(pin, drop=gone, batches=[batch(3 * PART, 50)], compact_below=0)
    assert len(tables.reader.open(pin).segments[0].covered) == 2
    check(tables, pin)
    check(tables, pin, np.arange(2 * PART, 2 * PART + 90))


def test_rows_keep_their_ids_through_a_compaction_and_are_hidden_by_them(tables: Tables) -> None:
    pin = three_parts(tables)
    spec = IndexSpec("place.1", "v", "vector", (("metric", "l2"),))
    pin = tables.indexer.put(pin, [tables.indexer.build(pin, spec, tables.reader.open(pin).spans)])
    pin = tables.compactor.swap(pin, [tables.compactor.compact(pin, (PART, 3 * PART))])
    check(tables, pin, np.arange(0, 3 * PART, 5))


def test_a_block_list_made_from_another_is_the_one_that_lance_makes() -> None:
    ids = RowIds.of([pa.array([*range(100, 300)], pa.uint64()), pa.array([7, 8, (1 << 32) + 5])])
    numbers = np.arange(203)
    every = [*range(100, 300), 7, 8, (1 << 32) + 5]
    assert ids.at(numbers).tolist() == every
    asked = itertools.count()

    def read() -> RowIds:
        next(asked)
        return ids

    lists = BlockLists(203, read)
    assert lists.without(all_of(203), is_kept=True) is None
    visible = all_of(203)
    for _ in range(30):
        changed = RNG.integers(0, 203, 9)
        more = all_of(203).without(changed)
        visible = visible.without(changed) if RNG.random() < 0.7 else more
        found = lists.without(visible, is_kept=bool(RNG.integers(2)))
        gone = sorted(every[n] for n in np.flatnonzero(~visible.bools()))
        assert found == serialize_row_addrs(gone)
        assert lists.without(visible, is_kept=True) == found
    assert next(asked) == 1
    assert lists.without(Bits(all_of(203).packed.copy(), 203), is_kept=False) is None


NAN, INF = float("nan"), float("inf")
ODD = [None, [NAN, 1, 1, 1], [INF, 0, 0, 0], [0, 0, 0, -INF], [0, 0, 0, 0], [1, 2, 3, 4]]
FLOATS = (pa.float16(), pa.float32(), pa.float64())
CASES = [*product(FLOATS, ("l2", "cosine", "dot")), (pa.uint8(), "hamming")]


@pytest.mark.parametrize(("kind", "metric"), CASES, ids=str)
def test_rows_are_measured_as_by_the_flat_search_of_lance(
    tmp_path: Path, kind: Any, metric: str
) -> None:
    rows: list[Any] = RNG.standard_normal((60, 4)).tolist() + ODD
    if metric == "hamming":
        rows = [*RNG.integers(0, 256, (60, 4)).tolist(), None, [0, 0, 0, 0], [255] * 4]
    column = vectors(rows, 4, kind)
    dataset = lance.write_dataset(pa.table({"id": range(len(rows)), "v": column}), tmp_path / "d")
    block = block_of(column, 0)
    for start in range(5):
        query = block.matrix[start]
        nearest = {"column": "v", "q": query, "k": 100, "metric": metric}
        theirs = dataset.scanner(columns=["id", "_distance"], nearest=nearest).to_table()
        ours = measured(metric, block.matrix, query)
        ours[np.isnan(block.squares)] = np.nan
        found = np.flatnonzero(~np.isnan(ours))
        assert sorted(theirs["id"].to_pylist()) == found.tolist()
        far = dict(zip(theirs["id"].to_pylist(), theirs["_distance"].to_pylist(), strict=True))
        slack = 2e-3 if pa.types.is_float16(kind) else 1e-5
        assert [far[n] for n in found] == pytest.approx(ours[found].tolist(), abs=slack, rel=slack)
        least, most = roughly(metric, block, query)
        sure = np.isfinite(least) & np.isfinite(most) & np.isfinite(ours)
        assert sure.sum() >= 60
        assert (least[sure] <= ours[sure]).all()
        assert (ours[sure] <= most[sure]).all()
