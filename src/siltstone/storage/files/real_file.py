"""Real file: a descriptor of the system, with the calls that the log needs of it."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

Buffer = bytes | bytearray | memoryview
_BUFFERS_PER_CALL_MAX = 1024  # IOV_MAX of Linux
_RWF_DSYNC: int = getattr(os, "RWF_DSYNC", 0)  # 0: a C library without pwritev2
_REFUSED = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
_BLOCK_BYTES = 4096  # what O_DIRECT reads: whole blocks of the device, of 512 or 4096 bytes


class RealFile:
    """A descriptor. Used by one thread at a time."""

    def __init__(self, path: Path | str, flags: int, at: int | None = None) -> None:
        """`at`: the handle of the directory that `path` is relative to."""
        self._fd = os.open(path, flags | os.O_CLOEXEC, 0o666, dir_fd=at)

    def pwrite(self, data: Buffer, offset: int) -> None:
        written = os.pwrite(self._fd, data, offset)
        size = len(data) if type(data) is bytes else memoryview(data).nbytes
        if written != size:  # a nearly full disk, a signal: the rest says which
            self._write_rest([memoryview(data).cast("B")], written, offset)

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        if len(buffers) == 1:  # most commits
            RealFile.pwrite(self, buffers[0], offset)
            return
        for start in range(0, len(buffers), _BUFFERS_PER_CALL_MAX):
            part = buffers[start : start + _BUFFERS_PER_CALL_MAX]
            written = os.pwritev(self._fd, part, offset)
            size = sum(memoryview(each).nbytes for each in part)
            if written != size:
                self._write_rest([memoryview(b).cast("B") for b in part], written, offset)
            offset += size

    def pwritev_synced(self, buffers: Sequence[Buffer], offset: int) -> bool:
        if not _RWF_DSYNC:
            return False
        if len(buffers) > _BUFFERS_PER_CALL_MAX:
            self.pwritev(buffers, offset)
            self.sync()
            return True
        try:
            written = os.pwritev(self._fd, buffers, offset, _RWF_DSYNC)
        except OSError as error:
            if error.errno in _REFUSED:
                return False
            raise
        size = 0
        for each in buffers:
            size += len(each) if type(each) is bytes else memoryview(each).nbytes
        if written != size:
            self._write_rest([memoryview(b).cast("B") for b in buffers], written, offset)
            self.sync()
        return True

    def _write_rest(self, buffers: Sequence[memoryview], written: int, offset: int) -> None:
        """Write what a short write left of `buffers`, which begin at `offset`."""
        for buffer in buffers:
            skip = min(written, len(buffer))
            written -= skip
            rest, at = buffer[skip:], offset + skip
            while rest:
                count = os.pwrite(self._fd, rest, at)
                if count == 0:
                    raise OSError(errno.EIO, "a write wrote nothing")
                rest, at = rest[count:], at + count
            offset += len(buffer)

    def pread(self, size: int, offset: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        while len(data) < size:
            more = os.pread(self._fd, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def pread_stored(self, size: int, offset: int) -> bytes:
        if not size:
            return b""
        first = offset - offset % _BLOCK_BYTES
        length = offset - first + size
        with mmap.mmap(-1, length + -length % _BLOCK_BYTES) as blocks:
            try:
                count = self._read_direct(blocks, first)
            except OSError as error:
                if error.errno not in _REFUSED:
                    raise
                return self.pread(size, offset)
            data = blocks[offset - first : min(count, length)]
        if 0 < len(data) < size:
            data += self.pread_stored(size - len(data), offset + len(data))
        return data

    def _read_direct(self, blocks: mmap.mmap, offset: int) -> int:
        """Read around the page cache, which is written first; return how much (open(2))."""
        flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
        fcntl.fcntl(self._fd, fcntl.F_SETFL, flags | os.O_DIRECT)
        try:
            return os.preadv(self._fd, [blocks], offset)
        finally:
            fcntl.fcntl(self._fd, fcntl.F_SETFL, flags)

    def sync(self) -> None:
        if self._fd < 0:  # else a ValueError, which callers of files do not expect
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        os.fdatasync(self._fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
