"""WAL: the log of a store, to which its owner appends.

    append   (next segment when the frame does not fit) ─▶ pwritev, synced      the commit point
    tell     MARK: other processes see what is durable
    next     sync the old one ─▶ take a ready file ─▶ write its header ─▶ fdatasync ─▶ MARK

    OPEN ──a write or sync stopped half-way──▶ POISONED      nothing is written or synced any more
      └──────────────close──────────────▶ CLOSED ◀── close ──┘

ONE CALL  A frame that is synced is written by one call that syncs this frame's bytes alone. That is
right only if all bytes before it are durable. Otherwise a power cut could tear an unsynced frame
and spare the synced one behind it: a damaged log, and an acknowledged commit out of reach. Behind
unsynced frames it is two calls, write and sync. So it is where the file system refuses the one,
from the first refusal on, and over a network, where the client decides what the call does.

OWNED  Before a frame is written the log looks whether the path of the store still leads to LOCK,
and refuses if not: the directory was moved, deleted or replaced. After a sync it looks whether LOCK
was deleted, and is poisoned if so. The second look is the one that proves: another process owns the
store only once LOCK is gone, and recovers the log after that, so it finds what was durable while
LOCK was there.

A poisoned log stays poisoned: after a failed sync Linux marks the pages clean, so the next sync
would succeed without the bytes (Rebello, ATC 2020), and frames of the segment before must not
follow a half-written header. Only a missing next segment is a clean failure, because then not a
byte of the frame or of a header was written.

MARK tells other processes the end of the durable log. It is written after each sync and before the
acknowledgement, and never synced: it may be behind the durable end, never beyond it. After `append`
the committer says when (`tell`), so that its own readers see a commit no later than others do.

Lock: none here. One thread at a time calls `append`, `tell`, `sync`, `rotate` and `close`: the
leader of a group, under the committer's lock. `prepare` and `retire` may run at the same time, see
`storage.wal.segment_pool`. Recovery creates the one `Wal` of an owner:
`storage.wal.recovery.recover`.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Protocol

from siltstone.errors import ClosedError, InvariantError, PoisonedError, SiltstoneError
from siltstone.formats.log.frame import (
    FRAME_HEADER_BYTES,
    HEADER_BYTES,
    Buffer,
    Position,
    SegmentHeader,
    encode_frame,
    encode_header,
    encode_mark,
    payload_bytes,
)
from siltstone.storage.files.files import File
from siltstone.storage.files.locks import IsThere, Look
from siltstone.storage.wal.segment_pool import SEGMENT_BYTES, SMALLEST_BYTES, SegmentPool
from siltstone.units import SegmentNumber, Seq


class Owned(Protocol):
    """The right of an owner to append, as `Ownership` has it."""

    @property
    def look(self) -> Look:
        """What counts the paths that name LOCK: none, and another process may own the store."""
        ...

    @property
    def is_at_its_path(self) -> IsThere:
        """Whether the path of the store leads to LOCK: else no process would find a frame."""
        ...

    def lost(self) -> SiltstoneError:
        """Return what to say then."""
        ...


class _Alone:
    """A log without a store around it."""

    st_nlink = 1

    @property
    def look(self) -> Look:
        return lambda: self

    @property
    def is_at_its_path(self) -> IsThere:
        return lambda: True

    def lost(self) -> SiltstoneError:
        return InvariantError("no process owns this log")


class Wal:
    """The end of the log. For the lock and the states see the module."""

    def __init__(
        self,
        *,
        pool: SegmentPool,
        mark: File,
        store_id: bytes,
        file: File,
        size: int,
        end: Position,
        segment_bytes: int = SEGMENT_BYTES,
        syncs_frames: bool = True,
        owned: Owned | None = None,
    ) -> None:
        """Go on at `end` of the segment `file` of `size` bytes; all before it is durable.

        `segment_bytes`: how large the segments become at most, if no frame is larger.
        `syncs_frames`: whether a frame may be written and synced by one call, see ONE CALL.
        `owned`: see OWNED; None: nothing is asked.
        """
        self._pool, self._mark, self._store_id = pool, mark, store_id
        self._file, self._size, self._end = file, size, end
        self._segment_bytes, self._rests = segment_bytes, False
        self._durable_offset, self._durable_seq = end.offset, end.seq
        self._is_poisoned = self._is_closed = False
        self._syncs_frames = syncs_frames
        self._owned: Owned = _Alone() if owned is None else owned

    @property
    def durable_seq(self) -> Seq:
        """The last seq that is synced and in MARK. Any thread may read it."""
        return self._durable_seq

    @property
    def end(self) -> Position:
        """The position of the next frame: segment, offset and last seq, durable or not."""
        return self._end

    @property
    def size(self) -> int:
        """The bytes of the file that takes the frames. Any thread may read it."""
        return self._size

    @property
    def wants_next(self) -> bool:
        """Whether half of the segment is used and a next one is due. Any thread may read it."""
        return 2 * self._end.offset > self._size

    @property
    def is_poisoned(self) -> bool:
        return self._is_poisoned

    def append(
        self, *, first_seq: Seq, last_seq: Seq, payload: Sequence[Buffer], sync: bool = True
    ) -> None:
        """Write one frame with the commits `first_seq` to `last_seq`; durable on return if `sync`.

        Then `tell` comes before anybody hears of them.

        Raises:
            UnavailableError: There is no space for a next segment, or the store is not at its path
                any more; nothing was written, and the log continues when that is mended.
            OSError: The frame may or may not be durable, or LOCK was deleted meanwhile; the log is
                poisoned, recovery decides.
            PoisonedError: An earlier call failed.
        """
        if self._is_poisoned or self._is_closed or not self._owned.is_at_its_path():
            self._refuse_unusable()
            raise self._owned.lost()
        if first_seq != self._end.seq + 1 or last_seq < first_seq:
            raise InvariantError(f"seqs {first_seq} to {last_seq} after seq {self._end.seq}")
        is_one = len(payload) == 1 and type(payload[0]) is bytes  # most commits: no call
        length = len(payload[0]) if is_one else payload_bytes(payload)
        size = FRAME_HEADER_BYTES + length + -length % 8
        if self._end.offset + size > self._size:
            self._start_segment(HEADER_BYTES + size)
        at = self._end
        buffers, end = encode_frame(
            payload,
            length=length,
            store_id=self._store_id,
            at=at,
            first_seq=first_seq,
            last_seq=last_seq,
            durable_offset=self._durable_offset,
        )
        self._is_poisoned = True  # whatever stops us from here to the end leaves it so
        is_synced = sync and self._syncs_frames and at.offset == self._durable_offset
        if is_synced:
            is_synced = self._syncs_frames = self._file.pwritev_synced(buffers, at.offset)
        if not is_synced:
            self._write(buffers, at.offset, sync=sync)
        self._end = end
        if sync:
            if not self._owned.look().st_nlink:
                raise self._lost()
            self._durable_offset = end.offset
        self._is_poisoned = False

    def _write(self, buffers: Sequence[Buffer], offset: int, *, sync: bool) -> None:
        self._file.pwritev(buffers, offset)
        if sync:
            self._file.sync()

    def tell(self) -> None:
        """Let other processes see what `append` made durable.

        Raises:
            OSError: The log is poisoned.
        """
        end = self._end
        if self._durable_offset != end.offset:
            raise InvariantError(f"MARK at byte {end.offset}, durable to {self._durable_offset}")
        self._is_poisoned = True
        self._mark.pwrite(encode_mark(end, self._store_id), 0)
        self._durable_seq = end.seq
        self._is_poisoned = False

    def sync(self) -> None:
        """Make frames durable that were appended without `sync`.

        Raises:
            OSError, PoisonedError: As `append`.
        """
        self._refuse_unusable()
        if self._durable_offset != self._end.offset:
            self._make_durable()
        elif self._durable_seq != self._end.seq:
            self.tell()

    def rotate(self) -> SegmentNumber:
        """Start a new segment for later frames; return its number.

        All earlier frames are synced. A segment without a frame is not followed by another.

        Raises:
            UnavailableError, OSError, PoisonedError: As `append`.
        """
        self._refuse_unusable()
        if self._end.offset > HEADER_BYTES:
            self._start_segment(HEADER_BYTES)
        return self._end.segment

    def prepare(self) -> None:
        """Make the next segment ready before it is needed; for a background thread.

        Raises:
            UnavailableError: There is no space, or the file system refuses; try again later.
        """
        self._pool.prepare(self._next_bytes())

    def rest(self) -> None:
        """Delete the ready files, and continue with small ones; for an idle log.

        Any thread may call it. The file in use stays until the next rotation.
        """
        self._rests = True
        self._pool.give_back()

    def retire(self, floor: SegmentNumber) -> None:
        """Recycle the segments below `floor`; the record with this floor must be durable.

        Raises:
            UnavailableError: The file system refuses; call again later.
        """
        self._pool.retire(floor, self._next_bytes())

    def close(self) -> None:
        """Sync, unless the log is poisoned, and close. Further calls do nothing."""
        if self._is_closed:
            return
        try:
            if not self._is_poisoned:
                self.sync()
        finally:
            self._is_closed = True
            self._pool.close(gives_back=not self._is_poisoned)  # poisoned, it touches no file
            self._file.close()
            self._mark.close()

    def _start_segment(self, size: int) -> None:
        """Go on in the next segment, of at least `size` bytes.

        Its header says where the one before ends, so that one must be durable first. The header is
        durable before the first frame: a damaged header before a frame is never a torn write.
        """
        self.sync()
        ready = self._pool.take(size, self._next_bytes())
        self._is_poisoned, self._rests = True, False
        header = SegmentHeader(
            self._store_id, self._end.epoch, ready.number, self._end, is_recycled=ready.is_recycled
        )
        data, header = encode_header(header)
        old, self._file, self._size = self._file, ready.file, ready.size
        old.close()  # it is synced; from here on nothing else would close it
        self._file.pwrite(data, 0)
        self._end = header.start
        self._make_durable()

    def _next_bytes(self) -> int:
        """Return how large the next segment should be: as this one, twice that once it is used."""
        if self._rests:
            return min(SMALLEST_BYTES, self._segment_bytes)
        return min(self._segment_bytes, self._size * (2 if self.wants_next else 1))

    def _make_durable(self) -> None:
        """Sync the file in use, and tell."""
        self._is_poisoned = True
        self._file.sync()
        if not self._owned.look().st_nlink:
            raise self._lost()
        self._durable_offset = self._end.offset
        self.tell()

    def _lost(self) -> OSError:
        """Return what ends a write that the store was not this owner's for, once it was durable."""
        return OSError(errno.ESTALE, str(self._owned.lost()))

    def _refuse_unusable(self) -> None:
        if self._is_closed:
            raise ClosedError("the log is closed; open the store again")
        if self._is_poisoned:
            raise PoisonedError("an earlier write of the log failed; open the store again")
