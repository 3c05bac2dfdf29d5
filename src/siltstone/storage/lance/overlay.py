"""Lance overlay: a version with more rows over a pin, for other clients to read.

    deletion files of the hidden rows           ─▶ one commit in private ─▶ its manifest, with a
    one fragment or several of the rows on top      number of its own

A client may cache several versions by the number of the version or of the fragment, so neither is
ever reused. Fragments on top have numbers from 2^31 on, which no dataset of ours ever reaches.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from siltstone.errors import UnavailableError

if TYPE_CHECKING:
    from siltstone.storage.lance.pinned import LancePinned

FRAGMENTS_FROM = 1 << 31
FRAGMENTS_MAX = 64


def hidden(table: LancePinned, drop: np.ndarray) -> tuple[list[Any], list[int]]:
    """Write deletion files; return the fragments that lose rows, and the numbers of lost ones."""
    changed: list[Any] = []
    gone: list[int] = []
    for part in table.parts:
        low, high = np.searchsorted(drop, (part.start, part.start + part.rows))
        if low == high:
            continue
        offsets = (drop[low:high] - part.start).tolist()
        left = table.fragment_of(part).delete_rows(offsets)
        if left is None:
            gone.append(part.number)
        else:
            changed.append(left.metadata if hasattr(left, "metadata") else left)
    return changed, gone


def numbered(fragments: Sequence[Any], version: int) -> Iterable[Any]:
    """Yield staged fragments with numbers that only this version has.

    Raises:
        UnavailableError: There are too many of them: merge first.
    """
    if len(fragments) > FRAGMENTS_MAX:
        raise UnavailableError(
            f"{len(fragments)} fragments of rows are not merged, at most {FRAGMENTS_MAX} can be"
            " shown to other clients: merge first"
        )
    first = FRAGMENTS_FROM + version * FRAGMENTS_MAX % FRAGMENTS_FROM
    for index, fragment in enumerate(fragments):
        yield type(fragment).from_json(json.dumps(fragment.to_json() | {"id": first + index}))
