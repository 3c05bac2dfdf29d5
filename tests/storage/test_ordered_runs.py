"""The ordered runs of a base give its rows in the order of their keys, whatever was folded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from siltstone.errors import CorruptionError, UnavailableError
from siltstone.formats.key_run import joined, merged
from siltstone.formats.manifest import Pin
from siltstone.formats.order import ordered_run
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.tables.keys import key_cover, ordered_runs
from siltstone.storage.tables.keys.key_cover import RUNS_MAX
from siltstone.storage.tables.store_tables import Tables
from tests.storage.test_key_cover import FOLDER, FullDisk, codec_of, fields_of, rows

CODEC = codec_of("string")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages and blocks of a few keys."""
    monkeypatch.setattr(ordered_run, "PAGE_BYTES", 400)
    monkeypatch.setattr(ordered_runs, "_BLOCK_BYTES", 1_500)


def keys_of(numbers: Any) -> list[bytes]:
    return sorted(f"key {number}".encode() for number in numbers)


def base_of(tables: Tables, numbers: range) -> Pin:
    pin = tables.writer.create(FOLDER, fields_of("string"))
    pin = tables.writer.append(pin, [rows("string", numbers)])
    return tables.keys.cover(pin, CODEC, in_order=True)


def folded(tables: Tables, pin: Pin, drop: set[int], added: list[int]) -> Pin:
    table = tables.reader.open(pin)
    every = np.concatenate([b["v"].to_numpy() for b in table.scan(["v"], with_hidden=True)])
    gone = np.flatnonzero(~table.live.bools() | np.isin(every, [*drop]))
    batches = [rows("string", added)] if added else []
    made = tables.rewriter.fold(pin, drop=gone, batches=batches, compact_below=0)
    return tables.keys.cover(made, CODEC, in_order=True)


def stretch(
    tables: Tables, pin: Pin, first: bytes = b"", end: bytes | None = None, *, descending: bool
) -> list[bytes]:
    """Return the keys of the living rows of a stretch; check that each is its row's."""
    table, keys = tables.reader.open(pin), tables.keys.open(pin)
    assert not keys.in_order.uncovered

    def living(entries: Iterator[Any]) -> Iterator[Any]:
        for found, positions in entries:
            kept = table.live.has(positions)
            yield (~found[kept] if descending else found[kept]), positions[kept]

    blocks = [*merged([*map(living, keys.stretches_of_keys(first, end, descending=descending))])]
    if not blocks:
        return []
    found, positions = joined(blocks)
    taken = table.take(positions, ["id"])["id"].to_pylist()
    assert found.array.to_pylist() == [each.encode() for each in taken]
    return found.array.to_pylist()


def ordered(pin: Pin) -> list[Any]:
    return [run for run in pin.runs if run.is_ordered]


@pytest.mark.parametrize("descending", [False, True])
def test_folds_leave_few_runs_that_give_every_row_once_in_order(
    tmp_path: Path, descending: bool
) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin, living = base_of(tables, range(900)), set(range(900))
    for turn in range(14):
        drop = {n for n in living if n % 37 == turn}
        added = [*range(10_000 + 100 * turn, 10_000 + 100 * turn + 3 * turn + 1), *sorted(drop)[:3]]
        pin = folded(tables, pin, drop, added)
        living = (living - drop) | set(added)
        assert 0 < len(ordered(pin)) <= RUNS_MAX
        assert len(pin.runs) <= 2 * RUNS_MAX
    whole = keys_of(living)
    assert sum(run.entries for run in ordered(pin)) <= 2 * len(living)
    for first, end in [(b"", None), (b"key 3", b"key 77"), (whole[5], whole[6]), (b"l", None)]:
        found = stretch(tables, pin, first, end, descending=descending)
        some = [key for key in whole if first <= key and (end is None or key < end)]
        assert found == (some[::-1] if descending else some)
    fresh = lance_tables(tmp_path, RealFiles())
    assert stretch(fresh, pin, descending=False) == whole


def test_a_load_and_exact_keys_get_none(tmp_path: Path) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = tables.writer.create(FOLDER, fields_of("string"))
    pin = tables.keys.cover(tables.writer.append(pin, [rows("string", range(9))]), CODEC)
    assert [run.is_ordered for run in pin.runs] == [False]
    pin = tables.writer.create("tables/n-1/base", fields_of("int64"))
    pin = tables.writer.append(pin, [rows("int64", range(9))])
    pin = tables.keys.cover(pin, codec_of("int64"), in_order=True)
    assert [run.is_ordered for run in pin.runs] == [False]


def test_a_missing_run_leaves_its_parts_uncovered_until_they_are_covered_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = base_of(tables, range(100))
    (tmp_path / ordered(pin)[0].path).unlink()
    fresh = lance_tables(tmp_path, RealFiles())
    keys = fresh.keys.open(pin)
    assert [*keys.in_order.uncovered.values()] == [(0, 100)]
    assert not keys.uncovered
    assert "is missing" in caplog.text
    again = fresh.keys.cover(pin, CODEC, in_order=True)
    assert stretch(fresh, again, descending=False) == keys_of(range(100))
    named = {file.path for file in fresh.reader.files(again)}
    assert {run.path for run in again.runs} <= named
    assert ordered(pin)[0].path not in named


