"""Public names: which versions and files other programs find by path.

`_lock` guards the memos of what this process has shown and united; it is never held over I/O.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from siltstone.formats.manifest import Pin
from siltstone.storage.lance.files.dataset_files import DatasetFiles
from siltstone.storage.lance.files.errors import translated
from siltstone.storage.tables import kept_names as kept
from siltstone.storage.tables import promotion

_SHOWN_MAX = 100_000
_UNITED_MAX = 10_000
_HINT_STEPS_MAX = 32


class LanceNames:
    """See `tables.PublicNames`; threads may share it."""

    def __init__(self, data: DatasetFiles) -> None:
        self._root, self._files = data.root, data.files
        self._lock = threading.Lock()
        self._shown: set[str] = set()
        self._shown_upto: dict[str, str] = {}
        self._hinted: dict[Path, tuple[int, int]] = {}
        self._united: dict[str, tuple[float, ...]] = {}

    def show(self, folder: str, pins: Iterable[Pin], *, is_whole: bool = False) -> None:
        """See `tables.PublicNames.show`.

        Not synced: the first open after a power cut shows all of them again.
        """
        where = self._root / folder
        upto = self._shown_upto.get(folder)
        # Commits of a table show their own versions as they end, in any order: that one is shown
        # says nothing of those below it, unless all of them were looked at.
        unsure = list(itertools.takewhile(lambda pin: pin.path != upto, pins))
        fresh = [pin for pin in unsure if pin.path not in self._shown]
        if fresh:
            wanted = {pin.version: self._root / pin.path for pin in fresh}
            with translated(where, is_reading=False):
                promotion.link(
                    self._files,
                    where,
                    wanted,
                    max(wanted),
                    before_aside=partial(kept.unite, self._files, self._root, folder),
                    durable=False,
                )
                self._hint(where, sorted(wanted))
        with self._lock:
            if len(self._shown) >= _SHOWN_MAX:
                self._shown, self._shown_upto = set(), {}
            self._shown.update(pin.path for pin in fresh)
            if is_whole and unsure:
                self._shown_upto[folder] = unsure[0].path

    def promote(self, pins: Sequence[Pin], newest: Pin) -> None:
        """See `tables.PublicNames.promote`."""
        where = self._root / newest.folder
        wanted = {pin.version: self._root / pin.path for pin in (*pins, newest)}
        with translated(where, is_reading=False):
            # Before a manifest gets or loses its name: a clean-up takes what none of them names.
            kept.unite(self._files, self._root, newest.folder)
            promotion.link(self._files, where, wanted, newest.version)
            # Also what a client has tagged: without our name for it, it would pass for another's.
            promotion.unlink_stale(self._files, where, set(wanted), newest.version)
            if promotion.clear(self._files, where):
                promotion.hint(self._files, where, newest.version)

    def set_aside(self, folder: str, above: int) -> list[tuple[int, str]]:
        """See `tables.PublicNames.set_aside`."""
        where = self._root / folder
        with translated(where, is_reading=False):
            if not promotion.is_followed(self._files, where, above):
                return []
            kept.unite(self._files, self._root, folder)  # of what is set aside, too
            found = promotion.clear(self._files, where, above)
        return [(version, str(path.relative_to(self._root))) for version, path in found]

    def unite(self, folder: str) -> None:
        """See `tables.PublicNames.unite`; unchanged datasets are skipped."""
        where = self._root / folder
        with translated(where, is_reading=False):
            found = kept.changed(self._files, self._root, folder)
            if found is None or found == self._united.get(folder):
                return
            kept.unite(self._files, self._root, folder)
        if max(found) < time.time() - kept.TICK_S:  # as it was before: our links change it, too
            with self._lock:
                if len(self._united) >= _UNITED_MAX:
                    self._united = {}
                self._united[folder] = found

    def unite_all(self) -> None:
        """See `tables.PublicNames.unite_all`."""
        with translated(self._root, is_reading=False):
            for folder in kept.folders(self._files, self._root):
                kept.unite(self._files, self._root, folder)

    def lacking(self, paths: Iterable[str]) -> tuple[list[str], list[str]]:
        """See `tables.PublicNames.lacking`."""
        return kept.lacking(self._files, self._root, paths)

    def _hint(self, where: Path, versions: Sequence[int]) -> None:
        """Hint at the newest version, unless it is found from the last hint by a few steps.

        To put a file in the place of another one makes ext4 write it out at once: 5 ms.
        """
        hinted, last = self._hinted.get(where, (0, 0))
        newest = versions[-1]
        follows = list(versions) == list(range(last + 1, newest + 1))
        if not follows or not hinted or newest - hinted >= _HINT_STEPS_MAX:
            promotion.hint(self._files, where, newest)
            hinted = newest
        self._hinted[where] = (hinted, newest)
