"""Slots: how many children of all stores of a user may work on one machine at once.

    <private directory>/slot-<n>   flock'd by a child from its start to its end

A program with many stores, or many programs, would start a child for each. The owner takes a slot,
and the child inherits the descriptor: the kernel frees it whenever the child ends. Where there is
no private directory, nothing is counted.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from siltstone.paths import private_folders
from siltstone.storage.files.files import RealFiles
from siltstone.storage.files.locks import Lock

SLOTS = max(2, len(os.sched_getaffinity(0)))


class Slot(msgspec.Struct, frozen=True):
    """The right to run a child; without a lock nothing is counted."""

    lock: Lock | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What the child has to inherit."""
        return () if self.lock is None else (self.lock.fd,)

    def release(self) -> None:
        """Close the owner's copy; a child that was started has its own."""
        if self.lock is not None:
            self.lock.release()


def take_slot(folder: Path | None = None, count: int = SLOTS) -> Slot | None:
    """Return a slot; None if all of them are taken.

    Args:
        folder: Where the slots are; by default the private directory of the user.
        count: How many there are.
    """
    found = next(private_folders([]), None) if folder is None else folder
    if found is None:
        return Slot()
    try:
        locks = (RealFiles().lock(found / f"slot-{n}", create=True) for n in range(count))
        lock = next((each for each in locks if each is not None), None)
    except OSError:
        return Slot()
    return None if lock is None else Slot(lock)
