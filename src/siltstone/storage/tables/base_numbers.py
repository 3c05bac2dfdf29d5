r"""Base numbers: which numbers of versions other clients may know, in the file NUMBERS.

    siltstone-numbers 1 <number> <xxh3>\n

Other Lance clients see a base by the number of its version, and may keep what they saw by it. A
number is that of a version's pin, one above the version that it was made from: a repair that goes
back to an older record, or begins a base again, and a restore at the path of a lost store would
give a number twice. They write NUMBERS first, durably: every later version of any base has a number
above it. Missing: 0. A number above all others is the time in milliseconds, unless the clock was
set back; no store makes a thousand versions a second.
"""

from __future__ import annotations

import re
from pathlib import Path

import xxhash

from siltstone.errors import CorruptionError
from siltstone.storage.files.files import Files, names_in
from siltstone.storage.tables import promotion

NAME = "NUMBERS"
BASE = "base"
_TEXT = re.compile(rb"siltstone-numbers 1 (\d{1,19}) ([0-9a-f]{16})\n")


def lowest(files: Files, root: Path, folder: Path) -> int:
    """Return the lowest number that the next version of a dataset may have.

    That of a plain table follows from its own versions, which a client names by it.

    Raises:
        CorruptionError: NUMBERS is damaged; a repair writes it again.
    """
    if folder.name != BASE:
        return 1
    return 1 + max(known(files, root), promotion.highest(files, folder, shown=True))


def known(files: Files, root: Path) -> int:
    """Return the number in the file.

    Raises:
        CorruptionError: It is damaged.
    """
    path = root / NAME
    try:
        found = _TEXT.fullmatch(data := files.read(path))
    except FileNotFoundError:
        return 0
    if found is None or _check(found[1]) != found[2]:
        raise CorruptionError(path, None, f"it is {data[:64]!r}; repair the store")
    return int(found[1])


def highest(files: Files, root: Path, now_us: int) -> int:
    """Return a number that no base of the store ever had a higher one than."""
    tables = root / "tables"
    folders = [tables / name / BASE for name in names_in(files, tables)]
    return max([now_us // 1000, *(promotion.highest(files, folder) for folder in folders)])


def text_of(number: int) -> bytes:
    """Return the bytes of the file."""
    text = b"%d" % number
    return b"siltstone-numbers 1 %s %s\n" % (text, _check(text))


def _check(text: bytes) -> bytes:
    return xxhash.xxh3_64(text).hexdigest().encode()
