"""Retire: deletes frames that a record of the bucket holds; fences and claims stay for ever.

A fence that is gone lets the put of an owner that slept succeed. What is below the floor is a frame
of the log, or the garbage of one that was fenced: numbers go on over epochs.

Lock: none; one thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from siltstone.formats.log.log_object import LogPlace
from siltstone.storage.objects.log.log import NamedObject, ObjectLog

RETIRED_MAX = 4096
"""So many objects are deleted by one call; the next one goes on."""


class Retirer:
    """Deletes what lies below the floor of a record that is in the bucket."""

    def __init__(self, log: ObjectLog) -> None:
        self._log = log
        self._done = ""

    def retire(self, floor: LogPlace, most: int = RETIRED_MAX) -> int:
        """Delete frames below `floor`, side by side; return how many.

        `floor` is that of a record which is in the bucket: nothing else keeps these commits.

        Raises:
            UnavailableError: The server does not answer, or refuses; call again later.
        """
        found = list(islice(self._below(floor), most))
        self._log.objects.delete(named.key for named in found)
        if found:
            self._done = found[-1].key
        return len(found)

    def _below(self, floor: LogPlace) -> Iterator[NamedObject]:
        """Yield frames and their parts; a later epoch has none below, but in what follows it."""
        for named in self._log.names(self._done):
            if named.place.epoch > floor.epoch:
                return
            if named.place.number < floor.number and not named.is_fence:
                yield named
