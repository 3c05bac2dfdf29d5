"""Regions: memory of this process that the JVM maps, in which the batches of a task lie.

    ┌── slot 0 ──┬── slot 1 ──┬── slot 2 ──┐   one memfd; the JVM reads a slot while others are
    └────────────┴────────────┴────────────┘   filled, and says when it is done with the oldest

A region belongs to one connection. It never changes its size (seals), so the JVM can never touch
memory that is gone; a row that is larger than a slot gets a larger region. The memory of all
regions together is bounded.

Lock: one, for the sum of their sizes.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import itertools
import mmap
import os
import threading
from dataclasses import dataclass

SLOTS = 3
SLOT_BYTES = 4 << 20
ALIGNMENT = 64
MEMORY_BYTES = 1 << 30
MEMORY = "spark.siltstone.memory"
_serials = itertools.count()


class MemoryBudget:
    """How much memory regions may take together; see the module."""

    def __init__(self, bytes_max: int = MEMORY_BYTES) -> None:
        self.bytes_max = bytes_max
        self._lock = threading.Lock()
        self._used = 0

    @property
    def left(self) -> int:
        """How many bytes regions may have besides those that they have."""
        return self.bytes_max - self._used

    def region_of(self, slot_bytes: int = SLOT_BYTES) -> Region | None:
        """Return a new region with slots of at least `slot_bytes`; None: there is no memory.

        None also where the system has no sealed memory.
        """
        slot = -(-slot_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        size = SLOTS * slot
        with self._lock:
            if size > self.left:
                return None
            self._used += size
        try:
            return Region.made(self, slot)
        except (OSError, AttributeError):
            self.free(size)
            return None

    def free(self, size: int) -> None:
        """Take back the memory of a region."""
        with self._lock:
            self._used -= size


@dataclass(slots=True, eq=False)
class Region:
    """See the module. One thread uses it."""

    budget: MemoryBudget
    slot_bytes: int
    descriptor: int
    memory: mmap.mmap
    serial: int
    address: int

    @classmethod
    def made(cls, budget: MemoryBudget, slot_bytes: int) -> Region:
        """Return a region whose slots have `slot_bytes`, a multiple of a page.

        Raises:
            OSError, AttributeError: The system has no sealed memory, or none left.
        """
        descriptor = os.memfd_create("siltstone", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, SLOTS * slot_bytes)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
            memory = mmap.mmap(descriptor, SLOTS * slot_bytes)
        except BaseException:
            os.close(descriptor)
            raise
        whole = (ctypes.c_char * 1).from_buffer(memory)
        address = ctypes.addressof(whole)
        del whole  # else the memory could never be closed
        return cls(budget, slot_bytes, descriptor, memory, next(_serials), address)

    @property
    def size(self) -> int:
        """How many bytes all slots have."""
        return SLOTS * self.slot_bytes

    def place(self) -> dict[str, object]:
        """Return where the JVM finds the memory; `region` tells it from an earlier one there."""
        path = f"/proc/{os.getpid()}/fd/{self.descriptor}"
        return {"path": path, "size": self.size, "region": self.serial}

    def close(self) -> None:
        """Give the memory up.

        Where the JVM still has it mapped it reads zeros: a task that ended early releases it
        only when its garbage is collected, as a thread may be reading.
        """
        with contextlib.suppress(OSError):  # then its pages are freed when the JVM unmaps it
            self.memory.madvise(mmap.MADV_REMOVE)
        self.memory.close()
        os.close(self.descriptor)
        self.budget.free(self.size)
