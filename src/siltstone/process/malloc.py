"""Malloc: how much freed memory the C library of this process keeps.

glibc raises its thresholds with what is freed, and has up to eight arenas for each core, so the
batches of one scan stay in the process: after three scans of a million rows it had grown by 121 to
129 MB, with these bounds by 26 to 29. Arrow's own allocator, mimalloc, keeps buffers as well: after
400,000 upserts in 20 commits, a merge and a scan the bounds leave 460 MiB of resident memory, and
350 if Arrow takes its buffers from malloc, too. They are the process's, not a store's:
`tune_malloc` is an option that a host asks for. On another C library nothing is done.
"""

from __future__ import annotations

import ctypes
import functools

import pyarrow as pa

_THRESHOLD_BYTES, _ARENAS = 1 << 20, 2
# The parameters of mallopt(3), in <malloc.h>.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_BOUNDS = (
    (_MMAP_THRESHOLD, _THRESHOLD_BYTES),
    (_TRIM_THRESHOLD, _THRESHOLD_BYTES),
    (_ARENA_MAX, _ARENAS),
)


@functools.cache
def bound() -> None:
    """Bound what this process keeps, from now on; Arrow's buffers come from malloc, too."""
    library = _library()
    if library is not None:
        for parameter, value in _BOUNDS:
            library.mallopt(parameter, value)
        pa.set_memory_pool(pa.system_memory_pool())


def trim() -> None:
    """Give back what is free now."""
    library = _library()
    if library is not None:
        library.malloc_trim(0)


@functools.cache
def _library() -> ctypes.CDLL | None:
    library = ctypes.CDLL(None)
    is_glibc = hasattr(library, "gnu_get_libc_version") and hasattr(library, "mallopt")
    return library if is_glibc else None
