"""Arguments: what a caller gave, checked before anything is done with it.

Python takes None for false and 1.5 for a count where it is not checked, and then a preview deletes,
or an error speaks of the inside.
"""

from __future__ import annotations

import math
from typing import TypeGuard

from siltstone.errors import RequestError


def flag_of(name: str, given: object) -> bool:
    """Return a value that decides what is destroyed: True or False, and nothing like them.

    Raises:
        RequestError: It is something else.
    """
    if given is True or given is False:
        return given
    raise RequestError(f"{name} must be True or False; got {given!r:.80}")


def count_of(name: str, given: object, least: int, most: float = math.inf) -> int:
    """Return an integer from `least` to `most`.

    Raises:
        RequestError: It is something else.
    """
    if isinstance(given, int) and not isinstance(given, bool) and least <= given <= most:
        return given
    bounds = f"{least}" if most == math.inf else f"{least} to {most}"
    raise RequestError(f"{name} must be an integer from {bounds}; got {given!r:.80}")


def seconds_from(name: str, given: object) -> float:
    """Return a time in seconds, not below 0.

    Raises:
        RequestError: It is something else.
    """
    if isinstance(given, int | float) and not isinstance(given, bool) and given >= 0:
        return given
    raise RequestError(f"{name} must be a number of seconds from 0; got {given!r:.80}")


def is_text(given: object) -> TypeGuard[str]:
    """Say whether a value is a text that can be stored: half of a surrogate pair cannot."""
    return isinstance(given, str) and (given.isascii() or not _has_half_a_pair(given))


def _has_half_a_pair(text: str) -> bool:
    return any("\ud800" <= each <= "\udfff" for each in text)
