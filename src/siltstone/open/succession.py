"""Succession: a process that wants to own a store waits for the owner that ends.

    own ─▶ refused: LOCK says that the owner ends ─▶ say so (`Wish`), wait ─▶ own, again
                    LOCK says nothing: it changes hands ─▶ wait a moment ─▶ own, again
                    anything else ─▶ OwnedError

An owner that ends looks for the wish before each step of its upkeep, and kills a child for it. The
wish is said for as long as a pause lasts, which is nearly all the time.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from siltstone.storage.files.files import Files
from siltstone.storage.manifest.ownership import Wish, read_holder

SILENT_S = 2.0
"""How long LOCK may say nothing: an owner writes it right after it has the lock."""
_PAUSE_S = 0.05
_PAUSE_S_MAX = 0.2


class Succession:
    """One attempt to own a store, over all its tries."""

    def __init__(self, files: Files, root: Path, timeout_s: float) -> None:
        self._files, self._root = files, root
        self._wish = Wish(files, root)
        self._timeout_s, self._pause_s = timeout_s, _PAUSE_S
        self._begun = time.monotonic()
        self._silent_until = self._begun + SILENT_S

    def waits(self) -> bool:
        """Pause if another try to own the store is due; False: it is owned, or the wait is over."""
        holder, now = read_holder(self._files, self._root), time.monotonic()
        is_ending = holder.ends and holder.pid != os.getpid()
        if is_ending:
            self._silent_until = now + SILENT_S
        is_coming = is_ending or (holder.pid is None and now < self._silent_until)
        if not is_coming or now - self._begun >= self._timeout_s:
            return False
        try:
            if is_ending:
                self._wish.say()
            time.sleep(self._pause_s)
        finally:
            self._wish.withdraw()
        self._pause_s = min(2 * self._pause_s, _PAUSE_S_MAX)
        return True
