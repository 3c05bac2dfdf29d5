"""Bucket files: the seam to the file system, over a store's objects, to be read alone.

    read, pread     a GET, of all or of blocks; some are kept: no object is ever changed
    an inventory    those below it come side by side: a reader of one reads them all
    size, list ...  a HEAD, a LIST
    writes          refused, as by a disk that is mounted to be read

A bucket has no second names of files (`kept_names`), so nobody asks the server for one. What is
absent is the server's answer, never an error of the network. A file that a record names is absent
when the bucket's vacuum took it, or when it is lost: `BucketLeases` knows which.

Lock: that of `_KeptBlocks` guards what is kept; it is never held over a request.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from siltstone.errors import SiltstoneError
from siltstone.formats import inventory
from siltstone.formats.manifest import PRIVATE_DIRECTORY
from siltstone.storage.bucket.bucket_leases import BucketLeases
from siltstone.storage.files.files import File, Files
from siltstone.storage.objects.objects import Objects, side_by_side
from siltstone.storage.tables.inventories import DIRECTORY
from siltstone.storage.tables.kept_names import KEPT

KEPT_BYTES_MAX = 32 << 20
BLOCK_BYTES = 64 << 10
"""A range is asked for in blocks: the foot of a file comes with its end, a page with others."""
_WHOLE = -1
_KEPT_AT_ONCE, _SIZES_MAX = 64, 100_000
_NAMES_OF_KEPT = f"/{PRIVATE_DIRECTORY}/{KEPT}/"


class _KeptBlocks:
    """Pieces of objects by key and place: at most `KEPT_BYTES_MAX` bytes, those used last.

    And the sizes of all objects that were looked at. An object that was read whole is one piece.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._nbytes = 0

    def get(self, key: str, block: int) -> bytes | None:
        with self._lock:
            found = self._blocks.get((key, block))
            if found is not None:
                self._blocks.move_to_end((key, block))
            return found

    def put(self, key: str, block: int, data: bytes) -> None:
        with self._lock:
            self._nbytes += len(data) - len(self._blocks.pop((key, block), b""))
            self._blocks[key, block] = data
            while self._nbytes > KEPT_BYTES_MAX:
                self._nbytes -= len(self._blocks.popitem(last=False)[1])

    def size_of(self, key: str) -> int | None:
        with self._lock:
            return self._sizes.get(key)

    def know_sizes(self, sizes: dict[str, int]) -> None:
        """Forget all objects, and know these sizes."""
        with self._lock:
            self._sizes, self._blocks, self._nbytes = sizes, OrderedDict(), 0

    def know_size(self, key: str, size: int) -> None:
        with self._lock:
            if len(self._sizes) >= _SIZES_MAX:
                self._sizes = {}
            self._sizes[key] = size


def _refuse(self: object, *given: object, **options: object) -> NoReturn:
    """Refuse what changes a file, or needs one of this machine; the first argument is its path."""
    del self, options
    raise OSError(errno.EROFS, "a store in a bucket is only read", *map(str, given[:1]))


