"""Keys that were sorted where rows are staged give the key runs that the commit would make."""

from __future__ import annotations

import errno
import logging
import os
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from siltstone.formats import schema
from siltstone.formats.key_run import OFFSET_BITS, PAGE_BYTES
from siltstone.formats.keys import KeyCodec
from siltstone.formats.manifest import KeyRun, Pin
from siltstone.storage.files.files import Buffer, File, RealFile, RealFiles
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.tables.keys import key_cover, staged_keys
from siltstone.storage.tables.keys.staged_keys import RUN_ROWS, KeySorter, units_of
from siltstone.storage.tables.store_tables import Tables
from siltstone.storage.tables.values import Span, StagedFiles, StagedKeys, join

FOLDER = "tables/t-1/.attached/job"
SECRET = 0x1234_5678_9ABC_DEF0
KINDS = {
    "int64": pa.schema([pa.field("id", pa.int64(), nullable=False)]),
    "string": pa.schema([pa.field("id", pa.string(), nullable=False)]),
    "two": pa.schema([pa.field(n, pa.int64(), nullable=False) for n in ("id", "day")]),
    "uint64": pa.schema([pa.field("id", pa.uint64(), nullable=False)]),
    "timestamp": pa.schema([pa.field("id", pa.timestamp("us", "UTC"), nullable=False)]),
    "date": pa.schema([pa.field("id", pa.date32(), nullable=False)]),
    "decimal": pa.schema([pa.field("id", pa.decimal128(38, 2), nullable=False)]),
    "binary": pa.schema([pa.field("id", pa.binary(), nullable=False)]),
}


@pytest.fixture(params=[*KINDS])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_keys, "ROWS_MIN", 1)


def codec_of(kind: str) -> KeyCodec:
    fields = KINDS[kind]
    made = schema.new_schema(fields, fields.names, schema_id=1)
    return KeyCodec(msgspec.structs.replace(made, secret=SECRET))


def rows(kind: str, numbers: list[int]) -> pa.RecordBatch:
    keys: pa.Array = pa.array(numbers, pa.int64())
    if kind in {"string", "binary"}:
        keys = pa.array([f"key {n}" for n in numbers]).cast(KINDS[kind].field("id").type)
    elif kind == "uint64":
        keys = pa.array([n % (1 << 64) for n in numbers], pa.uint64())
    elif kind == "date":
        keys = pa.array([n % (1 << 20) for n in numbers], pa.int32()).cast(pa.date32())
    else:
        keys = keys.cast(KINDS[kind].field("id").type)
    return pa.record_batch([keys] * len(KINDS[kind].names), schema=KINDS[kind])