def test_damage_of_a_run_is_named_with_its_place_and_gives_no_wrong_row(tmp_path: Path) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = base_of(tables, range(150))
    path = tmp_path / ordered(pin)[0].path
    whole = path.read_bytes()
    for at in range(0, len(whole), 13):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(CorruptionError) as caught:
            stretch(lance_tables(tmp_path, RealFiles()), pin, descending=at % 2 == 0)
        assert caught.value.path == path
        assert caught.value.offset is not None
    for size in (0, 10, 500, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(CorruptionError):
            lance_tables(tmp_path, RealFiles()).keys.open(pin)


def test_a_damaged_page_ends_no_read_of_others(tmp_path: Path) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = base_of(tables, range(150))
    path = tmp_path / ordered(pin)[0].path
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    fresh = lance_tables(tmp_path, RealFiles())
    whole = keys_of(range(150))
    assert stretch(fresh, pin, whole[100], whole[110], descending=False) == whole[100:110]
    with pytest.raises(CorruptionError):
        stretch(fresh, pin, whole[0], whole[1], descending=False)


def test_pages_are_kept_for_the_next_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = base_of(tables, range(150))
    whole, held = keys_of(range(150)), tables.keys.open(pin)
    assert stretch(tables, pin, whole[50], whole[52], descending=False) == whole[50:52]
    monkeypatch.setattr(ordered_runs, "decode_page", None)
    assert stretch(tables, pin, whole[50], whole[52], descending=True) == whole[50:52][::-1]
    with pytest.raises(TypeError):
        stretch(tables, pin, whole[120], whole[121], descending=False)
    assert held.in_order.newest_first, "its pages go when nobody has the run open"


@pytest.fixture
def spilling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_cover, "PIECE_BYTES", 600)
    monkeypatch.setattr(key_cover, "SORTED_BYTES_MAX", 1_500)


@pytest.mark.usefixtures("spilling")
def test_keys_that_do_not_fit_into_memory_are_sorted_by_way_of_files(tmp_path: Path) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = base_of(tables, range(400))
    pin = folded(tables, pin, {*range(0, 400, 3)}, [*range(1_000, 1_200)])
    living = {n for n in range(400) if n % 3} | {*range(1_000, 1_200)}
    assert stretch(tables, pin, descending=False) == keys_of(living)
    files = {path.name for path in (tmp_path / FOLDER).glob("_siltstone/_keys/*")}
    assert len(files) <= 6, "nothing that was only a piece is left"


@pytest.mark.usefixtures("spilling")
@pytest.mark.parametrize("left", [0, 900, 2_500, 5_000, 7_000])
def test_a_cover_that_finds_no_space_leaves_no_part_of_a_file(tmp_path: Path, left: int) -> None:
    disk = FullDisk("nothing", left)
    tables = lance_tables(tmp_path, disk)
    pin = tables.writer.create(FOLDER, fields_of("string"))
    pin = tables.writer.append(pin, [rows("string", range(300))])
    pin = tables.keys.cover(pin, CODEC)
    disk.full = "/_keys/"
    before = {*(tmp_path / FOLDER).glob("_siltstone/_keys/*")}
    with pytest.raises(UnavailableError, match=r"(?i)no space left"):
        tables.keys.cover(pin, CODEC, in_order=True)
    assert {*(tmp_path / FOLDER).glob("_siltstone/_keys/*")} == before
    again = lance_tables(tmp_path, RealFiles())
    pin = again.keys.cover(pin, CODEC, in_order=True)
    assert stretch(again, pin, descending=False) == keys_of(range(300))


def test_runs_of_a_base_that_lost_say_nothing_of_the_winner(tmp_path: Path) -> None:
    """Both folds of one pin give their new parts the same numbers, and hide other rows."""
    tables = lance_tables(tmp_path, RealFiles())
    pin = base_of(tables, range(100))
    lost = folded(tables, pin, {*range(40)}, [*range(200, 250)])
    won = folded(tables, pin, {*range(60, 99)}, [*range(300, 350)])
    wanted = {*range(60), 99, *range(300, 350)}
    for turn in range(5):  # until runs are merged
        assert stretch(tables, won, descending=False) == keys_of(wanted)
        won = folded(tables, won, {300 + turn}, [400 + turn])
        wanted = (wanted - {300 + turn}) | {400 + turn}
    assert (
        stretch(tables, lost, descending=True) == keys_of([*range(40, 100), *range(200, 250)])[::-1]
    )


def test_a_base_that_names_none_has_no_order(tmp_path: Path) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = base_of(tables, range(10))
    without = msgspec.structs.replace(pin, runs=pin.runs[:1])
    keys = tables.keys.open(without)
    assert [*keys.in_order.uncovered.values()] == [(0, 10)]
    assert not keys.uncovered
