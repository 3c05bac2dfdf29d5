"""Lance and the fake agree on what the segments of an index cover, whatever comes after."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from siltstone.errors import SchemaMismatchError
from siltstone.formats.manifest import Pin
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.tables.store_tables import Tables
from siltstone.storage.tables.values import IndexSpec, InputsMovedError, Segment, Span
from tests.support.fake_lance import fake_lance

FOLDER = "tables/orders-7/base"
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
BY_V = IndexSpec("by_v", "v", "btree")
BY_WORD = IndexSpec("by_word", "v", "fts")


@pytest.fixture(params=[lance_tables, fake_lance])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Tables:
    return request.param(tmp_path, RealFiles())


def batch(first: int) -> pa.RecordBatch:
    ids = list(range(first, first + 4))
    return pa.record_batch([ids, [f"v{i % 3}" for i in ids]], schema=SCHEMA)


def three_files(tables: Tables) -> Pin:
    pin = tables.writer.create(FOLDER, SCHEMA)
    for n in range(3):
        pin = tables.writer.append(pin, [batch(4 * n)], seqs=(2 * n + 1, 2 * n + 2))
    return pin


def indexed(
    tables: Tables, pin: Pin, within: list[Span] | None = None, spec: IndexSpec = BY_V
) -> Pin:
    spans = tables.reader.open(pin).spans if within is None else within
    return tables.indexer.put(pin, [tables.indexer.build(pin, spec, spans)])


def segments(tables: Tables, pin: Pin) -> list[Segment]:
    return list(tables.reader.open(pin).segments)


def covered(tables: Tables, pin: Pin) -> list[tuple[Span, ...]]:
    return [segment.covered for segment in segments(tables, pin)]


def test_a_segment_covers_the_parts_it_was_built_over(tables: Tables) -> None:
    pin = three_files(tables)
    built = tables.indexer.build(pin, BY_V, [(0, 4), (8, 12)])
    assert segments(tables, pin) == []
    made = tables.indexer.put(pin, [pickle.loads(pickle.dumps(built))])
    (found,) = segments(tables, made)
    assert (found.index, found.kind, found.columns) == ("by_v", "btree", ("v",))
    assert found.covered == ((0, 4), (8, 12))
    assert found.nbytes > 0
    assert made.rows == pin.rows


def test_a_pin_needs_the_files_of_its_indexes_and_of_no_other(tables: Tables) -> None:
    pin = indexed(tables, three_files(tables))
    files = {file.path for file in tables.reader.files(pin) if "/_indices/" in file.path}
    assert files
    tables.reader.check(pin)
    none = tables.indexer.put(pin, [], [segments(tables, pin)[0].id])
    assert segments(tables, none) == []
    assert not any("/_indices/" in file.path for file in tables.reader.files(none))


def test_an_index_may_have_several_segments(tables: Tables) -> None:
    pin = three_files(tables)
    pin = indexed(tables, pin, [(0, 4)])
    pin = indexed(tables, pin, [(4, 8), (8, 12)])
    assert sorted(covered(tables, pin)) == [((0, 4),), ((4, 8), (8, 12))]
    assert {segment.index for segment in segments(tables, pin)} == {"by_v"}


def test_rows_that_come_later_are_not_covered(tables: Tables) -> None:
    pin = tables.writer.append(indexed(tables, three_files(tables)), [batch(20)], seqs=(7, 8))
    assert covered(tables, pin) == [((0, 4), (4, 8), (8, 12))]


def test_parts_that_are_rewritten_are_not_covered_any_more(tables: Tables) -> None:
    pin = indexed(tables, three_files(tables))
    pin = tables.rewriter.rewrite(pin, drop=np.array([5]), batches=[batch(20)], seqs=(7, 8))
    spans = tables.reader.open(pin).spans
    (found,) = covered(tables, pin)
    assert len(found) == 2
    assert set(found) < set(spans)


def test_parts_that_are_compacted_are_not_covered_any_more(tables: Tables) -> None:
    pin = indexed(tables, three_files(tables))
    pin = tables.compactor.swap(pin, [tables.compactor.compact(pin, (0, 8))])
    assert tables.reader.open(pin).spans == [(0, 8), (8, 12)]
    assert covered(tables, pin) == [((8, 12),)]


def test_parts_that_are_compacted_stay_covered_by_an_index_of_texts(tables: Tables) -> None:
    pin = indexed(tables, three_files(tables), spec=BY_WORD)
    pin = tables.compactor.swap(pin, [tables.compactor.compact(pin, (0, 8))])
    assert covered(tables, pin) == [((0, 8), (8, 12))]
    pin = tables.compactor.swap(pin, [tables.compactor.compact(pin, (0, 12))])
    assert covered(tables, pin) == [((0, 12),)]


def test_a_compaction_that_would_take_a_segment_of_texts_away_is_refused(tables: Tables) -> None:
    pin = three_files(tables)
    compacted = [tables.compactor.compact(pin, (0, 8))]
    pin = indexed(tables, pin, [(0, 4)], BY_WORD)
    with pytest.raises(InputsMovedError):
        tables.compactor.swap(pin, compacted)
    assert covered(tables, pin) == [((0, 4),)]


def test_what_is_covered_is_compacted_together_with_what_is_not(tables: Tables) -> None:
    pin = indexed(tables, three_files(tables), [(0, 4)])
    pin = tables.compactor.swap(pin, [tables.compactor.compact(pin, (0, 8))])
    assert tables.reader.open(pin).spans == [(0, 8), (8, 12)]
    assert not any(covered(tables, pin))


def test_unless_all_indexes_are_to_stay(tables: Tables) -> None:
    pin = indexed(tables, three_files(tables), [(0, 4)])
    compacted = [tables.compactor.compact(pin, (0, 8))]
    with pytest.raises(InputsMovedError):
        tables.compactor.swap(pin, compacted, keeps_indexes=True)
    assert covered(tables, pin) == [((0, 4),)]
    pin = tables.compactor.swap(pin, [tables.compactor.compact(pin, (4, 12))], keeps_indexes=True)
    assert covered(tables, pin) == [((0, 4),)]


def test_a_segment_is_put_on_a_pin_that_has_some_of_its_inputs(tables: Tables) -> None:
    pin = three_files(tables)
    built = tables.indexer.build(pin, BY_V, [(0, 4), (4, 8), (8, 12)])
    later = tables.rewriter.rewrite(pin, drop=np.array([9]), batches=[], seqs=None)
    made = tables.indexer.put(later, [built])
    assert covered(tables, made) == [((0, 4), (4, 8))]


def test_a_segment_without_any_of_its_inputs_is_refused(tables: Tables) -> None:
    pin = three_files(tables)
    built = tables.indexer.build(pin, BY_V, [(0, 4)])
    later = tables.rewriter.rewrite(pin, drop=np.array([1]), batches=[])
    with pytest.raises(InputsMovedError):
        tables.indexer.put(later, [built])


def test_no_part_is_covered_twice_by_one_index(tables: Tables) -> None:
    pin = three_files(tables)
    one = tables.indexer.build(pin, BY_V, [(0, 4)])
    other = tables.indexer.build(pin, BY_V, [(0, 4), (4, 8)])
    made = tables.indexer.put(pin, [one])
    with pytest.raises(InputsMovedError):
        tables.indexer.put(made, [other])
    (old,) = segments(tables, made)
    assert covered(tables, tables.indexer.put(made, [other], [old.id])) == [((0, 4), (4, 8))]


def test_an_index_follows_its_column_and_goes_with_it(tables: Tables) -> None:
    pin = indexed(tables, three_files(tables))
    renamed = tables.writer.alter(pin, rename={"v": "w"}, drop=[], add=[])
    dropped = tables.writer.alter(pin, rename={}, drop=["v"], add=[])
    assert {segment.columns for segment in segments(tables, renamed)} <= {("w",)}
    assert segments(tables, dropped) == []


def test_an_overwrite_takes_the_indexes_away(tables: Tables) -> None:
    pin = indexed(tables, three_files(tables))
    assert segments(tables, tables.writer.overwrite(pin, SCHEMA, [batch(0)])) == []


def test_a_column_that_is_not_there_cannot_be_indexed(tables: Tables) -> None:
    pin = three_files(tables)
    with pytest.raises(SchemaMismatchError):
        tables.indexer.build(pin, IndexSpec("x", "nowhere", "btree"), [(0, 4)])