def mixed(count: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(-(2**40), 2**40, count).tolist()


def stage(
    tables: Tables, pin: Pin, kind: str, pieces: list[list[int]], without: tuple[int, ...] = ()
) -> StagedFiles:
    """Stage pieces, each from a process of its own; those `without` have no keys with them."""
    codec, found = codec_of(kind), list[StagedFiles]()
    for number, numbers in enumerate(pieces):
        sorter = tables.keys.sorter(FOLDER, codec)

        def passed(batches: list[pa.RecordBatch], sorter: KeySorter) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                sorter.add(batch)
                yield batch

        batches = [rows(kind, numbers[at : at + 7]) for at in range(0, len(numbers), 7)]
        files = tables.writer.stage(pin, passed(batches, sorter))
        keys = () if number in without else sorter.ended()
        found.append(pickle.loads(pickle.dumps(replace(files, keys=keys))))
    return join(found)


def covered(tables: Tables, pin: Pin, kind: str, keys: tuple[StagedKeys, ...]) -> list[list[int]]:
    """Return all entries of the key runs that a pin gets, as (code, place), and look each up."""
    made = tables.keys.cover(pin, codec_of(kind), keys)
    found = tables.keys.open(made)
    assert found.is_whole
    codes = codec_of(kind).codes(
        pa.Table.from_batches(tables.reader.open(made).scan(codec_of(kind).names))
    )
    for position in range(0, len(codes), 5):
        assert position in [*found.find(int(codes[position]))]
    wrong = [found.wrong_entries(each, codec_of(kind)) for each in found.newest_first]
    assert {*wrong} == {(0, 0)}
    return sorted(
        [int(code), int(place)]
        for each in found.newest_first
        for codes, places in each.run.entries()
        for code, place in zip(codes, places, strict=True)
    )


@pytest.mark.parametrize("without", [(), (1,), (0, 2)])
def test_merged_keys_are_those_that_the_rows_have(
    tmp_path: Path, kind: str, without: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_keys, "PIECE_ROWS", 11)
    tables = lance_tables(tmp_path, RealFiles())
    pin = tables.writer.create(FOLDER, KINDS[kind])
    pieces = [mixed(50, 1), mixed(13, 2), mixed(120, 3), []]
    staged = stage(tables, pin, kind, pieces, without)
    assert len(staged.keys) == 3 - len(without)
    made = tables.writer.commit(pin, staged)
    with_keys = covered(tables, made, kind, staged.keys)
    assert with_keys == covered(tables, made, kind, ())
    assert {place >> OFFSET_BITS for _, place in with_keys} == {0, 1, 2}


def test_a_commit_reads_no_key_that_is_staged(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = tables.writer.create(FOLDER, KINDS[kind])
    staged = stage(tables, pin, kind, [mixed(50, 1), mixed(60, 2)])
    made, read = tables.writer.commit(pin, staged), list[int]()
    entries = key_cover._Cover._entries

    def counted(self: object, parts: list[int]) -> object:
        read.extend(parts)
        return entries(self, parts)  # type: ignore[arg-type]

    monkeypatch.setattr(key_cover._Cover, "_entries", counted)
    assert tables.keys.open(tables.keys.cover(made, codec_of(kind), staged.keys)).is_whole
    assert read == []
    assert tables.keys.open(tables.keys.cover(made, codec_of(kind), staged.keys[1:])).is_whole
    assert read == [0]


def test_hundreds_of_tasks_are_merged_at_once(tmp_path: Path) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = tables.writer.create(FOLDER, KINDS["string"])
    staged = stage(tables, pin, "string", [mixed(9, seed) for seed in range(150)])
    assert len(staged.keys) == 150  # of which 64 may be open
    made = tables.writer.commit(pin, staged)
    assert len(covered(tables, made, "string", staged.keys)) == 150 * 9


def test_keys_do_not_keep_the_batches_that_they_came_in(tmp_path: Path) -> None:
    """In a stream, as Spark sends it, all columns of a batch are one buffer."""
    fields = pa.schema([*KINDS["int64"], pa.field("text", pa.binary(10_000))])
    tables = lance_tables(tmp_path, RealFiles())
    sorter = tables.keys.sorter(FOLDER, codec_of("int64"))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, fields) as writer:
        for at in range(20):
            keys = pa.array(np.arange(100)[::-1] - 100 * at)
            writer.write_batch(
                pa.record_batch([keys, pa.array([bytes(10_000)] * 100, fields[1].type)], fields)
            )
    before = pa.total_allocated_bytes()
    for batch in pa.ipc.open_stream(pa.BufferReader(sink.getvalue().to_pybytes())):
        copied = pa.ipc.read_record_batch(batch.serialize(), fields)
        sorter.add(copied)
    del batch, copied
    assert pa.total_allocated_bytes() - before < 1 << 20


def test_keys_in_order_are_left_to_the_commit(tmp_path: Path) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = tables.writer.create(FOLDER, KINDS["int64"])
    assert stage(tables, pin, "int64", [[*range(100)]]).keys == ()


def cut(path: Path) -> None:
    os.truncate(path, 10)


def zeroed(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(PAGE_BYTES)
        file.write(bytes(PAGE_BYTES))


def other(path: Path) -> None:
    path.write_bytes(os.urandom(path.stat().st_size))


@pytest.mark.parametrize("spoil", [Path.unlink, cut, zeroed, other])
def test_keys_that_cannot_be_read_are_read_from_the_rows(
    tmp_path: Path, kind: str, spoil: object, caplog: pytest.LogCaptureFixture
) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = tables.writer.create(FOLDER, KINDS[kind])
    staged = stage(tables, pin, kind, [mixed(1500, 1), mixed(900, 2)])
    made = tables.writer.commit(pin, staged)
    wanted = covered(tables, made, kind, staged.keys)
    spoil(tmp_path / staged.keys[0].run.path)  # type: ignore[operator]
    before = {*(tmp_path / FOLDER).rglob("*.run")}
    with caplog.at_level(logging.WARNING):
        assert covered(tables, made, kind, staged.keys) == wanted
    assert "the keys are read from the rows" in caplog.text
    assert staged.keys[0].run.path in caplog.text
    assert len({*(tmp_path / FOLDER).rglob("*.run")} - before) == 1  # no half of one


@pytest.mark.parametrize(
    "changed",
    [
        lambda keys: replace(keys, rows=(0, 51)),
        lambda keys: replace(keys, rows=(50, 100)),
        lambda keys: replace(keys, rows=(1, 51)),
    ],
)
def test_keys_of_other_rows_are_not_taken(tmp_path: Path, kind: str, changed: object) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = tables.writer.create(FOLDER, KINDS[kind])
    staged = stage(tables, pin, kind, [mixed(50, 1), mixed(70, 2)])
    made = tables.writer.commit(pin, staged)
    wanted = covered(tables, made, kind, staged.keys)
    wrong = (*staged.keys[1:], changed(staged.keys[0]))  # type: ignore[operator]
    assert covered(tables, made, kind, wrong) == wanted


class Refusing(RealFiles):
    """A disk on which no key run can be written, or on which each of its files is full."""

    def open(
        self, path: Path, *, create: bool = False, new: bool = False, write: bool = True
    ) -> File:
        opened = super().open(path, create=create, new=new, write=write)
        return Full(opened) if path.suffix == ".run" else opened


class Full(RealFile):
    def __init__(self, opened: File) -> None:
        self._opened = opened

    def pwrite(self, data: Buffer, offset: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def close(self) -> None:
        self._opened.close()


def test_rows_are_staged_where_their_keys_cannot_be(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    tables = lance_tables(tmp_path, Refusing())
    pin = tables.writer.create(FOLDER, KINDS[kind])
    staged = stage(tables, pin, kind, [mixed(50, 1)])
    assert (staged.rows, staged.keys) == (50, ())
    assert "No space left" in caplog.text
    assert [*(tmp_path / FOLDER).rglob("*.run")] == []
    whole = lance_tables(tmp_path, RealFiles())
    assert whole.keys.open(
        whole.keys.cover(whole.writer.commit(pin, staged), codec_of(kind))
    ).is_whole


def test_without_memory_for_keys_rows_are_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = tables.writer.create(FOLDER, KINDS["string"])

    def none_left(*_: object) -> object:
        raise MemoryError

    monkeypatch.setattr(KeyCodec, "codes", none_left)
    staged = stage(tables, pin, "string", [mixed(50, 1)])
    assert (staged.rows, staged.keys) == (50, ())


@pytest.mark.parametrize("count", [RUN_ROWS - 1, RUN_ROWS + 5])
def test_a_large_piece_has_a_file_for_each_two_of_its_parts(tmp_path: Path, count: int) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = tables.writer.create(FOLDER, KINDS["int64"])
    sorter, size = tables.keys.sorter(FOLDER, codec_of("int64")), 300_000
    keys = np.arange(count)[::-1]

    def batches() -> Iterator[pa.RecordBatch]:
        for at in range(0, count, size):
            batch = pa.record_batch([pa.array(keys[at : at + size])], schema=KINDS["int64"])
            sorter.add(batch)
            yield batch

    staged = replace(tables.writer.stage(pin, batches()), keys=sorter.ended())
    made = tables.writer.commit(pin, staged)
    spans = dict(enumerate(tables.reader.open(made).spans))
    assert [each.rows for each in staged.keys] == (
        [(0, count)] if count < RUN_ROWS else [(0, RUN_ROWS), (RUN_ROWS, count)]
    )
    units = [*units_of(spans, staged.keys)]
    assert [unit.keys for unit in units] == [*staged.keys]
    found = tables.keys.open(tables.keys.cover(made, codec_of("int64"), staged.keys))
    assert found.is_whole
    for position in (0, 1, 1_048_575, 1_048_576, count - 1):
        assert [*found.find(int(keys[position]))] == [position]


@pytest.mark.parametrize(
    ("spans", "taken"),
    [
        ([(0, 10), (10, 30)], [True]),
        ([(0, 30)], [True]),
        ([(0, 10), (10, 31)], [False, False]),
        ([(0, 10), (20, 30)], [False, False]),
        ([(0, 10)], [False]),
        ([(5, 10), (10, 30)], [False, False]),
        ([(0, 30), (30, 40)], [True, False]),
    ],
)
def test_only_whole_parts_take_staged_keys(spans: list[Span], taken: list[bool]) -> None:
    keys = StagedKeys((0, 30), KeyRun("a.run", 0, "", 30))
    units = [*units_of(dict(enumerate(spans)), [keys])]
    assert [unit.keys is not None for unit in units] == taken
    assert [span for unit in units for span in unit.spans.values()] == spans
