"""Writer: the one process that appends to a log in a bucket; one put is in flight.

    append ─▶ parts, if it is large ─▶ put if absent ─▶ made: all of it, and all before it, is there
                                            │ a fence has the number: FencedError, nothing is there
                                            └ no answer: UnavailableError; `again` repeats the put

A frame that had no answer may be there, or be there in a minute. Until it is known nothing else is
put, and it is repeated with the same bytes under the same number, so what lands late is itself.

Lock: none; one thread at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from siltstone.errors import FencedError
from siltstone.formats.log import log_object as formats
from siltstone.formats.log.frame import Buffer
from siltstone.formats.log.log_object import PART_BYTES, Kind, LoggedGroup, LogPlace
from siltstone.storage.objects.log.log import ObjectLog
from siltstone.storage.objects.objects import side_by_side
from siltstone.units import require


class LogWriter:
    """See the module. `at` is the next place; what lies before it is there."""

    def __init__(self, log: ObjectLog, at: LogPlace, previous: int, token: bytes) -> None:
        """Go on at `at`, behind the object with the checksum `previous`; see `claim.take_over`."""
        self._log, self.at, self._previous, self._token = log, at, previous, token
        self._pending: tuple[bytes, int, list[bytes]] | None = None

    @property
    def is_in_doubt(self) -> bool:
        """Whether a frame had no answer yet: then `again` comes next."""
        return self._pending is not None

    def append(self, groups: Sequence[LoggedGroup]) -> LogPlace:
        """Put one frame with commits that follow those before it; return its place.

        Raises:
            FencedError: A later epoch ended this one; the commits are not in the log.
            UnavailableError: No answer; see `again`.
            CorruptionError: Bytes that nobody put are at its place.
        """
        require(self._pending is None, "a frame is in doubt")
        buffers = formats.encode_groups(groups)
        seqs = groups[0].first_seq, groups[-1].last_seq
        if sum(memoryview(each).nbytes for each in buffers) <= PART_BYTES:
            self._pending = *self._encoded(Kind.FRAME, seqs, buffers), []
        else:
            parts = formats.parted(buffers)
            self._pending = *self._encoded(Kind.PARTED, seqs, [formats.encode_parts(parts)]), parts
        return self.again()

    def again(self) -> LogPlace:
        """Put the frame that had no answer. Result and errors as of `append`."""
        require(self._pending is not None, "no frame is in doubt")
        assert self._pending is not None
        data, checksum, parts = self._pending
        named = ((self.at.part(index), each) for index, each in enumerate(parts))
        for _ in side_by_side(lambda part: self._log.objects.put(*part), named):
            pass
        found = self._log.put_new(self.at, data)
        if found is not None:
            raise FencedError(self.at.epoch, found.next_epoch if not found.is_frame else "another")
        place = self.at
        self.at, self._previous, self._pending = place.behind, checksum, None
        return place

    def _encoded(
        self, kind: Kind, seqs: tuple[int, int], payload: Sequence[Buffer]
    ) -> tuple[bytes, int]:
        return formats.encode(kind, self.at, seqs, self._token, self._previous, payload)
