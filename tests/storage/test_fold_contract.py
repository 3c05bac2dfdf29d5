"""A fold hides rows of a base and appends others; both makers of `Tables` do it alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from siltstone.errors import CorruptionError, InvariantError
from siltstone.formats.manifest import Pin
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.tables.store_tables import Tables
from siltstone.storage.tables.values import POSITION, AdoptedLoad, IndexSpec, InputsMovedError
from tests.support.fake_lance import fake_lance

FOLDER = "tables/orders-7/base"
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
ROWS = 40


@pytest.fixture(params=[lance_tables, fake_lance])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Tables]:
    return lambda: request.param(tmp_path, RealFiles())


@pytest.fixture
def tables(make: Callable[[], Tables]) -> Tables:
    return make()


def batch(ids: list[int]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(ids, pa.int64()), [f"v{i}" for i in ids]], schema=SCHEMA)


def three_parts(tables: Tables) -> Pin:
    """Return a base of ids 0..119 in three parts."""
    pin = tables.writer.create(FOLDER, SCHEMA)
    for n in range(3):
        pin = tables.writer.append(pin, [batch([*range(ROWS * n, ROWS * (n + 1))])])
    return pin


def fold(tables: Tables, pin: Pin, drop: list[int], new: list[int]) -> Pin:
    more = [batch(new)] if new else []
    return tables.rewriter.fold(pin, drop=np.array(drop, int), batches=more, compact_below=0)


def ids(tables: Tables, pin: Pin, **options) -> list[int]:
    batches = tables.reader.open(pin).scan(["id"], **options)
    return [value for each in batches for value in each["id"].to_pylist()]


def without(*gone: int, end: int = 3 * ROWS) -> list[int]:
    return [n for n in range(end) if n not in gone]


def test_a_fold_hides_rows_and_moves_none(tables: Tables) -> None:
    pin = three_parts(tables)
    folded = fold(tables, pin, [3, 41, 42], [500, 501])
    table = tables.reader.open(folded)
    assert (folded.rows, folded.hidden, table.rows, table.pin.rows) == (119, 3, 122, 119)
    assert table.spans == [(0, 40), (40, 80), (80, 120), (120, 122)]
    assert ids(tables, folded) == [*without(3, 41, 42), 500, 501]
    assert ids(tables, folded, with_hidden=True) == [*range(120), 500, 501]
    assert [n for n, is_live in enumerate(table.live.bools()) if not is_live] == [3, 41, 42]
    assert table.take(np.array([120, 41])).column("id").to_pylist() == [500, 41]
    assert ids(tables, pin) == [*range(120)]  # the pin before it is as it was
    assert tables.reader.open(folded).part_ids[:3] == tables.reader.open(pin).part_ids


def test_a_fold_of_deletes_alone_is_another_pin(tables: Tables) -> None:
    pin = three_parts(tables)
    once = fold(tables, pin, [3], [])
    twice = fold(tables, once, [3, 50], [])
    assert len({pin, once, twice}) == 3
    assert (ids(tables, once), ids(tables, twice)) == (without(3), without(3, 50))
    assert fold(tables, twice, [3, 50], []) == twice


def test_a_fold_never_shows_a_hidden_row_again(tables: Tables) -> None:
    pin = fold(tables, three_parts(tables), [3, 50], [])
    with pytest.raises(InvariantError):
        fold(tables, pin, [3, 51], [])


def test_a_scan_has_no_hidden_row_whatever_is_asked(tables: Tables) -> None:
    pin = fold(tables, three_parts(tables), [0, 1, 45], [500])
    table = tables.reader.open(pin)
    assert ids(tables, pin, limit=2) == [2, 3]
    assert ids(tables, pin, within=(40, 80)) == [n for n in range(40, 80) if n != 45]
    found = [*table.scan(["id"], positions=True)]
    at = [value for each in found for value in each[POSITION].to_pylist()]
    assert at == [*without(0, 1, 45), 120]
    assert sum(each.num_rows for each in table.scan([])) == table.pin.rows
    assert not {0, 1, 45} & set(ids(tables, pin, prefilter=pc.field("id") < 50))
    assert not {0, 1, 45} & set(table.sample(["id"]).column("id").to_pylist())


def test_a_part_with_many_hidden_rows_is_written_anew_and_small_ones_are_joined(
    tables: Tables,
) -> None:
    pin = fold(tables, three_parts(tables), [*range(40, 65)], [500])
    table = tables.reader.open(pin)
    assert (pin.hidden, table.spans) == (0, [(0, 40), (40, 80), (80, 96)])
    assert ids(tables, pin) == [*range(40), *range(80, 120), *range(65, 80), 500]
    empty = fold(tables, pin, [*range(40)], [])
    assert ids(tables, empty) == [*range(80, 120), *range(65, 80), 500]
    all_in_one = tables.rewriter.fold(
        empty, drop=np.array([0]), batches=[batch([7])], compact_below=1000
    )
    assert tables.reader.open(all_in_one).spans == [(0, 56)]
    assert ids(tables, all_in_one) == [*range(81, 120), *range(65, 80), 500, 7]


def test_a_fold_that_is_shared_out_is_the_same(tables: Tables) -> None:
    pin, drop = three_parts(tables), np.array([1, *range(40, 65)])
    gone = tables.rewriter.outworn(pin, drop, compact_below=0, has_more=True)
    assert gone == [(40, 80)]
    staged = tables.writer.stage(pin, [batch([*range(65, 80), 500])])
    made = tables.rewriter.fold_staged(pin, gone, staged, drop)
    assert ids(tables, made) == ids(tables, fold(tables, pin, drop.tolist(), [500]))


def test_hidden_rows_stay_hidden_when_columns_are_altered_or_indexed(tables: Tables) -> None:
    pin = fold(tables, three_parts(tables), [3, 50], [])
    altered = tables.writer.alter(pin, rename={"v": "w"}, drop=[], add=[pa.field("x", pa.int32())])
    assert (altered.hidden, ids(tables, altered)) == (2, without(3, 50))
    spec = IndexSpec("by id", "id", "btree")
    built = tables.indexer.build(altered, spec, tables.reader.open(altered).spans)
    indexed = tables.indexer.put(fold(tables, altered, [3, 50, 51], []), [built])
    assert (indexed.hidden, ids(tables, indexed)) == (3, without(3, 50, 51))
    wanted = {"prefilter": "id in (50, 51, 52)", "indexed": True}
    assert not {50, 51} & set(ids(tables, indexed, **wanted))


def test_a_compaction_of_a_part_that_lost_a_row_meanwhile_is_refused(tables: Tables) -> None:
    pin = three_parts(tables)
    compacted = tables.compactor.compact(pin, (0, 80))
    other = tables.compactor.compact(pin, (80, 120))
    folded = fold(tables, pin, [3], [])
    assert tables.compactor.untouched(folded, pin, [(0, 80), (80, 120)]) == [False, True]
    with pytest.raises(InputsMovedError):
        tables.compactor.swap(folded, [compacted])
    swapped = tables.compactor.swap(folded, [other])
    assert (swapped.hidden, sorted(ids(tables, swapped))) == (1, without(3))


def test_every_file_of_a_fold_is_in_its_inventory_and_a_flipped_bit_is_named(
    make: Callable[[], Tables], tmp_path: Path
) -> None:
    tables = make()
    pin = fold(tables, three_parts(tables), [3, 50], [])
    files = [file.path for file in tables.reader.files(pin)]
    hiding = [path for path in files if "/_deletions/" in path]
    assert len(hiding) == 2
    assert pin.physical_path in files
    for path in (*hiding, pin.physical_path):
        names = [name for name in tmp_path.rglob(Path(path).name) if name.is_file()]
        data = names[0].read_bytes()
        for name in names:
            name.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(CorruptionError, match=Path(path).name):
            make().reader.check(pin)
        with pytest.raises(CorruptionError, match=Path(path).name):
            ids(make(), pin)
        for name in names:
            name.write_bytes(data)
    assert ids(make(), pin) == without(3, 50)


LOAD_FOLDER = "tables/orders-7/.attached/job"
BY_ID = (("c1", "id"), ("c2", "v"))


def load_of(tables: Tables, *parts: list[int]) -> Pin:
    """Return a load that has its columns in another order than base, and one more."""
    pin = tables.writer.create(LOAD_FOLDER, LOAD_SCHEMA)
    for some in parts:
        columns = [[f"gone{i}" for i in some], [f"v{i}" for i in some], pa.array(some, pa.int64())]
        pin = tables.writer.append(pin, [pa.record_batch(columns, schema=LOAD_SCHEMA)])
    return pin


LOAD_SCHEMA = pa.schema([("c3", pa.string()), ("c2", pa.string()), ("c1", pa.int64())])


def adopt(tables: Tables, pin: Pin, load: Pin, gone: list[int], drop: list[int]) -> Pin:
    adopted = AdoptedLoad(load, BY_ID, np.array(gone, int))
    return tables.rewriter.fold(
        pin, drop=np.array(drop, int), batches=[batch([600])], compact_below=0, loads=[adopted]
    )


def test_a_fold_makes_the_files_of_a_load_parts_of_base(tables: Tables, tmp_path: Path) -> None:
    pin, load = three_parts(tables), load_of(tables, [*range(200, 240)], [*range(240, 250)])
    folded = adopt(tables, pin, load, [3, 44, 45], [7])
    table = tables.reader.open(folded)
    assert (folded.rows, folded.hidden) == (119 + 1 + 47, 4)
    assert table.spans[3:] == [(120, 121), (121, 161), (161, 171)]
    wanted = [n for n in range(200, 250) if n not in {203, 244, 245}]
    assert ids(tables, folded) == [*without(7), 600, *wanted]
    values = [v for each in table.scan(["v"]) for v in each["v"].to_pylist()]
    assert values == [f"v{i}" for i in ids(tables, folded)]
    assert table.take(np.array([122]), ["v"])["v"].to_pylist() == ["v201"]
    assert table.schema.names == ["id", "v"]
    assert ids_of(tables, load) == [*range(200, 250)]  # its own names are as they were
    inodes = {path.stat().st_ino for path in (tmp_path / LOAD_FOLDER / "data").iterdir()}
    named = {file.path for file in tables.reader.files(folded)}
    assert inodes <= {(tmp_path / path).stat().st_ino for path in named}


def ids_of(tables: Tables, load: Pin) -> list[int]:
    return [v for each in tables.reader.open(load).scan(["c1"]) for v in each["c1"].to_pylist()]


def test_an_adopted_part_is_folded_and_rewritten_like_others(tables: Tables) -> None:
    pin, load = three_parts(tables), load_of(tables, [*range(200, 240)])
    once = adopt(tables, pin, load, [3], [])
    gone = [124, 125, *range(130, 160)]  # positions: those of the load begin at 121
    for count in (2, len(gone)):
        folded = fold(tables, once, gone[:count], [])
        left = [n for n in range(200, 240) if n - 200 + 121 not in gone[:count]]
        assert sorted(ids(tables, folded)) == [*range(120), *left, 600]
        once = folded
    assert folded.hidden == 0  # it was worn, and rewritten


def test_a_load_is_adopted_twice_under_two_names(tables: Tables) -> None:
    pin, load = three_parts(tables), load_of(tables, [*range(200, 240)])
    one, other = (adopt(tables, pin, load, [], []) for _ in range(2))
    mine, theirs = ({f.path for f in tables.reader.files(each)} for each in (one, other))
    assert len({path for path in mine - theirs if "/data/" in path}) == 2  # the load, the new row
    assert ids(tables, one) == ids(tables, other)


def test_files_of_other_types_are_not_adopted(tables: Tables) -> None:
    pin, load = three_parts(tables), load_of(tables, [1])
    assert tables.rewriter.adopts(pin, load, BY_ID)
    assert tables.rewriter.adopts(pin, load, BY_ID[:1])  # the other column is null
    assert not tables.rewriter.adopts(pin, load, BY_ID[1:])  # the key is not
    assert not tables.rewriter.adopts(pin, load, (("c1", "id"), ("c1", "v")))
