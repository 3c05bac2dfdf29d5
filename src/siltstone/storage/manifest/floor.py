r"""Floor: the numbers of the records that the store keeps, in the file FLOOR.

    siltstone-floor 1 <number> <check>\n
    siltstone-floor 2 <number> <kept>,<kept>,... <upto> <check>\n

    number          kept   the oldest kept record
    up to `upto`           those in `kept`; the others are thinned: vacuum deletes them
    from `upto` on  kept   all

The set only shrinks, and never at its upper end: a number that is not kept is dead for ever, so a
publisher that slept, and made the file of a dead number again, notices that. Format 2 is written
only if records are thinned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import xxhash

from siltstone.errors import CorruptionError, UnsupportedFormatError

FLOOR_FORMAT = 2
_TEXT = re.compile(rb"siltstone-floor (\d+) (.*) ([0-9a-f]{16})\n")
_NUMBER = re.compile(rb"\d+")
_THINNED = re.compile(rb"(\d+) ([\d,]*) (\d+)")


@dataclass(frozen=True, slots=True)
class Floor:
    """The kept numbers; see the module. `kept`: ascending, above `number` and below `upto`."""

    number: int = 0
    kept: tuple[int, ...] = ()
    upto: int = 0

    @classmethod
    def of(cls, kept: Iterable[int], upto: int) -> Floor:
        """Return the floor that keeps `kept`, and all from `upto` on."""
        first, *others = sorted({*kept, upto})
        between = tuple(number for number in others if number < upto)
        if len(between) == max(0, upto - first - 1):
            return cls(first)  # nothing is thinned
        return cls(first, between, upto)

    def keeps(self, number: int) -> bool:
        """Return whether the record `number` is kept, or will be once it exists."""
        if number >= self.upto:
            return number >= self.number
        return number == self.number or number in self.kept

    def kept_between(self, first: int, end: int) -> tuple[int, int] | None:
        """Return the lowest and the highest kept number of [first, end); None: it keeps none.

        Not one by one: a restore skips `NUMBERS_SKIPPED` numbers.
        """
        found = [number for number in (self.number, *self.kept) if first <= number < end]
        whole = max(first, self.number, self.upto)
        if whole < end:
            found += [whole, end - 1]
        return (min(found), max(found)) if found else None

    def due(self, newest: int) -> Iterable[int]:
        """Yield the numbers, ascending, of which each has a record; `newest` is the newest one."""
        yield max(self.number, 1)
        yield from self.kept
        yield from range(max(self.upto, self.number + 1, 2), newest + 1)

    def above(self, number: int) -> Floor:
        """Return the floor that keeps, of what this one keeps, `number` and all above it."""
        if number <= self.number or not self.keeps(number):
            return self
        kept = (each for each in self.kept if each > number)
        return Floor.of((number, *kept), max(self.upto, number))


def text_of(floor: Floor) -> bytes:
    """Return the bytes of the file."""
    if not floor.upto:
        return _checked(b"siltstone-floor 1 %d " % floor.number)
    kept = b",".join(b"%d" % number for number in floor.kept)
    return _checked(b"siltstone-floor 2 %d %s %d " % (floor.number, kept, floor.upto))


def floor_in(data: bytes, path: Path) -> Floor:
    """Return the floor in the bytes of a file.

    Raises:
        UnsupportedFormatError: A newer siltstone wrote it.
        CorruptionError: It is damaged.
    """
    match = _TEXT.fullmatch(data)
    if not match or _checked(data[: match.start(3)]) != data:
        raise CorruptionError(path, 0, "not a FLOOR, or its checksum does not match")
    if int(match[1]) > FLOOR_FORMAT:
        raise UnsupportedFormatError(path, int(match[1]), FLOOR_FORMAT)
    floor = _parsed(match[2])
    if floor is None or text_of(floor) != data:
        raise CorruptionError(path, 0, "not a FLOOR, though its checksum matches")
    return floor


def _parsed(body: bytes) -> Floor | None:
    if _NUMBER.fullmatch(body):
        return Floor(int(body))
    match = _THINNED.fullmatch(body)
    if not match:
        return None
    kept = tuple(int(number) for number in match[2].split(b",") if number)
    found = Floor(int(match[1]), kept, int(match[3]))
    return found if found == Floor.of({found.number, *kept}, found.upto) else None


def _checked(head: bytes) -> bytes:
    return head + xxhash.xxh3_64_hexdigest(head).encode() + b"\n"
