"""Lance's caches: one session, with bounds, for all versions that a process opens of a store.

A session has opened indexes and metadata by the place of a dataset and the number of a version.
Two versions may have one number: those of two transactions, of which one lost, and what a base is
with and without its deletion files. So a session serves one manifest for each place and number, and
another manifest gets a small session of its own.

`_lock` guards which manifests the session has; it is never held over I/O.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from siltstone.process.shares import LanceShares
from siltstone.storage.lance.files.staged_catalog import lance_module

_ALONE_BYTES = 1 << 20
_SERVED_MAX = 4096


class LanceCaches:
    """See the module; threads may share it.

    Args:
        shares: The bounds.
        served_max: After so many versions a new session begins. The one before ends with the
            versions that were opened by it.
    """

    def __init__(self, shares: LanceShares, *, served_max: int = _SERVED_MAX) -> None:
        self._shares, self._served_max = shares, served_max
        self._lock = threading.Lock()
        self._session: Any = None
        self._served: dict[tuple[Path, int], Path] = {}

    @property
    def nbytes(self) -> int:
        """The bytes that the session holds."""
        session = self._session
        return 0 if session is None else session.size_bytes()

    def session(self, location: Path, version: int, manifest: Path) -> Any:
        """Return the session by which to open the version whose manifest is at a path."""
        shares, place = self._shares, (location, version)
        with self._lock:
            if self._session is None or len(self._served) >= self._served_max:
                self._session = _session(shares.index_cache, shares.metadata_cache)
                self._served = {}
            if self._served.setdefault(place, manifest) == manifest:
                return self._session
        return _session(_ALONE_BYTES, _ALONE_BYTES)


def _session(index_bytes_max: int, metadata_bytes_max: int) -> Any:
    return lance_module().Session(
        index_cache_size_bytes=index_bytes_max, metadata_cache_size_bytes=metadata_bytes_max
    )
