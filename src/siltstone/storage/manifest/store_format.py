"""Store format: raises the format of a store that this process owns, before it is needed.

    require(2) ─▶ a record of format 2 is durable ─▶ the first frame that needs format 2

An older siltstone asks the newest record first (`format_check`), and refuses the store by name. A
crash between the record and the frame leaves a store of format 2 without anything of it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from siltstone.errors import FencedError
from siltstone.formats.manifest import Record
from siltstone.storage.manifest.manifest_store import ManifestStore


class StoreFormat:
    """The format of one owned store.

    No lock: it only rises, by one assignment, and two threads that raise it publish one record.
    """

    def __init__(
        self, manifests: ManifestStore, record: Record, require_in_place: Callable[[], None]
    ) -> None:
        self._manifests, self._require_in_place = manifests, require_in_place
        self._epoch, self._format = record.epoch, record.format

    def require(self, level: int) -> None:
        """Return when a durable record has at least the format `level`.

        Raises:
            FencedError: Another epoch owns the store.
            BusyError, UnavailableError: As `ManifestStore.publish`. Nothing may be written that
                needs the format.
        """
        if level <= self._format:
            return
        self._require_in_place()

        def raised(newest: Record) -> Record:
            if newest.epoch != self._epoch:
                raise FencedError(self._epoch, newest.epoch)
            if newest.format >= level:
                return newest
            return msgspec.structs.replace(newest, format=level)

        self._format = self._manifests.publish(raised, base=self._manifests.newest()).format
