"""Kept: which seqs a store still reads.

seq >= oldest_seq    the retention keeps it, with all that came since
a tagged seq         is kept as long as the tag is there; one with a lifetime keeps all since

Who tags a seq keeps it from vacuum until the commit: by a lease (`PastRecords.upto`), or, where the
retention is over, by the tags that keep it now, which the commit finds unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator

from siltstone.engine.read.reader import Readers
from siltstone.engine.read.view import State
from siltstone.errors import RequestError, SnapshotExpiredError
from siltstone.formats.manifest import Tag

FOREVER = 1 << 62


def kept_from(state: State) -> int:
    """Return the lowest seq from which the store keeps all versions and definitions."""
    followed = (tag.seq for tag in state.view.catalog.tags if tag.lasts_s)
    return min(state.view.record.oldest_seq, *followed, FOREVER)


def readable(state: State, seq: object, readers: Readers) -> int:
    """Return `seq` if the store keeps it; at a URL the bucket may have less (`Readers.hold`).

    Raises:
        RequestError: It is no integer.
        SnapshotExpiredError: It is not kept and has no tag, or it is in the future.
    """
    if not isinstance(seq, int) or isinstance(seq, bool):
        raise RequestError(f"a seq must be an integer; got {seq!r}")
    oldest = state.view.record.oldest_seq
    is_kept = seq >= oldest or any(tag.seq == seq for tag in state.view.catalog.tags)
    if not 0 <= seq <= state.visible:  # many ask for what is not there yet: no more is read
        raise SnapshotExpiredError(f"seq {seq}", oldest, state.visible)
    if not is_kept:
        raise SnapshotExpiredError(f"seq {seq}", readers.oldest_seq(state.view), state.visible)
    return seq


def newest_kept(state: State, first: int, last: int) -> int:
    """Return the newest seq from `first` to `last` that is kept; `last`, if none is."""
    if last >= state.view.record.oldest_seq:
        return last
    tags = (tag.seq for tag in state.view.catalog.tags)
    return max((seq for seq in tags if first <= seq <= last), default=last)


def keepers(state: State, seq: int, *, is_followed: bool) -> Iterator[Tag]:
    """Yield the tags that keep a seq; with `is_followed` those that keep all since."""
    for tag in state.view.catalog.tags:
        if (tag.lasts_s and tag.seq <= seq) or (tag.seq == seq and not is_followed):
            yield tag
