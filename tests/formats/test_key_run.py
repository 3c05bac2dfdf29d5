"""A key run gives back the entries that were written; of other bytes it says where they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from siltstone.errors import CorruptionError
from siltstone.formats import key_run
from siltstone.formats.key_run import PAGE_BYTES, PAGE_ROWS, TRAILER_BYTES, Entries, Foot

SALT = 2**64 - 1
CODES = some.lists(some.integers(-(2**63), 2**63 - 1), max_size=40)


def entries(count: int) -> Entries:
    codes = np.arange(count, dtype=np.int64) * 3 - count
    return codes, np.arange(count, dtype=np.uint64) | np.uint64(5 << 32)


def encoded(count: int) -> tuple[bytes, str]:
    codes, places = entries(count)
    pages = key_run.encode_pages(codes, places, salt=SALT, first=0)
    firsts = memoryview(codes[::PAGE_ROWS].copy().data)
    tail, checksum = key_run.encode_foot(Foot(SALT, count, (5, 9), firsts))
    return bytes(pages) + tail, checksum


def decoded(data: bytes, size: int, checksum: str) -> tuple[Foot, Entries]:
    length = key_run.foot_bytes(data[-TRAILER_BYTES:], "r", size, checksum)
    body = data[size - TRAILER_BYTES - length : size - TRAILER_BYTES]
    foot = key_run.decode_foot(body, "r", size, checksum)
    pages = data[: foot.pages * PAGE_BYTES]
    return foot, key_run.decode_pages(pages, "r", foot, range(foot.pages))


@pytest.mark.parametrize("count", [0, 1, PAGE_ROWS - 1, PAGE_ROWS, PAGE_ROWS + 1, 2000])
def test_a_run_gives_back_its_entries_and_what_it_covers(count: int) -> None:
    data, checksum = encoded(count)
    foot, (codes, places) = decoded(data, len(data), checksum)
    assert (foot.entries, foot.parts) == (count, (5, 9))
    assert codes.tolist() == entries(count)[0].tolist()
    assert places.tolist() == entries(count)[1].tolist()


def test_one_page_is_read_without_the_others() -> None:
    data, checksum = encoded(1200)
    foot, _ = decoded(data, len(data), checksum)
    codes, places = key_run.decode_page(data[2 * PAGE_BYTES : 3 * PAGE_BYTES], "r", foot, 2)
    assert codes.tolist() == entries(1200)[0][2 * PAGE_ROWS :].tolist()
    assert places.tolist() == entries(1200)[1][2 * PAGE_ROWS :].tolist()


def test_every_changed_byte_is_found_and_placed() -> None:
    data, checksum = encoded(600)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        with pytest.raises(CorruptionError) as caught:
            decoded(bytes(damaged), len(data), checksum)
        if at < 2 * PAGE_BYTES:
            assert caught.value.offset == at // PAGE_BYTES * PAGE_BYTES


def test_a_page_in_another_place_or_of_another_run_is_refused() -> None:
    data, checksum = encoded(1200)
    foot, _ = decoded(data, len(data), checksum)
    with pytest.raises(CorruptionError, match="checksum of the page"):
        key_run.decode_page(data[:PAGE_BYTES], "r", foot, 1)
    other = Foot(SALT - 1, 1200, (5, 9), foot.firsts)
    with pytest.raises(CorruptionError, match="checksum of the page"):
        key_run.decode_page(data[:PAGE_BYTES], "r", other, 0)


@given(some.lists(some.lists(CODES, max_size=4), max_size=4))
def test_merged_runs_have_all_entries_in_order(sources: list[list[list[int]]]) -> None:
    place = 0
    runs: list[list[Entries]] = []
    wanted: list[tuple[int, int]] = []
    for blocks in sources:
        flat = sorted(code for block in blocks for code in block)
        runs.append([])
        for block in blocks:
            mine, flat = flat[: len(block)], flat[len(block) :]
            places = np.arange(place, place + len(mine), dtype=np.uint64)
            wanted += zip(mine, places.tolist(), strict=True)
            runs[-1].append((np.array(mine, np.int64), places))
            place += len(mine)
    found = [*key_run.merged([iter(run) for run in runs])]
    codes = [code for block in found for code in block[0].tolist()]
    assert codes == sorted(codes)
    places = [place for block in found for place in block[1].tolist()]
    assert sorted(zip(codes, places, strict=True)) == sorted(wanted)


@given(CODES)
def test_entries_are_sorted_however_far_apart_their_codes_lie(codes: list[int]) -> None:
    places = np.arange(len(codes), dtype=np.uint64)
    found, moved = key_run.sorted_entries(np.array(codes, np.int64), places)
    assert found.tolist() == sorted(codes)
    assert [codes[place] for place in moved.tolist()] == found.tolist()
