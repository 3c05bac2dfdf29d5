"""Syncs: makes the files and folders of one pin durable, in parallel.

Nothing names the files yet, so their order does not matter; the caller waits before it names them.
Parallel fsyncs share a commit of the file system's journal: eight of them took 12 ms one after the
other, and 2 ms in parallel (ext4, a busy disk).

Lock: one, over the set of folders that are known to be in a durable folder.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

from siltstone.process.threads import submitted
from siltstone.storage.files.files import Files

WORKERS = 8
_ANCHORED_MAX = 4_096


class Syncs:
    """See the module. One per open store; any thread."""

    def __init__(self, root: Path, files: Files) -> None:
        self._root, self._files = root, files
        self._lock = threading.Lock()
        self._anchored: set[Path] = set()
        self._pool: ThreadPoolExecutor | None = None

    @contextmanager
    def all(self) -> Generator[Syncing]:
        """Wait at the end of the block until all syncs of the block are done.

        Raises:
            OSError: The first error of a sync; all syncs have ended.
        """
        syncing = Syncing(self._sync)
        try:
            yield syncing
        finally:
            wait(syncing.work)
        for future in syncing.work:
            future.result()
        with self._lock:
            if len(self._anchored) >= _ANCHORED_MAX:
                self._anchored = set()
            self._anchored |= syncing.folders

    def _sync(
        self, syncing: Syncing, files: Sequence[Path], others: Iterable[Path], *, is_known: bool
    ) -> None:
        folders = {path.parent for path in (*files, *others)}
        levels = {level for folder in folders for level in self._levels(folder)}
        with self._lock:
            fresh = levels - self._anchored if is_known else levels
            if self._pool is None:
                self._pool = ThreadPoolExecutor(WORKERS, "siltstone-sync")
        names = sorted(folders | {level.parent for level in fresh})
        syncing.work += [submitted(self._pool, self._files.sync_file, path) for path in files]
        syncing.work += [submitted(self._pool, self._files.sync_dir, path) for path in names]
        syncing.folders |= fresh

    def _levels(self, folder: Path) -> Iterator[Path]:
        while folder != self._root:
            yield folder
            folder = folder.parent


class Syncing:
    """The running syncs of one pin; more can be added."""

    def __init__(self, sync: Callable[..., None]) -> None:
        self._sync = sync
        self.work: list[Future[None]] = []
        self.folders: set[Path] = set()

    def begin(self, *files: Path, names: Iterable[Path] = (), is_known: bool) -> None:
        """Begin to sync files, and their names up to the root, and other `names` of them.

        `is_known`: a version of the dataset is pinned, so that nothing deletes its folders; then
        the folders above them are not synced again. Otherwise a folder that was created, deleted
        and created again would count as durable.
        """
        self._sync(self, files, names, is_known=is_known)
