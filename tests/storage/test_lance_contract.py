"""`lance_tables` and `fake_lance` give equal answers to every operation of the seam `Tables`."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from siltstone.errors import (
    CorruptionError,
    InvariantError,
    RequestError,
    SchemaMismatchError,
    SiltstoneError,
)
from siltstone.formats.manifest import Pin
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.tables.kept_names import place
from siltstone.storage.tables.store_tables import Tables
from siltstone.storage.tables.values import POSITION, InputsMovedError, join
from tests.support.fake_lance import fake_lance

FOLDER = "tables/orders-7/base"
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), ("w", pa.int32())]
)


@pytest.fixture(params=[lance_tables, fake_lance])
def make(request: pytest.FixtureRequest, tmp_path: Path):
    return lambda: request.param(tmp_path, RealFiles())


@pytest.fixture
def tables(make) -> Tables:
    return make()


def batch(ids: list[int], **columns: list) -> pa.RecordBatch:
    columns = {"v": [f"v{i}" for i in ids], "w": ids, **columns}
    arrays = {"id": ids, **{name: values for name, values in columns.items() if values is not None}}
    fields = [SCHEMA.field(name) for name in arrays]
    return pa.record_batch(list(arrays.values()), schema=pa.schema(fields))


def ids(tables: Tables, pin: Pin, **options) -> list[int]:
    batches = tables.reader.open(pin).scan(["id"], **options)
    return [value for each in batches for value in each["id"].to_pylist()]


def rows(tables: Tables, pin: Pin) -> list[dict]:
    return [row for each in tables.reader.open(pin).scan() for row in each.to_pylist()]


def three_files(tables: Tables) -> Pin:
    """Return a pin of ids 0..11 in files of 4, 4 and 4 rows with seqs 1..2, 3..4 and 5..6."""
    pin = tables.writer.create(FOLDER, SCHEMA)
    for n in range(3):
        rows = batch(list(range(4 * n, 4 * n + 4)))
        pin = tables.writer.append(pin, [rows], seqs=(2 * n + 1, 2 * n + 2))
    return pin


def test_a_created_dataset_is_empty_and_has_the_schema(tables: Tables) -> None:
    pin = tables.writer.create(FOLDER, SCHEMA)
    table = tables.reader.open(pin)
    assert (pin.version, pin.rows, table.rows, table.pin.rows) == (1, 0, 0, 0)
    assert table.schema.equals(SCHEMA)
    assert [b.num_rows for b in table.scan() if b.num_rows] == []
    assert table.take(np.array([], np.int64)).schema.equals(SCHEMA)


def test_appended_rows_follow_each_other_and_older_pins_stay_as_they_were(tables: Tables) -> None:
    pins = [tables.writer.create(FOLDER, SCHEMA)]
    for n in range(4):
        pins.append(tables.writer.append(pins[-1], iter([batch([n]), batch([]), batch([n + 10])])))
    assert [pin.version for pin in pins] == [1, 2, 3, 4, 5]
    assert ids(tables, pins[-1]) == [0, 10, 1, 11, 2, 12, 3, 13]
    assert [tables.reader.open(pin).rows for pin in pins] == [0, 2, 4, 6, 8]
    assert ids(tables, pins[2]) == [0, 10, 1, 11]


def test_the_first_rows_may_be_version_1_and_others_follow(tables: Tables) -> None:
    empty = tables.writer.create(FOLDER, SCHEMA)
    staged = tables.writer.stage(empty, [batch([1, 2], v=None)])
    first = tables.writer.commit_first(empty, staged)
    assert (first.version, first.rows, ids(tables, first)) == (1, 2, [1, 2])
    second = tables.writer.append(first, [batch([3])])
    assert (second.version, ids(tables, second)) == (2, [1, 2, 3])
    assert [row["v"] for row in rows(tables, second)] == [None, None, "v3"]
    other = tables.writer.stage(empty, [batch([9])])
    assert ids(tables, tables.writer.commit(first, other)) == [1, 2, 9]
    nothing = tables.writer.stage(empty, [])
    assert tables.writer.commit_first(empty, nothing) == empty


def test_columns_are_matched_by_name_in_any_order_and_may_be_missing(tables: Tables) -> None:
    pin = tables.writer.create(FOLDER, SCHEMA)
    reordered = batch([1]).select(["w", "id", "v"])
    missing = batch([2], v=None)
    pin = tables.writer.append(pin, [reordered])
    pin = tables.writer.append(pin, [missing])
    pin = tables.writer.append(pin, [batch([3], v=None, w=None)])
    assert rows(tables, pin) == [
        {"id": 1, "v": "v1", "w": 1},
        {"id": 2, "v": None, "w": 2},
        {"id": 3, "v": None, "w": None},
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        pa.record_batch({"id": [1], "x": [2]}),
        pa.record_batch({"v": ["a"]}),
        pa.record_batch({"id": ["text"]}),
        pa.record_batch([pa.array([None], pa.int64())], names=["id"]),
    ],
    ids=["unknown column", "missing key", "other type", "null key"],
)
def test_rows_that_do_not_fit_are_refused(tables: Tables, wrong: pa.RecordBatch) -> None:
    pin = tables.writer.create(FOLDER, SCHEMA)
    with pytest.raises(SchemaMismatchError):
        tables.writer.append(pin, [wrong])


def test_an_append_without_rows_is_the_same_pin(tables: Tables) -> None:
    pin = tables.writer.create(FOLDER, SCHEMA)
    assert tables.writer.append(pin, []) == pin
    assert tables.writer.append(pin, [batch([])]) == pin
    assert tables.rewriter.rewrite(pin, drop=np.array([], np.int64), batches=[]) == pin


def test_what_the_callers_iterator_raises_comes_out_as_it_is(tables: Tables) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield batch([1])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tables.writer.append(tables.writer.create(FOLDER, SCHEMA), failing())


def test_staged_rows_pickle_and_go_on_any_pin_that_fits(tables: Tables) -> None:
    pin = tables.writer.create(FOLDER, SCHEMA)
    staged = pickle.loads(pickle.dumps(tables.writer.stage(pin, [batch([1, 2])], seqs=(4, 5))))
    winner = tables.writer.append(pin, [batch([9])], seqs=(1, 1))
    late = tables.writer.commit(winner, staged)
    assert ids(tables, late) == [9, 1, 2]
    assert ids(tables, late, seqs=(1, 9)) == [1, 2]
    assert ids(tables, winner) == [9]


def test_joined_stagings_are_one_append(tables: Tables) -> None:
    pin = tables.writer.create(FOLDER, SCHEMA)
    parts = [tables.writer.stage(pin, [batch([n, n + 1])]) for n in (5, 1)]
    done = tables.writer.commit(pin, join(parts))
    assert (done.version, done.rows) == (2, 4)
    assert ids(tables, done) == [5, 6, 1, 2]


@pytest.mark.parametrize("change", ["rename", "drop", "renew"])
def test_rows_staged_before_a_column_changed_are_refused(tables: Tables, change: str) -> None:
    pin = tables.writer.create(FOLDER, SCHEMA)
    staged = tables.writer.stage(pin, [batch([1])])
    rename = {"v": "x"} if change == "rename" else {}
    drop = [] if change == "rename" else ["v"]
    add = [pa.field("v", pa.string())] if change == "renew" else []
    moved = tables.writer.alter(pin, rename=rename, drop=drop, add=add)
    with pytest.raises(SchemaMismatchError, match="stage the rows again"):
        tables.writer.commit(moved, staged)


def test_rows_staged_before_a_column_was_added_have_null_there(tables: Tables) -> None:
    pin = tables.writer.create(FOLDER, SCHEMA)
    staged = tables.writer.stage(pin, [batch([1])])
    wider = tables.writer.alter(pin, rename={}, drop=[], add=[pa.field("n", pa.float64())])
    assert rows(tables, tables.writer.commit(wider, staged)) == [
        {"id": 1, "v": "v1", "w": 1, "n": None}
    ]


def test_an_overwrite_replaces_rows_and_schema_and_keeps_the_past(tables: Tables) -> None:
    before = tables.writer.append(tables.writer.create(FOLDER, SCHEMA), [batch([1, 2])])
    schema = pa.schema([("q", pa.float64()), ("id", pa.string())])
    rows_ = pa.record_batch({"id": ["a"], "q": [1.5]})
    after = tables.writer.overwrite(before, schema, [rows_])
    assert rows(tables, after) == [{"q": 1.5, "id": "a"}]
    assert ids(tables, before) == [1, 2]
    empty = tables.writer.overwrite(after, SCHEMA, [])
    assert (empty.rows, tables.reader.open(empty).schema) == (0, SCHEMA)


def test_a_rewrite_drops_positions_and_appends_in_one_version(tables: Tables) -> None:
    pin = three_files(tables)
    done = tables.rewriter.rewrite(pin, drop=np.array([9, 1]), batches=[batch([50])], seqs=(7, 7))
    assert done.version > pin.version
    assert done.rows == 11
    assert ids(tables, done) == [0, 2, 3, 8, 10, 11, 50, 4, 5, 6, 7]  # by the lowest seqs
    assert ids(tables, pin) == list(range(12))
    assert ids(tables, done, seqs=(6, 9)) == [0, 2, 3, 8, 10, 11, 50]
    assert ids(tables, done, seqs=(7, 9)) == []


def test_a_rewrite_may_drop_everything(tables: Tables) -> None:
    done = tables.rewriter.rewrite(three_files(tables), drop=np.arange(12), batches=[])
    assert (done.rows, ids(tables, done)) == (0, [])
    assert ids(tables, tables.writer.append(done, [batch([1])])) == [1]


def test_a_rewrite_refuses_positions_outside_the_pin(tables: Tables) -> None:
    with pytest.raises(InvariantError):
        tables.rewriter.rewrite(three_files(tables), drop=np.array([12]), batches=[])


def test_deleted_rows_do_not_come_back_with_a_later_rewrite(tables: Tables) -> None:
    pin = tables.rewriter.rewrite(three_files(tables), drop=np.array([3, 4, 5]), batches=[])
    left = ids(tables, pin)
    assert sorted(left) == [0, 1, 2, 6, 7, 8, 9, 10, 11]
    done = tables.rewriter.rewrite(pin, drop=np.array([0, 3, 5]), batches=[])
    assert sorted(ids(tables, done)) == sorted(np.delete(left, [0, 3, 5]))


def test_compacted_parts_have_the_same_rows_in_fewer_files(tables: Tables) -> None:
    pin = three_files(tables)
    compacted = tables.compactor.compact(pin, (0, 8))
    after = tables.compactor.swap(pin, [pickle.loads(pickle.dumps(compacted))])
    assert tables.reader.open(after).spans == [(0, 8), (8, 12)]
    assert ids(tables, after) == ids(tables, pin) == list(range(12))
    assert rows(tables, after) == rows(tables, pin)
    assert ids(tables, after, seqs=(4, 6)) == [8, 9, 10, 11]
    assert ids(tables, after, seqs=(3, 4)) == list(range(8))
    wanted = np.array([11, 0, 8, 7])
    assert tables.reader.open(after).take(wanted, ["id"])["id"].to_pylist() == [11, 0, 8, 7]
    tables.reader.check(after)


def test_of_parts_it_is_known_whether_they_are_as_they_were(tables: Tables) -> None:
    pin = three_files(tables)
    spans = [(0, 4), (4, 8), (0, 8), (8, 12)]
    assert tables.compactor.untouched(pin, pin, spans) == [True] * 4
    later = tables.writer.append(pin, [batch([20, 21])], seqs=(7, 8))
    assert tables.compactor.untouched(later, pin, spans) == [True] * 4
    later = tables.rewriter.rewrite(later, drop=np.array([5]), batches=[])
    assert tables.compactor.untouched(later, pin, spans) == [True, False, False, True]
    later = tables.compactor.swap(pin, [tables.compactor.compact(pin, (0, 8))])
    assert tables.compactor.untouched(later, pin, spans) == [False, False, False, True]


def test_a_compaction_goes_on_a_pin_that_rows_were_appended_to(tables: Tables) -> None:
    pin = three_files(tables)
    compacted = tables.compactor.compact(pin, (0, 8))
    later = tables.writer.append(pin, [batch([20, 21])], seqs=(7, 8))
    after = tables.compactor.swap(later, [compacted])
    assert ids(tables, after) == [*range(12), 20, 21]
    positions = [
        position
        for each in tables.reader.open(after).scan(
            ["id"], prefilter=pc.field("id") >= 0, positions=True
        )
        for position in each[POSITION].to_pylist()
    ]
    assert positions == list(range(14))
    assert tables.reader.open(after).take(np.arange(14), ["id"])["id"].to_pylist() == [
        *range(12),
        20,
        21,
    ]
    again = tables.compactor.swap(after, [tables.compactor.compact(after, (0, 14))])
    assert ids(tables, again) == [*range(12), 20, 21]


def test_a_compaction_of_rows_that_were_deleted_since_does_not_bring_them_back(
    tables: Tables,
) -> None:
    pin = three_files(tables)
    compacted = tables.compactor.compact(pin, (0, 8))
    later = tables.rewriter.rewrite(pin, drop=np.array([1]), batches=())
    with pytest.raises(InputsMovedError):
        tables.compactor.swap(later, [compacted])
    assert ids(tables, later) == [0, *range(2, 12)]


def test_a_compaction_is_refused_where_it_was_swapped_in_already(tables: Tables) -> None:
    pin = three_files(tables)
    compacted = tables.compactor.compact(pin, (4, 12))
    after = tables.compactor.swap(pin, [compacted])
    with pytest.raises(InputsMovedError):
        tables.compactor.swap(after, [compacted])


def test_trimmed_parts_keep_the_order_of_their_seqs(tables: Tables) -> None:
    pin = three_files(tables)
    trimmed = tables.rewriter.rewrite(pin, drop=np.array([0]), batches=())
    assert ids(tables, trimmed) == list(range(1, 12))


def test_an_alter_renames_then_drops_then_adds(tables: Tables) -> None:
    pin = tables.writer.append(tables.writer.create(FOLDER, SCHEMA), [batch([1])], seqs=(3, 3))
    added = [pa.field("v", pa.int64()), pa.field("s", pa.struct([("x", pa.int8())]))]
    done = tables.writer.alter(pin, rename={"v": "old"}, drop=["w"], add=added)
    assert tables.reader.open(done).schema.names == ["id", "old", "v", "s"]
    assert rows(tables, done) == [{"id": 1, "old": "v1", "v": None, "s": None}]
    assert rows(tables, pin) == [{"id": 1, "v": "v1", "w": 1}]
    assert ids(tables, done, seqs=(3, 9)) == []
    wide = pa.record_batch({"id": [2], "old": ["o"], "v": [5], "s": [{"x": 1}]})
    wide = wide.cast(tables.reader.open(done).schema)
    assert rows(tables, tables.writer.append(done, [wide]))[1]["v"] == 5
    assert tables.writer.alter(done, rename={}, drop=[], add=[]) == done


def test_an_alter_lets_columns_be_null(tables: Tables) -> None:
    strict = pa.schema([field.with_nullable(False) for field in SCHEMA])
    pin = tables.writer.create(FOLDER, strict)
    pin = tables.writer.append(pin, [batch([1]).cast(strict)])
    staged = tables.writer.stage(pin, [batch([2]).cast(strict)])
    relaxed = tables.writer.alter(pin, relax=["v", "w"], rename={}, drop=[], add=[])
    both = tables.writer.commit(relaxed, staged)
    done = tables.writer.alter(both, relax=["v"], rename={"v": "x"}, drop=[], add=[])
    found = [(field.name, field.nullable) for field in tables.reader.open(done).schema]
    assert found == [("id", False), ("x", True), ("w", True)]
    assert not any(field.nullable for field in tables.reader.open(pin).schema)
    nulls = pa.record_batch({"id": [3], "x": [None], "w": [None]}).cast(
        tables.reader.open(done).schema
    )
    more = tables.writer.append(done, [nulls])
    assert len(rows(tables, more)) == 3
    assert rows(tables, more)[-1] == {"id": 3, "x": None, "w": None}
    with pytest.raises(SchemaMismatchError):
        tables.writer.alter(pin, relax=["none"], rename={}, drop=[], add=[])


@pytest.mark.parametrize(
    ("rename", "drop", "add"),
    [
        ({"x": "y"}, [], []),
        ({"v": "w"}, [], []),
        ({}, ["x"], []),
        ({}, ["id", "v", "w"], []),
        ({}, [], [pa.field("v", pa.int8())]),
        ({}, [], [pa.field("n", pa.int8(), nullable=False)]),
    ],
)
def test_an_alter_that_makes_no_sense_is_refused(tables: Tables, rename, drop, add) -> None:
    pin = tables.writer.create(FOLDER, SCHEMA)
    with pytest.raises(SchemaMismatchError):
        tables.writer.alter(pin, rename=rename, drop=drop, add=add)


def test_a_scan_within_some_parts_gives_their_rows_at_the_positions_of_the_whole_pin(
    tables: Tables,
) -> None:
    table = tables.reader.open(three_files(tables))
    assert table.spans == [(0, 4), (4, 8), (8, 12)]
    for prefilter in (None, pc.field("id") >= 0):
        batches = table.scan(["id"], within=(4, 12), positions=True, prefilter=prefilter)
        found = pa.Table.from_batches(batches)
        assert found["id"].to_pylist() == found[POSITION].to_pylist() == list(range(4, 12))
    assert sum(b.num_rows for b in table.scan([], within=(0, 4))) == 4
    assert not [b for b in table.scan(["id"], within=(12, 12)) if b.num_rows]


@pytest.mark.parametrize("prefilter", [None, pc.field("id") >= 0])
def test_a_scan_within_one_part_gives_those_rows_at_the_positions_of_the_whole_pin(
    tables: Tables, prefilter: pc.Expression | None
) -> None:
    table = tables.reader.open(three_files(tables))
    for within in ((4, 6), (5, 7), (6, 8)):
        batches = table.scan(["id"], within=within, positions=True, prefilter=prefilter)
        found = pa.Table.from_batches(batches)
        assert found["id"].to_pylist() == found[POSITION].to_pylist() == list(range(*within))
    assert sum(b.num_rows for b in table.scan([], within=(1, 4))) == 3
    assert sum(b.num_rows for b in table.scan(["v"], within=(1, 4), limit=2)) == 2


def test_a_scan_gives_columns_in_the_order_asked_and_positions_of_the_whole_pin(
    tables: Tables,
) -> None:
    table = tables.reader.open(three_files(tables))
    found = pa.Table.from_batches(table.scan(["w", "id"], positions=True))
    assert found.column_names == ["w", "id", POSITION]
    assert found[POSITION].to_pylist() == found["id"].to_pylist() == list(range(12))
    alone = pa.Table.from_batches(table.scan([], positions=True))
    assert alone.column_names == [POSITION]
    assert alone[POSITION].to_pylist() == list(range(12))
    late = pa.Table.from_batches(table.scan(["id"], positions=True, seqs=(4, 9)))
    assert late[POSITION].to_pylist() == [8, 9, 10, 11]
    assert sum(b.num_rows for b in table.scan([])) == 12
    assert sum(b.num_rows for b in table.scan(["id"], limit=5)) == 5


@pytest.mark.parametrize("prefilter", ["id % 5 = 2", pc.field("id") == 7], ids=str)
def test_a_prefiltered_scan_is_a_superset_and_its_positions_are_right(
    tables: Tables, prefilter
) -> None:
    pin = tables.rewriter.rewrite(three_files(tables), drop=np.array([0]), batches=[])
    table = tables.reader.open(pin)
    found = pa.Table.from_batches(table.scan(["id"], prefilter=prefilter, positions=True))
    assert 7 in found["id"].to_pylist()
    everything = ids(tables, pin)
    assert [everything[p] for p in found[POSITION].to_pylist()] == found["id"].to_pylist()


def test_files_outside_the_asked_seqs_are_skipped_whole(tables: Tables) -> None:
    pin = three_files(tables)
    assert ids(tables, pin, seqs=(2, 4)) == [4, 5, 6, 7]
    assert ids(tables, pin, seqs=(3, 5)) == [4, 5, 6, 7, 8, 9, 10, 11]
    assert ids(tables, pin, seqs=(6, 99)) == []
    unknown = tables.writer.append(pin, [batch([77])])
    assert ids(tables, unknown, seqs=(6, 99)) == [77]


def test_take_gives_rows_in_the_order_of_positions(tables: Tables) -> None:
    table = tables.reader.open(three_files(tables))
    taken = table.take(np.array([11, 0, 5, 5]), ["w", "id"])
    assert taken.column_names == ["w", "id"]
    assert taken["id"].to_pylist() == [11, 0, 5, 5]
    assert table.take(np.array([3, 1])).to_pylist() == [
        {"id": 3, "v": "v3", "w": 3},
        {"id": 1, "v": "v1", "w": 1},
    ]
    assert table.take(np.array([1, 2]), []).num_rows == 2
    with pytest.raises(RequestError):
        table.take(np.array([12]))
    with pytest.raises(SchemaMismatchError):
        table.take(np.array([1]), ["x"])
    with pytest.raises(SchemaMismatchError):
        table.scan(["x"])


def test_two_lines_of_pins_from_one_do_not_disturb_each_other(make) -> None:
    one, two = make(), make()
    pin = one.writer.create(FOLDER, SCHEMA)
    left = one.writer.append(pin, [batch([1])])
    right = two.writer.append(pin, [batch([2])])
    left = one.writer.append(left, [batch([3])])
    right = two.writer.append(right, [batch([4])])
    assert left.version == right.version == 3
    for tables in (one, two, make()):
        assert ids(tables, left) == [1, 3]
        assert ids(tables, right) == [2, 4]


def test_a_long_line_of_pins_names_its_live_files_and_no_others(make, tmp_path: Path) -> None:
    tables = make()
    pin = tables.writer.create(FOLDER, SCHEMA)
    for n in range(35):
        pin = tables.writer.append(pin, [batch([n])], seqs=(n, n))
    pin = tables.compactor.swap(pin, [tables.compactor.compact(pin, (0, 35))])
    found = make().reader.files(pin)
    paths = [file.path for file in found]
    assert len(set(paths)) == len(paths)
    assert len([path for path in paths if "/data/" in path]) == 1
    assert len([path for path in paths if path.startswith("inventory/")]) <= 32
    assert pin.path in paths
    assert all((tmp_path / file.path).stat().st_size == file.size for file in found)
    make().reader.check(pin)
    assert ids(make(), pin) == list(range(35))


def test_a_damaged_or_missing_file_is_named(make, tmp_path: Path) -> None:
    pin = three_files(make())
    victims = {f.path for f in make().reader.files(pin)}
    for name in sorted(victims):
        path, good = tmp_path / name, (tmp_path / name).read_bytes()
        own = place(RealFiles(), tmp_path, name)
        for bad in (good[:-1], good[:-1] + bytes([good[-1] ^ 1]), None):
            path.unlink()
            own.unlink(missing_ok=True)
            if bad is not None:
                path.write_bytes(bad)
            with pytest.raises(CorruptionError) as caught:
                make().reader.check(pin)
            assert str(caught.value.path).endswith(name)
            if "/_transactions/" not in name:
                with pytest.raises(SiltstoneError):
                    ids(make(), pin)
            path.write_bytes(good)
    make().reader.check(pin)


def test_promotion_is_idempotent_and_changes_no_answer(tables: Tables) -> None:
    pins = [three_files(tables)]
    for n in range(3):
        pins.append(tables.writer.append(pins[-1], [batch([n])]))
        tables.names.promote(pins[-2:], pins[-1])
        tables.names.promote(pins[-2:], pins[-1])
    assert [tables.reader.open(pin).rows for pin in pins] == [12, 13, 14, 15]
    assert [len(ids(tables, pin)) for pin in pins] == [12, 13, 14, 15]
