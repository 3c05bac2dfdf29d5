"""Faulty files: the real file system, that refuses a step when it is told to, or is slow."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from pathlib import Path

from siltstone.storage.files.files import Buffer, File, Lock, RealFile, RealFiles


class Faults:
    """Which step fails, with what; `count` counts the steps since the last order."""

    def __init__(self) -> None:
        self.count = 0
        self.sync_s = 0.0
        self._at: int | None = None
        self._code, self._is_sticky = errno.EIO, False

    def order(self, at: int, code: int, *, is_sticky: bool) -> None:
        """Have the step `at` from now fail with errno `code`, and all behind it if `is_sticky`."""
        self.count, self._at, self._code, self._is_sticky = 0, at, code, is_sticky

    def clear(self) -> None:
        self._at = None

    def step(self) -> None:
        self.count += 1
        if (
            self._at is None
            or self.count < self._at
            or (self.count > self._at and not self._is_sticky)
        ):
            return
        raise OSError(self._code, os.strerror(self._code))

    def sync(self) -> None:
        if self.sync_s:
            time.sleep(self.sync_s)
        self.step()


class FaultyFile(RealFile):
    """A descriptor whose reads, writes and syncs may fail."""

    def __init__(self, path: Path, flags: int, faults: Faults) -> None:
        faults.step()
        super().__init__(path, flags)
        self._faults = faults

    def pwrite(self, data: Buffer, offset: int) -> None:
        self._faults.step()
        super().pwrite(data, offset)

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        self._faults.step()
        super().pwritev(buffers, offset)

    def pwritev_synced(self, buffers: Sequence[Buffer], offset: int) -> bool:
        """Fail before the write, or behind it, where it may be durable or not."""
        self._faults.step()
        is_done = super().pwritev_synced(buffers, offset)
        self._faults.sync()
        return is_done

    def pread(self, size: int, offset: int) -> bytes:
        self._faults.step()
        return super().pread(size, offset)

    def sync(self) -> None:
        self._faults.sync()
        super().sync()


class FaultyFiles(RealFiles):
    """See the module. Whole operations are made of these small steps."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def open(
        self, path: Path, *, create: bool = False, new: bool = False, write: bool = True
    ) -> File:
        flags = os.O_RDWR if write else os.O_RDONLY
        flags |= os.O_CREAT if create else 0
        return FaultyFile(path, flags | os.O_CREAT | os.O_EXCL if new else flags, self._faults)

    def read(self, path: Path) -> bytes:
        self._faults.step()
        return super().read(path)

    def rename(self, old: Path, new: Path) -> None:
        self._faults.step()
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        self._faults.step()
        super().unlink(path)

    def link(self, old: Path, new: Path) -> None:
        self._faults.step()
        super().link(old, new)

    def sync_dir(self, path: Path) -> None:
        self._faults.sync()
        super().sync_dir(path)

    def sync_file(self, path: Path) -> None:
        self._faults.sync()
        super().sync_file(path)

    def list(self, path: Path) -> list[str]:
        self._faults.step()
        return super().list(path)

    def make_level(self, path: Path) -> None:
        self._faults.step()
        super().make_level(path)

    def lock(self, path: Path, *, shared: bool = False, create: bool = False) -> Lock | None:
        self._faults.step()
        return super().lock(path, shared=shared, create=create)
