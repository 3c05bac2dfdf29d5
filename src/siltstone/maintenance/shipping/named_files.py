"""Named files: what the commits of a frame name is in the bucket before the frame is.

A bulk commit names staged files, and a step of a plain table a whole version of it. Names are never
used twice, so an object with the key and the size is the file.

Lock: none; one thread.
"""

from __future__ import annotations

from collections.abc import Iterable

from siltstone.formats.inventory import InventoryFile
from siltstone.formats.log.frame import Logged
from siltstone.maintenance.backup.backup import named_by
from siltstone.maintenance.backup.upload import Uploader
from siltstone.storage.objects.objects import Objects, side_by_side
from siltstone.storage.site import Site

KNOWN_MAX = 1 << 17
"""So many names of files are remembered; what is forgotten costs a request."""


class NamedFiles:
    """See the module."""

    def __init__(self, site: Site, objects: Objects) -> None:
        self._reader, self._objects = site.tables.reader, objects
        self._uploader = Uploader(site.files, site.root, objects)
        self._known: set[str] = set()

    def put(self, frames: Iterable[Logged]) -> int:
        """Have the files in the bucket that commits name; return how many were put.

        Raises:
            CorruptionError: One is damaged, or gone.
            UnavailableError: The server does not answer, or refuses.
        """
        named = {file.path: file for pin in named_by(frames) for file in self._reader.files(pin)}
        new = [file for path, file in named.items() if path not in self._known]
        put = sum(is_put for _, is_put in side_by_side(self._have, new)) if new else 0
        if len(self._known) + len(new) > KNOWN_MAX:
            self._known.clear()
        self._known.update(file.path for file in new)
        return put

    def _have(self, file: InventoryFile) -> bool:
        head = self._objects.head(file.path)
        if head is not None and head.size == file.size:
            return False
        self._uploader.put(file)
        return True
