"""Segments of texts and vectors outlive maintenance, and few rows are indexed again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import lance
import numpy as np
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.api.store import Store
from siltstone.choices import IndexKind
from siltstone.maintenance.index.index_plan import SEGMENTS_MAX
from siltstone.maintenance.merge import merge
from siltstone.storage.lance.write import writer
from siltstone.storage.tables.values import Segment
from tests.storage.searches import SCHEMA, SIZE, check, rows

PART = 400


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(merge, "COMPACT_BELOW_ROWS", 0)
    monkeypatch.setattr(writer, "_MIDDLE_ROWS", 100)
    with st.connect(tmp_path / "db", background=False) as found:
        yield found


def filled(db: Store, parts: int) -> st.Table:
    table = db.create_table("t", SCHEMA, "id")
    for n in range(parts):
        fold(db, table, rows(n * PART, PART))
    return table


def fold(db: Store, table: st.Table, *batches: pa.RecordBatch) -> None:
    for batch in batches:
        table.upsert(pa.Table.from_batches([batch]))
    db.checkpoint()
    db.merge()


def segments(db: Store, name: str = "place") -> list[Segment]:
    (storage,) = db._core.state().view.record.keyed
    opened = db._parts.site.tables.reader.open(storage.base)
    return [one for one in opened.segments if one.index.startswith(name)]


def covered(segment: Segment) -> int:
    return sum(end - first for first, end in segment.covered)


def test_a_fold_that_hides_rows_drops_no_segment_and_builds_some_for_searches(
    db: Store,
) -> None:
    table = filled(db, 3)
    for name, kind in (("place", "vector"), ("words", "fts"), ("id", "btree")):
        table.create_index(name, kind)
    before = {one.id for name in ("place", "words", "id") for one in segments(db, name)}
    fold(db, table, rows(100, 50, seed=1))
    table.delete(list(range(900, 950)))
    fold(db, table)
    after = {one.id for name in ("place", "words", "id") for one in segments(db, name)}
    assert before < after
    assert len(after) == len(before) + 2
    lags = {index.name: index.lagging_rows for index in table.indexes()}
    assert lags == {"id": 50, "place": 0, "words": 0}
    check(lance.dataset(db.path / "tables/t-1/base"))


def test_an_optimize_joins_parts_within_one_coverage_and_keeps_the_segments(db: Store) -> None:
    table = filled(db, 4)
    table.create_index("place", "vector")
    for n in range(3):
        fold(db, table, rows(10_000 + n * 20, 5))  # all three: less than a hundredth
    before = {one.id: covered(one) for one in segments(db)}
    done = db.optimize()
    # Of history 7 files become one, of base 7 become two.
    assert (done.files_before, done.files_after, done.indexed_rows) == (14, 3, 15)
    after = {one.id: covered(one) for one in segments(db)}
    assert before.items() <= after.items()
    assert sorted(after.values()) == [15, 4 * PART]
    check(lance.dataset(db.path / "tables/t-1/base"))


def test_too_many_small_segments_become_one_and_a_large_one_stays(db: Store) -> None:
    table = filled(db, 10)
    table.create_index("place", "vector")
    (large,) = segments(db)
    written, known = 0, {large.id}
    for n in range(12):
        fold(db, table, rows(100_000 + n * 60, 60))
        db.optimize()
        written += sum(covered(one) for one in segments(db) if one.id not in known)
        known |= {one.id for one in segments(db)}
        assert len(segments(db)) <= SEGMENTS_MAX
        assert large.id in {one.id for one in segments(db)}
    assert written == 60 * (12 + 7)  # the eighth time with the seven small ones
    check(lance.dataset(db.path / "tables/t-1/base"))


@pytest.mark.parametrize(("column", "kind"), [("place", "vector"), ("words", "fts")])
def test_a_table_that_is_folded_again_and_again_indexes_few_rows_again(
    db: Store, column: str, kind: IndexKind
) -> None:
    table = filled(db, 8)
    table.create_index(column, kind)
    chance, user, indexed = Random(3), 0, 0
    known = {one.id for one in segments(db, column)}
    for turn in range(30):
        keys = chance.sample(range(8 * PART), 64)
        places = np.random.default_rng(turn).normal(size=(64, SIZE)).astype(np.float32)
        changed = [
            {"id": key, "words": "new stone", "place": place}
            for key, place in zip(keys, places.tolist(), strict=True)
        ]
        table.upsert(pa.Table.from_pylist(changed, SCHEMA))
        fold(db, table)
        user += 64
        indexed += sum(covered(one) for one in segments(db, column) if one.id not in known)
        known |= {one.id for one in segments(db, column)}
        assert len(segments(db, column)) <= SEGMENTS_MAX
    (index,) = table.indexes()
    assert index.lagging_rows <= 0.01 * 8 * PART
    assert indexed <= 6 * user
    check(lance.dataset(db.path / "tables/t-1/base"))
