"""Shares: how `memory_bytes_max` is divided, in 96ths; the one place that says so.

    memtables         32   those that take commits, and those that are being flushed
    history_indexes   16   of unmerged history; memtables leave it more, or take of it: writers stop
                           when both have 48
    bases             21   of all tables: resident rows, caches of rows, images, overlays, vectors
                           above base; a half of it at most are pages of key runs
    lance              9   Lance's own caches, of all handles: 7.5 of indexes, 1.5 of metadata
    flushed            9   memtables that are in history, and stay as a cache
    recent_writes      6   keys that open transactions may conflict with
    read_ahead         3   what one scan reads ahead of its reader; at a URL 9, as requests there
                           take long, and who only reads has no recent writes

A scan's batches come on top, each of about a half of its `read_ahead`. Bounds that do not grow with
the memory, because more of it is no faster, and those below which a scan is slower, stand here too.
"""

from __future__ import annotations

from typing import Self

import msgspec

_RECENT_WRITES_MAX = 64 << 20
# With Lance's defaults a scan held 700 MB of a table with rows of 2 kB and 260 of one with 40 B,
# with the upper bounds 390 and 140 (much of it free memory that malloc keeps), and it was no slower
# on two cores (measured); with the lower ones it takes the same seconds of a core, too.
_READ_AHEAD_MIN, _READ_AHEAD_MAX = 4 << 20, 32 << 20
_BATCH_MIN, _BATCH_MAX = 1 << 20, 16 << 20


class LanceShares(msgspec.Struct, frozen=True):
    """What Lance may hold, in bytes: its caches for all handles, and each scan."""

    index_cache: int
    metadata_cache: int
    read_ahead: int
    read_ahead_far: int
    batch: int

    @property
    def caches(self) -> int:
        """Both caches."""
        return self.index_cache + self.metadata_cache


class Shares(msgspec.Struct, frozen=True):
    """See the module; all in bytes."""

    memtables: int
    history_indexes: int
    bases: int
    flushed: int
    recent_writes: int
    lance: LanceShares

    @classmethod
    def of(cls, memory_bytes_max: int) -> Self:
        """Divide `memory_bytes_max`."""
        ahead = _within(memory_bytes_max // 32, _READ_AHEAD_MIN, _READ_AHEAD_MAX)
        recent_writes = min(memory_bytes_max // 16, _RECENT_WRITES_MAX)
        lance = LanceShares(
            index_cache=memory_bytes_max * 5 // 64,
            metadata_cache=memory_bytes_max // 64,
            read_ahead=ahead,
            read_ahead_far=ahead + recent_writes,
            batch=_within(memory_bytes_max // 64, _BATCH_MIN, _BATCH_MAX),
        )
        return cls(
            memtables=memory_bytes_max // 3,
            history_indexes=memory_bytes_max // 6,
            bases=memory_bytes_max * 7 // 32,
            flushed=memory_bytes_max * 3 // 32,
            recent_writes=recent_writes,
            lance=lance,
        )


def _within(value: int, least: int, most: int) -> int:
    return max(least, min(value, most))
