"""The key runs of a base find each of its rows by its key, whatever was folded or merged."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from siltstone.errors import CorruptionError, UnavailableError
from siltstone.formats import schema
from siltstone.formats.key_run import PAGE_BYTES, PAGE_ROWS
from siltstone.formats.keys import KeyCodec
from siltstone.formats.manifest import Pin
from siltstone.storage.files.files import File, RealFiles
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.tables.keys.key_cover import RUNS_MAX
from siltstone.storage.tables.store_tables import Tables

FOLDER = "tables/t-1/base"
INTS = schema.new_schema(pa.schema({"id": pa.int64(), "v": pa.int64()}), ["id"], schema_id=1)
TEXTS = schema.new_schema(pa.schema({"id": pa.string(), "v": pa.int64()}), ["id"], schema_id=1)


@pytest.fixture(params=["int64", "string"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def codec_of(kind: str) -> KeyCodec:
    return KeyCodec(INTS if kind == "int64" else TEXTS)


def fields_of(kind: str) -> pa.Schema:
    key = pa.int64() if kind == "int64" else pa.string()
    return pa.schema([pa.field("id", key, nullable=False), pa.field("v", pa.int64())])


def key_of(kind: str, number: int) -> object:
    return number if kind == "int64" else f"key {number}"


def rows(kind: str, numbers: range | list[int]) -> pa.RecordBatch:
    keys = [key_of(kind, number) for number in numbers]
    return pa.record_batch([pa.array(keys), pa.array(list(numbers))], schema=fields_of(kind))


def base_of(tables: Tables, kind: str, numbers: range) -> Pin:
    pin = tables.writer.create(FOLDER, fields_of(kind))
    return tables.keys.cover(tables.writer.append(pin, [rows(kind, numbers)]), codec_of(kind))


def folded(tables: Tables, pin: Pin, kind: str, drop: set[int], added: list[int]) -> Pin:
    """Hide the rows of some numbers, append others, and cover them."""
    table = tables.reader.open(pin)
    every = np.concatenate([b["v"].to_numpy() for b in table.scan(["v"], with_hidden=True)])
    live = table.live.bools()
    gone = np.flatnonzero(~live | np.isin(every, [*drop]))
    batches = [rows(kind, added)] if added else []
    made = tables.rewriter.fold(pin, drop=gone, batches=batches, compact_below=0)
    return tables.keys.cover(made, codec_of(kind))


def found(tables: Tables, pin: Pin, kind: str, number: int) -> list[int]:
    """Return the values of the living rows that the runs find for a key."""
    table, keys, codec = tables.reader.open(pin), tables.keys.open(pin), codec_of(kind)
    assert not keys.uncovered
    code = codec.code(key_of(kind, number))
    places = [at for at in keys.find(code) if table.live.has_one(at)]
    again, positions = keys.find_many(np.array([code]))
    assert sorted(places) == sorted(at for at in positions.tolist() if table.live.has_one(at))
    assert not again.any()
    return table.take(np.array(places, np.int64), ["v"])["v"].to_pylist()


def refusal(root: Path, pin: Pin, number: int) -> CorruptionError | None:
    """Look a number up in another process; return what it says, or check that it is found."""
    fresh = lance_tables(root, RealFiles())
    try:
        assert [*fresh.keys.open(pin).find(number)] == [number]
    except CorruptionError as error:
        return error
    return None


def test_folds_leave_few_runs_that_find_every_row_once(tmp_path: Path, kind: str) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin, living = base_of(tables, kind, range(2000)), set(range(2000))
    for turn in range(14):
        drop = {n for n in living if n % 37 == turn}
        added = [*range(10_000 + 100 * turn, 10_000 + 100 * turn + 3 * turn + 1), *sorted(drop)[:3]]
        pin = folded(tables, pin, kind, drop, added)
        living = (living - drop) | set(added)
        assert len(pin.runs) <= RUNS_MAX
    for number in [*range(0, 2000, 7), *range(10_000, 10_100), *range(11_300, 11_360)]:
        assert found(tables, pin, kind, number) == ([number] if number in living else []), number
    assert sum(run.entries for run in pin.runs) <= 2 * len(living)
    fresh = lance_tables(tmp_path, RealFiles())
    assert found(fresh, pin, kind, 5) == found(tables, pin, kind, 5)


def test_many_keys_are_found_at_once_whichever_pages_they_touch(tmp_path: Path, kind: str) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = base_of(tables, kind, range(5000))
    keys, codec = tables.keys.open(pin), codec_of(kind)
    for numbers in ([], [3], [*range(0, 9000, 250)], [*range(100)], [*range(-50, 6000)]):
        some = [key_of(kind, number) for number in numbers]
        codes = codec.codes_of(some)
        order = np.argsort(codes)
        needles, positions = keys.find_many(codes[order])
        hit = np.array(numbers, np.int64)[order][needles]
        assert hit.tolist() == positions.tolist()  # here a row's position is its number
        assert sorted(hit.tolist()) == [number for number in numbers if 0 <= number < 5000]


def test_a_run_of_equal_codes_is_found_across_its_pages(tmp_path: Path) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    few = [3] * (2 * PAGE_ROWS + 9)
    pin = tables.writer.create(FOLDER, fields_of("int64"))
    batch = pa.record_batch([pa.array([1, *few, 4]), pa.array(range(len(few) + 2))],
                            schema=fields_of("int64"))  # fmt: skip
    pin = tables.keys.cover(tables.writer.append(pin, [batch]), codec_of("int64"))
    keys = tables.keys.open(pin)
    wanted = list(range(1, len(few) + 1))
    assert sorted(keys.find(3)) == wanted
    assert sorted(keys.find_many(np.array([3]))[1].tolist()) == wanted
    many = np.arange(3 - 50, 4)
    needles, positions = keys.find_many(many)
    assert sorted(positions[many[needles] == 3].tolist()) == wanted


def test_a_pin_keeps_the_runs_of_the_pin_below_it(tmp_path: Path) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = base_of(tables, "int64", range(100))
    made = tables.writer.append(pin, [rows("int64", range(200, 210))])
    assert made.runs == pin.runs
    assert len(tables.keys.open(made).uncovered) == 1
    named = {file.path for file in tables.reader.files(made)}
    assert {run.path for run in pin.runs} <= named
    tables.reader.check(made)


def test_parts_that_an_older_siltstone_left_without_runs_are_uncovered(tmp_path: Path) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = base_of(tables, "int64", range(100))
    without = msgspec.structs.replace(pin, runs=())
    assert [*tables.keys.open(without).uncovered.values()] == [(0, 100)]
    assert found(tables, tables.keys.cover(without, codec_of("int64")), "int64", 3) == [3]


def test_a_missing_run_leaves_its_parts_uncovered_until_they_are_covered_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = base_of(tables, "int64", range(100))
    (tmp_path / pin.runs[0].path).unlink()
    fresh = lance_tables(tmp_path, RealFiles())
    assert [*fresh.keys.open(pin).uncovered.values()] == [(0, 100)]
    assert "is missing" in caplog.text
    assert found(fresh, folded(fresh, pin, "int64", {5}, []), "int64", 3) == [3]


def test_damage_of_a_run_is_named_with_its_place_and_gives_no_wrong_row(tmp_path: Path) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = base_of(tables, "int64", range(3 * PAGE_ROWS))
    path = tmp_path / pin.runs[0].path
    whole = path.read_bytes()
    for at in range(5, len(whole), 1001):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        refused = [
            error
            for number in (3, PAGE_ROWS + 3, 2 * PAGE_ROWS + 3)
            if (error := refusal(tmp_path, pin, number)) is not None
        ]
        assert len(refused) == (1 if at < 3 * PAGE_BYTES else 3), at
        for error in refused:
            assert error.path == path
            assert error.offset is not None
            assert error.offset <= at
            assert at - error.offset < PAGE_BYTES
    for size in (0, 10, PAGE_BYTES, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(CorruptionError):
            lance_tables(tmp_path, RealFiles()).keys.open(pin)


def test_runs_of_a_base_that_lost_say_nothing_of_the_winner(tmp_path: Path, kind: str) -> None:
    """Both folds of one pin give their new parts the same numbers, and hide other rows."""
    tables = lance_tables(tmp_path, RealFiles())
    pin = base_of(tables, kind, range(100))
    lost = folded(tables, pin, kind, {*range(40)}, [*range(200, 250)])
    won = folded(tables, pin, kind, {*range(60, 99)}, [*range(300, 350)])
    wanted = {*range(60), 99, *range(300, 350)}
    for turn in range(5):  # until runs are merged
        for number in (3, 30, 59, 60, 98, 99, 201, 249, 301, 349):
            assert found(tables, won, kind, number) == ([number] if number in wanted else [])
        won = folded(tables, won, kind, {300 + turn}, [400 + turn])
        wanted = (wanted - {300 + turn}) | {400 + turn}
    assert found(tables, lost, kind, 201) == [201]
    assert not {run.path for run in won.runs} & {run.path for run in lost.runs[1:]}


def test_numbers_of_parts_are_never_used_again(tmp_path: Path) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    codec = codec_of("int64")
    pin, seen = base_of(tables, "int64", range(100)), {0: 0}

    def note(pin: Pin) -> Pin:
        table = tables.reader.open(pin)
        for number, paths in table.part_ids:
            assert seen.setdefault(number, paths) == paths
        return tables.keys.cover(pin, codec)

    seen.clear()
    pin = note(pin)
    pin = note(folded(tables, pin, "int64", set(range(100)), [1, 2, 3]))  # every part is gone
    assert [part.number for part in tables.reader.open(pin).part_ids] != [0]
    pin = note(folded(tables, pin, "int64", {1}, [4]))
    pin = note(tables.writer.append(pin, [rows("int64", [5, 6])]))
    pin = note(tables.writer.append(pin, [rows("int64", [7])]))
    spans = [s for s in tables.reader.open(pin).spans if s[0] >= 4]
    done = tables.compactor.compact(pin, (spans[0][0], spans[-1][1]))
    pin = note(tables.compactor.swap(pin, [done]))
    pin = note(tables.writer.alter(pin, rename={"v": "w"}, drop=[], add=[pa.field("x", pa.int8())]))
    pin = note(tables.writer.alter(pin, rename={"w": "v"}, drop=["x"], add=[]))
    pin = note(folded(tables, pin, "int64", {2, 3, 4, 5, 6, 7}, []))
    assert pin.rows == 0
    pin = note(tables.writer.append(pin, [rows("int64", [8])]))
    assert found(tables, pin, "int64", 8) == [8]
    assert found(tables, pin, "int64", 2) == []


class FullDisk(RealFiles):
    """The real files, on a disk that is full after so many bytes of what is at `full`."""

    def __init__(self, full: str, left: int) -> None:
        self.full, self.left = full, left

    def open(
        self, path: Path, *, create: bool = False, new: bool = False, write: bool = True
    ) -> File:
        file = super().open(path, create=create, new=new, write=write)
        return _OfFullDisk(file, self) if self.full in str(path) and new else file


class _OfFullDisk:
    def __init__(self, file: File, disk: FullDisk) -> None:
        self._file, self._disk = file, disk

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def pwrite(self, data: bytes, offset: int) -> None:
        self._file.pwrite(memoryview(data)[: self._disk.left], offset)
        self._disk.left -= len(data)
        if self._disk.left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("left", [0, 100, PAGE_BYTES, 2 * PAGE_BYTES + 50])
@pytest.mark.parametrize("full", ["/_keys/", "/inventory/"])
def test_a_cover_that_finds_no_space_leaves_no_part_of_a_file_and_says_which_disk_is_full(
    tmp_path: Path, full: str, left: int
) -> None:
    disk = FullDisk("nothing", 0 if full == "/inventory/" else left)
    tables = lance_tables(tmp_path, disk)
    pin = tables.writer.create(FOLDER, fields_of("int64"))
    pin = tables.writer.append(pin, [rows("int64", range(2 * PAGE_ROWS))])
    disk.full = full
    with pytest.raises(UnavailableError, match=f"(?i){tmp_path}.*no space left"):
        tables.keys.cover(pin, codec_of("int64"))
    if full == "/_keys/":
        assert [*(tmp_path / FOLDER).glob("_siltstone/_keys/*")] == []
    again = lance_tables(tmp_path, RealFiles())
    assert found(again, again.keys.cover(pin, codec_of("int64")), "int64", 3) == [3]


READER = """
import sys, msgspec
from pathlib import Path
from siltstone.formats.manifest import Pin
from siltstone.storage.files.files import File, RealFiles
from siltstone.storage.lance.lance_tables import lance_tables
from tests.storage.test_key_cover import found
root, text = sys.argv[1:]
pin = msgspec.json.decode(text, type=Pin)
print([found(lance_tables(Path(root), RealFiles()), pin, "string", n) for n in (0, 41, 99, 100)])
"""


@pytest.mark.parametrize("seed", ["0", "1", "12345"])
def test_runs_of_texts_are_read_by_a_process_with_other_hashes(tmp_path: Path, seed: str) -> None:
    pin = base_of(lance_tables(tmp_path, RealFiles()), "string", range(100))
    argv = [sys.executable, "-c", READER, str(tmp_path), msgspec.json.encode(pin).decode()]
    root = Path(__file__).parents[2]
    env = {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(argv, env=env, check=True, capture_output=True, text=True, cwd=root)
    assert json.loads(done.stdout) == [[0], [41], [99], []]
