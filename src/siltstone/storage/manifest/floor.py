r"""Floor: the numbers of the records that the store keeps, in the file FLOOR.

    siltstone-floor <format> <number> <kept>,<kept>,... <upto> <check>\n

    number          kept   the oldest kept record
    up to `upto`           those in `kept`; the others are thinned: vacuum deletes them
    from `upto` on  kept   all

The set only shrinks, and never at its upper end: a number that is not kept is dead for ever, so a
publisher that slept, and made the file of a dead number again, notices that. If none are thinned,
`upto` is `number`. The format: see `formats.store_format`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
import xxhash

from siltstone.errors import CorruptionError
from siltstone.formats.store_format import STORE_FORMAT, is_format, refuse_other

_TEXT = re.compile(rb"siltstone-floor (\d+) (.*) ([0-9a-f]{16})\n")
_KEPT = re.compile(rb"(\d{1,20}) ([\d,]*) (\d{1,20})")


class Floor(msgspec.Struct, frozen=True):
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
    kept = b",".join(b"%d" % number for number in floor.kept)
    upto = floor.upto or floor.number
    return _checked(b"siltstone-floor %d %d %s %d " % (STORE_FORMAT, floor.number, kept, upto))


def floor_in(data: bytes, path: Path) -> Floor:
    """Return the floor in the bytes of a file.

    Raises:
        UnsupportedFormatError: A siltstone of another format wrote it.
        CorruptionError: It is damaged.
    """
    match = _TEXT.fullmatch(data)
    if not match or _checked(data[: match.start(3)]) != data:
        raise CorruptionError(path, 0, "not a FLOOR, or its checksum does not match")
    if is_format(match[1]):
        refuse_other(path, int(match[1]))
    floor = _parsed(match[2])
    if floor is None or text_of(floor) != data:
        raise CorruptionError(path, 0, "not a FLOOR, though its checksum matches")
    return floor


def _parsed(body: bytes) -> Floor | None:
    match = _KEPT.fullmatch(body)
    if not match:
        return None
    kept = (int(number) for number in match[2].split(b",") if number)
    return Floor.of((int(match[1]), *kept), int(match[3]))


def _checked(head: bytes) -> bytes:
    return head + xxhash.xxh3_64_hexdigest(head).encode() + b"\n"
