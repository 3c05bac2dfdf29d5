"""Reserve: space that a store keeps, so that it can open and vacuum on a full disk.

    <store>/RESERVE   unused bytes, as many as opening and vacuum need

    KEPT ──the disk is full──▶ RELEASED (unlinked) ──▶ the work is done ──▶ KEPT, as far as it goes
                                                      or refused

The size is a base for records, FLOOR and the files of Lance, plus the size of the log's newest
segment, which recovery writes again. So the log takes a larger segment only after the reserve has
grown. The bytes are random, so that the file system cannot compress them away.

If a released reserve cannot be restored completely, it takes the available space. If a crash leaves
it too small or removes its name, the next open creates it again. Before it is released, what the
user's cache has on the disk is deleted, and that may be enough. Only space depends on it: users
may delete it, and backups do not contain it. If it cannot be written (it belongs to another user,
whose vacuum created it), it is replaced; if that fails, a line in the log says so, and the store
continues without it.

Lock: `_lock`, held while creating it. Any process may release it: it is unlinked and created by
name.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TypeVar

from siltstone.errors import SiltstoneError, UnavailableError, in_words
from siltstone.storage.files.files import Files
from siltstone.storage.wal.segment_pool import NO_SPACE, SEGMENT_BYTES
from siltstone.telemetry.notices import NoticeLog

T = TypeVar("T")

RESERVE_NAME = "RESERVE"
BASE_BYTES = 4 << 20
_BASE_BYTES_MIN = 64 << 10
_NO_SPACE_WORDS = ("no space left", "os error 28", "quota exceeded", "os error 122")
_BLOCK_BYTES = 1 << 20
_CAUSES_MAX = 16
_log = NoticeLog(__name__)


def is_full(error: BaseException) -> bool:
    """Return whether `error` comes from a full disk; Lance reports that only in its text."""
    found: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if found is None:
            return False
        if isinstance(found, OSError) and found.errno in NO_SPACE:
            return True
        if any(words in str(found).lower() for words in _NO_SPACE_WORDS):
            return True
        found = found.__cause__ or found.__context__
    return False


class Reserve:
    """See the module."""

    def __init__(
        self,
        files: Files,
        root: Path,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        give_way: Callable[[], bool] = lambda: False,
    ) -> None:
        """`segment_bytes`: how large segments become at most; small ones get a smaller base, too.

        A frame that is larger than a segment is not provided for. `give_way` deletes what can be
        had again; False: there was nothing.
        """
        self._give_way = give_way
        self._files, self._root, self._path = files, root, root / RESERVE_NAME
        self._segment_bytes = segment_bytes
        self._base = max(_BASE_BYTES_MIN, min(BASE_BYTES, segment_bytes // 4))
        self._wanted = 0
        self._lock = threading.Lock()

    def keep(self, segment: int) -> None:
        """Reserve space for a log whose newest segment has `segment` bytes; never less than now.

        Raises:
            OSError: There is less space; the reserve takes all of it.
        """
        with self._lock:
            self._wanted = self._size_for(segment)
            self._make()

    def fit(self, segment: int) -> None:
        """As `keep`, but shrink it if it is far too large; errors are only logged."""
        with self._making_again():
            if self._size() > 2 * self._size_for(segment):
                self.release()
            self.keep(segment)

    @contextlib.contextmanager
    def _making_again(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            _log.warning("%s cannot be created again, the disk is full: %s", self._path, error)

    def release(self) -> bool:
        """Release the space to the file system; False: there was no reserve."""
        with self._lock:
            size = self._size()
            self._wanted = max(size, self._wanted)
            with contextlib.suppress(OSError):
                self._files.unlink(self._path)
                return size > 0
        return False

    def lend(self, work: Callable[[bool], T]) -> T:
        """Do `work(False)`; if the disk is full, release the space, and do `work(True)`.

        Raises:
            UnavailableError: The disk is full, and there was no reserve, or too little.
        """
        try:
            return self._before_it_is_lent(work)
        except (SiltstoneError, OSError) as error:
            if not is_full(error):
                raise
            if not self.release():
                raise self._refusal(error) from error
            _log.warning("%s is released, the disk is full: %s", self._path, in_words(error))
        try:
            return work(True)
        except (SiltstoneError, OSError) as error:
            if not is_full(error):
                raise
            raise self._refusal(error) from error
        finally:
            with self._making_again(), self._lock:
                self._make()

    def _before_it_is_lent(self, work: Callable[[bool], T]) -> T:
        try:
            return work(False)
        except (SiltstoneError, OSError) as error:
            if not (is_full(error) and self._give_way()):
                raise
        return work(False)

    def _make(self) -> None:
        """Have it as large as is wanted, as far as anything but space is concerned.

        Raises:
            OSError: There is no space.
        """
        try:
            try:
                self._fill(self._wanted)
            except PermissionError:
                self._files.unlink(self._path)
                self._fill(self._wanted)
        except OSError as error:
            if is_full(error):
                raise
            _log.warning(
                "%s cannot be created; on a full disk the store will need space: %s",
                self._path,
                error,
            )

    def _refusal(self, error: Exception) -> UnavailableError:
        return UnavailableError(
            f"the disk of {self._root} is full, and the store's reserve is used up; nothing was"
            f" lost: make space there and try again ({in_words(error)})"
        )

    def _size_for(self, segment: int) -> int:
        return self._base + min(segment, self._segment_bytes)

    def _size(self) -> int:
        try:
            return self._files.size(self._path)
        except FileNotFoundError:
            return 0

    def _fill(self, nbytes: int) -> None:
        """Write it up to `nbytes`, in place: what it holds already is never given away for that."""
        if self._size() >= nbytes:
            return
        with contextlib.closing(self._files.open(self._path, create=True)) as file:
            for at in range(file.size(), nbytes, _BLOCK_BYTES):
                size = min(_BLOCK_BYTES, nbytes - at)
                file.pwrite(random.Random(at).randbytes(size), at)  # noqa: S311 - no secret
            file.sync()
