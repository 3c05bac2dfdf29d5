"""Store format: the one number that all files of a store have.

A change of the bytes of any file raises it by one. A siltstone writes and opens stores and backups
of this format alone; others, of a lower or a higher number, are refused by name and not changed.
See docs/adr/0087.
"""

from __future__ import annotations

import re
from pathlib import Path

from siltstone.errors import UnsupportedFormatError

STORE_FORMAT = 10
_NUMBER = re.compile(rb"[1-9][0-9]{0,8}")


def refuse_other(path: Path | str, found: int) -> None:
    """Check that a file has the format of this siltstone.

    Raises:
        UnsupportedFormatError: It has another one.
    """
    if found != STORE_FORMAT:
        raise UnsupportedFormatError(path, found, STORE_FORMAT)


def is_format(text: bytes) -> bool:
    """Return whether a text is a format's number, as it is written in files."""
    return _NUMBER.fullmatch(text) is not None