class BucketFiles:
    """See the module: `Files` of the mirror at `root`. Threads may share it."""

    def __init__(self, root: Path, objects: Objects, leases: BucketLeases) -> None:
        self.root, self.objects, self._leases = root, objects, leases
        self._kept = _KeptBlocks()

    # --- reading

    def open(
        self, path: Path, *, create: bool = False, new: bool = False, write: bool = True
    ) -> File:
        if create or new or write:
            self.write(path)
        return _BucketFile(self, path)

    def read(self, path: Path) -> bytes:
        key = self._key(path)
        data = self._kept.get(key, _WHOLE)
        if data is None:
            data = self._whole(key)
            if key.startswith(f"{DIRECTORY}/"):
                self._read_below(key, data)
        return data

    def read_range(self, path: Path, size: int, offset: int) -> bytes:
        """Return the bytes of an object from `offset` on, fewer at its end.

        It asks for whole blocks, at once for all that are missing, and keeps them if they are few.
        """
        key = self._key(path)
        data = self._kept.get(key, _WHOLE)
        if data is not None:
            return data[offset : offset + size]
        known = self._kept.size_of(key)
        end = offset + size if known is None else min(offset + size, known)
        if offset >= end:
            return b""
        blocks = range(offset // BLOCK_BYTES, -(-end // BLOCK_BYTES))
        found = [self._kept.get(key, block) for block in blocks]
        missing = [block for block, piece in zip(blocks, found, strict=True) if piece is None]
        if missing:
            fetched = self._blocks(path, range(missing[0], missing[-1] + 1))
            found = [fetched.get(block, piece) for block, piece in zip(blocks, found, strict=True)]
        first = offset - blocks[0] * BLOCK_BYTES
        return b"".join(piece or b"" for piece in found)[first : first + size]

    def _blocks(self, path: Path, blocks: range) -> dict[int, bytes]:
        key, start = self._key(path), blocks[0] * BLOCK_BYTES
        found = self.objects.get_range(key, start, (blocks[-1] + 1) * BLOCK_BYTES)
        if found is None:
            self._leases.refuse_if_expired()
            raise _absent(path)
        self._kept.know_size(key, found.head.size)
        pieces = {
            block: found.data[at : at + BLOCK_BYTES]
            for block, at in zip(blocks, range(0, len(found.data), BLOCK_BYTES), strict=False)
        }
        if len(pieces) <= _KEPT_AT_ONCE:
            for block, piece in pieces.items():
                self._kept.put(key, block, piece)
        return pieces

    def list(self, path: Path) -> list[str]:
        prefix = self._prefix(path)
        below = (head.key[len(prefix) :] for head in self.objects.list_after(prefix))
        found = sorted({name.partition("/")[0] for name in below})
        if not found:
            raise _absent(path)
        return found

    def exists(self, path: Path) -> bool:
        key = self._key(path)
        return _NAMES_OF_KEPT not in f"/{key}/" and self._size(key) is not None

    def is_dir(self, path: Path) -> bool:
        return any(True for _ in self.objects.list_after(self._prefix(path)))

    def size(self, path: Path) -> int:
        found = self._size(self._key(path))
        if found is None:
            raise _absent(path)
        return found

    def look_at_all(self) -> int:
        """Have the sizes of all objects as they are now, by a list; return how many there are."""
        found = {head.key: head.size for head in self.objects.list_after("")}
        self._kept.know_sizes(found)
        return len(found)

    def _size(self, key: str) -> int | None:
        known = self._kept.size_of(key)
        if known is None:
            head = self.objects.head(key)
            if head is None:
                return None
            known = head.size
            self._kept.know_size(key, known)
        return known

    def mtime(self, path: Path) -> float:
        head = self.objects.head(self._key(path))
        if head is None:
            raise _absent(path)
        return head.modified

    def filesystem(self, path: Path) -> str:
        del path
        return self.objects.url.partition(":")[0]

    def below(self, root: Path) -> Files:
        del root
        return self

    def are_in_place(self) -> bool:
        return True

    def let_go(self) -> None:
        """Release what is leased: the store is closed."""
        self._leases.end()

    def _whole(self, key: str) -> bytes:
        found = self.objects.get(key)
        if found is None:
            self._leases.refuse_if_expired()
            raise _absent(self.root / key)
        self._kept.know_size(key, len(found.data))
        self._kept.put(key, _WHOLE, found.data)
        return found.data

    def _read_below(self, key: str, data: bytes) -> None:
        """Have the inventories below one; who reads them next says what is wrong with them."""
        with suppress(SiltstoneError, OSError):
            names = inventory.decode(data, key).below
            missing = [name for name in names if self._kept.get(name, _WHOLE) is None]
            for _ in side_by_side(self._whole, missing) if missing else ():
                pass

    def _key(self, path: Path) -> str:
        return "" if path == self.root else path.relative_to(self.root).as_posix()

    def _prefix(self, path: Path) -> str:
        key = self._key(path)
        return f"{key}/" if key else ""

    write = create_if_absent = replace = rename = unlink = link = clone = _refuse
    mkdir = make_level = restrict = rmdir = sync_dir = sync_file = preallocate = _refuse
    identity = lock = temporary = _refuse


class _BucketFile:
    """An object that is read in ranges; it is not looked for before the first one."""

    def __init__(self, files: BucketFiles, path: Path) -> None:
        self._files, self._path = files, path

    def pread(self, size: int, offset: int) -> bytes:
        return self._files.read_range(self._path, size, offset)[:size]

    def pread_stored(self, size: int, offset: int) -> bytes:
        return self.pread(size, offset)

    def size(self) -> int:
        return self._files.size(self._path)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    pwrite = pwritev = pwritev_synced = sync = _refuse


def _absent(path: Path) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
