"""FLOOR says which numbers are kept, in text that guards itself, and a dead number stays dead."""

from __future__ import annotations

from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as hs

from siltstone.errors import CorruptionError
from siltstone.formats.store_format import STORE_FORMAT
from siltstone.maintenance.backup.new_store import NUMBERS_SKIPPED
from siltstone.storage.manifest.floor import Floor, floor_in, text_of

PATH = Path("FLOOR")
NUMBERS = hs.sets(hs.integers(1, 30), min_size=1)
FLOORS = hs.builds(Floor.of, NUMBERS, hs.integers(1, 31))


def kept(floor: Floor) -> set[int]:
    return {number for number in range(40) if floor.keeps(number)}


@given(NUMBERS, hs.integers(1, 31))
def test_a_floor_keeps_what_it_is_made_of_and_all_from_its_upper_end_on(numbers, upto):
    found = kept(Floor.of(numbers, upto))
    assert found == {n for n in numbers if n < upto} | set(range(upto, 40))


@given(FLOORS)
def test_a_floor_is_the_same_after_it_was_written_and_read(floor):
    assert floor_in(text_of(floor), PATH) == floor


def test_a_floor_is_written_in_one_form():
    head = b"siltstone-floor %d " % STORE_FORMAT
    assert Floor.of({4, 5, 6}, 7) == Floor(4)
    assert text_of(Floor(4)).startswith(head + b"4  4 ")
    assert text_of(Floor.of({4, 6}, 9)).startswith(head + b"4 6 9 ")
    assert text_of(Floor.of({4}, 9)).startswith(head + b"4  9 ")


@given(FLOORS, hs.integers(0, 35))
def test_a_raised_floor_keeps_nothing_that_it_did_not_keep_before(floor, number):
    raised = floor.above(number)
    if floor.keeps(number):
        assert kept(raised) == {n for n in kept(floor) if n >= number}
    else:
        assert raised == floor


@given(FLOORS, hs.integers(31, 39))
def test_each_kept_number_up_to_the_newest_is_due(floor, newest):
    assert list(floor.due(newest)) == sorted(n for n in kept(floor) if n <= newest)


def test_before_the_first_vacuum_each_number_is_due():
    assert list(Floor().due(4)) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "body",
    [b"4", b"4  0", b"4  3", b"4 3 9", b"4 6,5 9", b"4 6 5", b"4 5,6 7", b"4 6", b"4 06 9", b""],
)
def test_a_text_that_no_floor_has_is_damage(body):
    head = b"siltstone-floor %d %s " % (STORE_FORMAT, body)
    text = head + xxhash.xxh3_64_hexdigest(head).encode() + b"\n"
    with pytest.raises(CorruptionError):
        floor_in(text, PATH)


@pytest.mark.parametrize("floor", [Floor(7), Floor.of({4, 6}, 9)])
def test_no_flipped_bit_of_a_floor_goes_unseen(floor):
    text = text_of(floor)
    for place in range(len(text)):
        for bit in range(8):
            broken = bytearray(text)
            broken[place] ^= 1 << bit
            with pytest.raises(CorruptionError):
                floor_in(bytes(broken), PATH)


@given(FLOORS, hs.integers(0, 40), hs.integers(0, 40))
def test_the_bounds_of_what_is_kept_are_those_of_the_numbers_one_by_one(floor, first, end):
    among = [number for number in range(first, end) if floor.keeps(number)]
    assert floor.kept_between(first, end) == ((among[0], among[-1]) if among else None)


def test_numbers_that_a_restore_skipped_are_not_counted_one_by_one():
    assert Floor().kept_between(5, NUMBERS_SKIPPED**2) == (5, NUMBERS_SKIPPED**2 - 1)
