"""Rows out of part files are those of their base, whatever happens to the files."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as some
from hypothesis.stateful import rule

import siltstone as st
from siltstone import admin
from siltstone.engine.levels import filed_rows
from siltstone.engine.read.past import PastRecords
from siltstone.engine.read.reader import Readers
from siltstone.formats.keys import KeyCodec
from siltstone.formats.manifest import Pin
from siltstone.storage.cache.part_cache import PartCache
from siltstone.storage.lance.read.pinned import LancePinned
from siltstone.storage.manifest.manifest_store import ManifestStore
from siltstone.storage.tables.store_tables import Tables
from tests.engine.test_base_by_key import ROOT, FewBits, table_schema
from tests.formats.test_part_file import ROWS, columns
from tests.support.fake_lance import fake_lance
from tests.support.fake_pinned import FakePinned
from tests.support.simulated_files import SimFiles

MIB = 1 << 20
ONE_FILE = 1_500
"""Bytes of room for about one small file: nearly every read evicts one."""
MANY = 20_000


def eager(scratch: Path, bytes_max: int = MIB) -> PartCache:
    """Return a cache that is asked for each row, in the place of memory."""
    return PartCache(
        scratch, lambda: "store", bytes_max=bytes_max, open_bytes_max=MIB, is_eager=True
    )


class Filed(FewBits):
    """A base against a dict, with a cache so small that reads evict each other's files."""

    bytes_max = ONE_FILE

    def __init__(self) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="siltstone-parts-"))
        super().__init__()

    def new_readers(self) -> Readers:
        records = PastRecords(ManifestStore(self.files, ROOT))
        parts = eager(self.scratch, self.bytes_max)
        return Readers(
            self.tables.reader, self.tables.keys, records, index_bytes_max=MIB, parts=parts
        )

    @rule(which=some.sampled_from(["all", "cut", "changed"]), at=some.integers(0, 1 << 12))
    def disturb(self, which: str, at: int) -> None:
        """Do to the files what their user, or a disk, may do at any time."""
        for path in self.scratch.glob("*/parts/*"):
            data = path.read_bytes()
            at %= max(1, len(data))
            if which == "cut":
                path.write_bytes(data[:at])
            elif which == "changed" and data:
                path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        if which == "all":
            shutil.rmtree(self.scratch, ignore_errors=True)

    def rows_that_are_read_together_are_those_of_their_keys(self) -> None:
        """Those in files are not read together."""

    def teardown(self) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)


