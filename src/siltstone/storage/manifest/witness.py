"""Witness: a file by which a client on another machine sees that a directory there is the store's.

    client: a sign, please ─▶ server: a fresh one into <root>/WITNESS, and as the answer
    client: reads <its own path>/WITNESS; the sign is in it, or that is another directory

Device and inode say it on one machine alone: two machines give one shared directory different
devices, and two copies of a disk the same ones. A copy of the store has old signs. `_lock` guards
the signs; a file is written while it is held, so that the newest file has the newest signs.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from pathlib import Path

from siltstone.storage.files.files import Files, refusals

WITNESS = "WITNESS"
_SIGNS_MAX = 64
"""So many clients may look at the same moment."""


class Witness:
    """The signs of one server; any thread."""

    def __init__(self, files: Files, root: Path) -> None:
        self._files, self._path = files, root / WITNESS
        self._lock = threading.Lock()
        self._signs: deque[str] = deque(maxlen=_SIGNS_MAX)

    def sign(self) -> str:
        """Return a sign that was never given before; the file has it.

        Raises:
            UnavailableError: The file system refuses.
        """
        sign = secrets.token_hex(16)
        with self._lock, refusals(f"cannot write {self._path}"):
            self._signs.append(sign)
            self._files.replace(self._path, "\n".join(self._signs).encode(), durable=False)
        return sign