@pytest.mark.parametrize("bytes_max", [ONE_FILE, MIB])
@pytest.mark.parametrize("kind", ["int64", "string"])
def test_a_base_with_files_that_come_and_go_finds_what_a_dict_finds(
    kind: str, bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Machine(Filed):
        pass

    Machine.kind, Machine.bytes_max = kind, bytes_max
    if kind == "string":  # four codes, so that keys are compared
        for name in ("code", "codes", "codes_of"):
            whole = getattr(KeyCodec, name)
            monkeypatch.setattr(KeyCodec, name, lambda *a, whole=whole: whole(*a) & 3)
    case = Machine.TestCase
    case.settings = settings(max_examples=20, stateful_step_count=12, deadline=None)
    case().runTest()


@pytest.fixture
def tables() -> Tables:
    return fake_lance(ROOT, SimFiles())


def base_with_rows(tables: Tables, folder: str, value: int) -> Pin:
    schema = table_schema("int64")
    pin = tables.writer.create(folder, schema.arrow)
    batch = pa.record_batch([pa.array(range(10)), pa.array([value] * 10)], schema=schema.arrow)
    return tables.writer.append(pin, [batch])


def test_two_tables_and_two_stores_never_read_the_rows_of_each_other(
    tmp_path: Path, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts have the same numbers, rows and columns; only their folders, files or stores differ."""
    monkeypatch.setattr("tests.support.fake_pinned.zlib.crc32", lambda _: 7)
    schema, records = table_schema("int64"), PastRecords(ManifestStore(SimFiles(), ROOT))
    other = fake_lance(ROOT, SimFiles())
    for value, (mine, store_id, folder) in enumerate([
        (tables, "a", "tables/t-1/base"),
        (tables, "a", "tables/t-2/base"),
        (other, "b", "tables/t-1/base"),
    ]):  # fmt: skip
        pin = base_with_rows(mine, folder, value)
        parts = PartCache(
            tmp_path, lambda own=store_id: own, bytes_max=MIB, open_bytes_max=MIB, is_eager=True
        )
        readers = Readers(mine.reader, mine.keys, records, index_bytes_max=0, parts=parts)
        base = readers.base_of(pin, schema)
        assert [base.find(key) for key in range(10)] == [
            {"id": key, "v": value} for key in range(10)
        ]
    assert len([*tmp_path.glob("*/parts/*")]) == 3


def test_a_row_at_places_has_the_columns_that_are_asked_for(
    tmp_path: Path, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, records = table_schema("int64"), PastRecords(ManifestStore(SimFiles(), ROOT))
    pin = base_with_rows(tables, "tables/t-1/base", 5)
    batch = pa.record_batch([pa.array(range(10, 20)), pa.array([6] * 10)], schema=schema.arrow)
    pin = tables.writer.append(pin, [batch])
    readers = Readers(
        tables.reader, tables.keys, records, index_bytes_max=MIB, parts=eager(tmp_path)
    )
    base = readers.base_of(pin, schema)
    assert base.find(3) == {"id": 3, "v": 5}
    assert base.find(13) == {"id": 13, "v": 6}
    monkeypatch.setattr(FakePinned, "take", None)
    found = base.take(np.array([15, 2, 15, 19, 0]), ["v", "id"])
    assert found.to_pydict() == {"v": [6, 5, 6, 6, 5], "id": [15, 2, 15, 19, 0]}


def opened(folder: Path, **options: Any) -> st.Store:
    return st.connect(
        folder / "s", background=False, memory_bytes_max=MIB, scratch=folder / "scratch", **options
    )


def row(n: int) -> dict[str, object]:
    return {"id": n, "v": f"value {n}", "x": [float(n), 0.5, None], "d": {"a": n}}


@functools.cache
def many() -> pa.Table:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("v", pa.string()),
            pa.field("x", pa.list_(pa.float32(), 3)),
            pa.field("d", pa.struct([pa.field("a", pa.int64())])),
        ]
    )
    return pa.Table.from_pylist([row(n) for n in range(MANY)], schema=schema)


def filled(db: st.Store) -> None:
    db.create_table("t", many().schema, primary_key="id").upsert(many())
    db.checkpoint()
    db.merge()


def files(folder: Path) -> list[Path]:
    return [*folder.glob("scratch/*/parts/*")]


def no_take(*_args: object) -> pa.Table:
    raise AssertionError("a row was taken from Lance")


def test_rows_that_do_not_fit_into_memory_are_read_from_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as db:
        filled(db)
        assert files(tmp_path) == []
        for n in range(100):
            assert db["t"].get(n) == row(n)
        assert files(tmp_path) != []
        monkeypatch.setattr(LancePinned, "take", no_take)
        assert [db["t"].get(n) for n in range(5_000, 5_100)] == [
            row(n) for n in range(5_000, 5_100)
        ]
        some_keys = [*range(7_000, 7_050)]
        assert db["t"].get_many(some_keys).to_pylist() == [row(n) for n in some_keys]
        with db.transaction() as tx:
            assert tx["t"].get(9_000) == row(9_000)
            tx["t"].update(9_001, v="new")
        assert db["t"].get(9_001) == {**row(9_001), "v": "new"}
        found = db["t"].scan(columns=["v"], filter="id in (11000, 11001)").read_all()
        assert {*found["v"].to_pylist()} == {"value 11000", "value 11001"}
    with opened(tmp_path) as db:  # and at once, from the next opening on
        assert db["t"].get(12_000) == row(12_000)


def test_without_a_bound_of_bytes_there_is_no_file(tmp_path: Path) -> None:
    with opened(tmp_path, cache_bytes_max=0) as db:
        filled(db)
        for n in range(100):
            assert db["t"].get(n) == row(n)
    assert files(tmp_path) == []


def test_status_has_the_files_their_bound_and_how_often_they_were_of_use(tmp_path: Path) -> None:
    with opened(tmp_path, cache_bytes_max=100 * MIB) as db:
        filled(db)
        before = db.status().cache
        assert (before.files, before.all_bytes, before.bytes_max) == (0, 0, 100 * MIB)
        for n in range(200):
            db["t"].get(n)
        found = db.status().cache
        sizes = [path.stat().st_size for path in files(tmp_path)]
        assert (found.files, found.bytes, found.all_bytes) == (len(sizes), sum(sizes), sum(sizes))
        assert found.open_bytes > 0
        assert (found.hits, found.misses) == (200 - found.misses, found.misses)
        assert 0 < found.misses < 100
        assert f"cache: {found.files} files, {found.bytes} bytes" in str(db.status())
        assert db["t"].get(7_000) == row(7_000)
        assert db.status().cache.hits == found.hits + 1
    with opened(tmp_path, cache_bytes_max=0) as db:
        none: Any = db.status().to_dict()["cache"]
        assert set(none.values()) == {0}
    with opened(tmp_path) as db:
        assert db.status().cache.bytes_max > found.bytes


FOLDERS: dict[str, Callable[[Path], object]] = {
    "a file": lambda folder: (folder / "scratch").write_text("no folder"),
    "no locks, as on a network": lambda folder: (folder / "scratch" / "parts.lock").mkdir(
        parents=True
    ),
    "open to others": lambda folder: (folder / "scratch").mkdir(mode=0o777),
}


@pytest.mark.parametrize("what", FOLDERS)
def test_rows_are_read_whatever_the_folder_is(tmp_path: Path, what: str) -> None:
    FOLDERS[what](tmp_path)
    with opened(tmp_path) as db:
        filled(db)
        for n in range(100):
            assert db["t"].get(n) == row(n)
        found = db["t"].scan(order_by="id", limit=3, descending=True).read_all()
        assert found.to_pylist() == [row(n) for n in (MANY - 1, MANY - 2, MANY - 3)]


def test_rows_that_fit_into_memory_get_no_file(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False, scratch=tmp_path / "scratch") as db:
        filled(db)
        for n in range(200):
            assert db["t"].get(n) == row(n)
    assert files(tmp_path) == []


def lose(folder: Path, how: str) -> None:
    """Do to the files of a cache what may happen to them at any moment."""
    if how == "gone":
        shutil.rmtree(folder / "scratch", ignore_errors=True)
    for path in files(folder) if how in {"cut", "emptied"} else ():
        os.truncate(path, 0 if how == "emptied" else path.stat().st_size // 2)


STEPS: dict[str, Callable[[st.Store], object]] = {
    "upsert": lambda db: db["t"].upsert([{**row(n), "v": "newer"} for n in (0, MANY)]),
    "checkpoint": lambda db: db.checkpoint(),
    "delete": lambda db: db["t"].delete([100]),
    "merge": lambda db: (db.checkpoint(), db.merge()),
    "optimize": lambda db: db.optimize(),
    "vacuum": lambda db: db.vacuum(dry_run=False),
}


def test_deleting_the_cache_at_any_moment_changes_no_answer(tmp_path: Path) -> None:
    wanted: dict[int, dict[str, object] | None] = {n: row(n) for n in range(0, MANY, 300)}
    with opened(tmp_path) as db:
        filled(db)
        for name, step in STEPS.items():
            step(db)
            if name == "upsert":
                wanted |= {n: {**row(n), "v": "newer"} for n in (0, MANY)}
            elif name == "delete":
                wanted[100] = None
            for how in ("left", "gone", "left", "emptied", "left", "cut"):
                lose(tmp_path, how)
                assert {n: db["t"].get(n) for n in wanted} == wanted, (name, how)


def test_a_file_that_goes_is_made_again_when_it_is_worth_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filed_rows, "ROWS_PER_MISS", MANY // 50)
    with opened(tmp_path) as db:
        filled(db)
        for n in range(100):
            db["t"].get(n)
        for path in files(tmp_path):
            path.write_bytes(b"")
        for n in range(1_000, 1_040):
            assert db["t"].get(n) == row(n)
        assert files(tmp_path) == []
        for n in range(1_040, 1_100):
            assert db["t"].get(n) == row(n)
        assert files(tmp_path) != []


def test_the_rows_of_a_part_that_is_damaged_in_base_are_no_reason_to_refuse_others(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as db:
        filled(db)
    (data,) = (tmp_path / "s").glob("tables/*/base/data/*.lance")
    whole = data.read_bytes()
    data.write_bytes(whole[: len(whole) // 2] + b"\0" * 64 + whole[len(whole) // 2 + 64 :])
    with opened(tmp_path) as db:
        for n in range(100):
            with pytest.raises(st.CorruptionError):
                db["t"].get(n)
    assert files(tmp_path) == []


@pytest.mark.parametrize("given", [5, "", b"/tmp", "a\0b", object()])
def test_a_scratch_that_is_no_path_is_refused(tmp_path: Path, given: Any) -> None:
    with pytest.raises(st.RequestError, match="scratch"):
        st.connect(tmp_path / "s", scratch=given)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("given", [-1, 1.5, "many", True, 1 << 61])
def test_a_bound_that_is_no_number_of_bytes_is_refused(tmp_path: Path, given: Any) -> None:
    with pytest.raises(st.RequestError, match="cache_bytes_max"):
        st.connect(tmp_path / "s", cache_bytes_max=given)
    assert not (tmp_path / "s").exists()


def test_a_merge_makes_files_for_new_parts_of_a_table_that_is_read_from_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as db:
        filled(db)
        for n in range(100):
            db["t"].get(n)
        before = set(files(tmp_path))
        db["t"].upsert([{**row(n), "v": "new"} for n in range(MANY, 2 * MANY)])
        db.checkpoint()
        db.merge()
        assert before < set(files(tmp_path))
        monkeypatch.setattr(LancePinned, "take", no_take)
        assert db["t"].get(MANY + 7) == {**row(MANY + 7), "v": "new"}


def test_a_merge_makes_no_files_for_a_table_that_is_not(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        filled(db)
        db["t"].upsert([row(n) for n in range(MANY, 2 * MANY)])
        db.checkpoint()
        db.merge()
        assert files(tmp_path) == []


def test_files_go_with_the_parts_that_vacuum_deletes(tmp_path: Path) -> None:
    with opened(tmp_path, retention=0) as db:
        filled(db)
        for n in range(100):
            db["t"].get(n)
        (before,) = files(tmp_path)
        db["t"].upsert(many().set_column(1, "v", pa.array(["new"] * MANY)))
        db.checkpoint()
        db.merge()
        db.checkpoint()
        db.vacuum(dry_run=False)
        assert not before.exists()


def test_rows_in_memory_at_places_have_the_columns_that_are_asked_for(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, records = table_schema("int64"), PastRecords(ManifestStore(SimFiles(), ROOT))
    pin = base_with_rows(tables, "tables/t-1/base", 5)
    batch = pa.record_batch([pa.array(range(10, 20)), pa.array([6] * 10)], schema=schema.arrow)
    pin = tables.writer.append(pin, [batch])
    readers = Readers(tables.reader, tables.keys, records, index_bytes_max=MIB)
    base = readers.base_of(pin, schema)
    for absent in range(100, 200):
        assert base.find(absent) is None
    monkeypatch.setattr(FakePinned, "take", None)
    found = base.take(np.array([15, 2, 15, 19, 0]), ["v", "id"])
    assert found.to_pydict() == {"v": [6, 5, 6, 6, 5], "id": [15, 2, 15, 19, 0]}


def test_a_store_in_memory_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILTSTONE_SCRATCH", str(tmp_path / "scratch"))
    with st.connect(":memory:", background=False, memory_bytes_max=MIB) as db:
        filled(db)
        for n in range(100):
            assert db["t"].get(n) == row(n)
    assert not (tmp_path / "scratch").exists()


def test_each_type_is_read_from_a_file_as_from_lance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = pa.field("id", pa.int64(), nullable=False)
    table = pa.Table.from_pydict({n: c for n, c in columns().items() if n != "json"})
    table = table.add_column(0, ids, pa.array(range(table.num_rows), ids.type))
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(4.0 * ROWS).reshape(ROWS, 2, 2))
    table = table.append_column("tensor", tensor)

    def rows(db: st.Store) -> list[str]:
        return [repr(db["t"].get(n)) for n in range(ROWS)]

    with opened(tmp_path, cache_bytes_max=0) as db:
        db.create_table("t", table.schema, primary_key="id").upsert(table)
        db.checkpoint()
        db.merge()
        wanted, whole = rows(db), repr(db["t"].get_many([*range(ROWS)]).to_pylist())
    with opened(tmp_path) as db:
        for n in range(100):
            db["t"].get(n)
        assert files(tmp_path) != []
        with monkeypatch.context() as patch:
            patch.setattr(LancePinned, "take", no_take)
            assert rows(db) == wanted
            assert repr(db["t"].get_many([*range(ROWS)]).to_pylist()) == whole


def test_a_file_that_was_closed_for_another_is_opened_again(
    tmp_path: Path, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filed_rows, "ROWS_PER_MISS", 1)
    schema, records = table_schema("int64"), PastRecords(ManifestStore(SimFiles(), ROOT))
    pin = base_with_rows(tables, "tables/t-1/base", 5)
    batch = pa.record_batch([pa.array(range(10, 20)), pa.array([6] * 10)], schema=schema.arrow)
    pin = tables.writer.append(pin, [batch])
    parts = PartCache(
        tmp_path, lambda: "store", bytes_max=MIB, open_bytes_max=6_000, is_eager=True
    )  # of one file
    readers = Readers(tables.reader, tables.keys, records, index_bytes_max=0, parts=parts)
    base = readers.base_of(pin, schema)
    assert [base.find(key) for key in (0, 10)] == [{"id": 0, "v": 5}, {"id": 10, "v": 6}]
    monkeypatch.setattr(FakePinned, "take", None)
    for key in range(1, 10):
        assert base.find(key) == {"id": key, "v": 5}
        assert base.find(key + 10) == {"id": key + 10, "v": 6}


def test_a_repair_leaves_no_copy_of_what_may_have_been_damaged(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        filled(db)
        for n in range(100):
            db["t"].get(n)
    assert files(tmp_path) != []
    admin.repair(tmp_path / "s", scratch=tmp_path / "scratch")
    assert files(tmp_path) != []
    admin.repair(tmp_path / "s", dry_run=False, scratch=tmp_path / "scratch")
    assert files(tmp_path) == []


def test_a_part_that_was_damaged_after_its_first_use_is_not_copied(tmp_path: Path) -> None:
    """The copy would give the damage back after the good file is there again."""
    with opened(tmp_path) as db:
        filled(db)
    data = [*(tmp_path / "s").glob("tables/*/base/data/*.lance")]
    whole = [file.read_bytes() for file in data]
    with opened(tmp_path) as db:
        assert db["t"].get(1) == row(1)
        for file, content in zip(data, whole, strict=True):
            at = len(content) // 3
            file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        for n in range(200):
            with contextlib.suppress(st.CorruptionError):
                db["t"].get(n)
        assert files(tmp_path) == []
    for file, content in zip(data, whole, strict=True):
        file.write_bytes(content)
    with opened(tmp_path) as db:
        assert [db["t"].get(n) for n in range(200)] == [row(n) for n in range(200)]
