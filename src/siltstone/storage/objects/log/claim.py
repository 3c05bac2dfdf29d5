"""Claim: how a process becomes the writer of a log in a bucket, while others write it, or try to.

    claim of the next epoch, put if absent: one winner ─▶ read the newest record: the floor ─▶ walk
    from there ─▶ fence at the first number that is absent ─▶ *second look*: there is no later
    claim, and no other floor ─▶ the frames up to the fence are the log; ours go on behind it

    the number was taken meanwhile: its owner still writes ─▶ once, a *barrier*: a fence ahead of
    it, where it stops at the latest ─▶ walk on
    a fence of a lower epoch is there: the log goes on in that one
    a fence or a floor of a higher epoch, or a later claim: lost

Without the second look a slow claimer could walk over a log that was retired, put its fence where
the real one had been passed, and acknowledge beside the new owner. Without the epoch in the floor
it could take another one's barrier for the fence. All interleavings are in
`tests/storage/objects/claim_model.py`. No clock is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from siltstone.errors import BusyError, FencedError
from siltstone.formats.log import log_object as formats
from siltstone.formats.log.log_object import Kind, LogObject, LogPlace
from siltstone.storage.objects.log.log import LogWalk, ObjectLog, walking
from siltstone.storage.objects.log.writer import LogWriter

ATTEMPTS_MAX = 64
AHEAD = 4
"""So far ahead of an owner that writes the barrier is put: it has one put in flight."""


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A log that this process writes from now on; `frames` are those from the floor on."""

    epoch: int
    frames: tuple[LogObject, ...]
    writer: LogWriter


def take_over(log: ObjectLog, floor: Callable[[], LogPlace], token: bytes) -> TakenOver:
    """Become the writer of a log.

    Args:
        log: The log; it may be empty.
        floor: Reads the newest record of the bucket, and returns where the log above it begins.
        token: A new one, of 16 bytes.

    Raises:
        FencedError: Another process claimed it meanwhile.
        BusyError: Records were published faster than this process could read the log.
        CorruptionError: An object is damaged.
        UnavailableError: The server does not answer, or refuses.
    """
    epoch = _claim(log, floor(), token)
    start = floor()
    for _ in range(ATTEMPTS_MAX):
        with walking(log, start) as walk:
            frames = _to_the_end(log, walk, epoch, token)
        end = walk.at
        _refuse_later_claim(log, epoch)
        newest = floor()
        if newest == start:
            return TakenOver(epoch, frames, LogWriter(log, end, walk.previous, token))
        start = newest  # the log was retired before our eyes: we may have left it, and not see it
    raise BusyError(f"{log.objects.url}: {ATTEMPTS_MAX} records came faster than the log was read")


def _claim(log: ObjectLog, start: LogPlace, token: bytes) -> int:
    """Claim the next epoch; return it."""
    epoch = max((named.place.epoch for named in log.names(start.key)), default=start.epoch) + 1
    while True:
        place = LogPlace(epoch, 0)
        data, _ = formats.encode(Kind.CLAIM, place, (epoch, epoch), token, 0)
        if log.put_new(place, data) is None:
            return epoch
        epoch += 1


def _to_the_end(log: ObjectLog, walk: LogWalk, epoch: int, token: bytes) -> tuple[LogObject, ...]:
    """Walk to the end, and have a fence of ours there; return the frames on the way."""
    if walk.at.epoch > epoch:  # a record of a later owner: a fence of ours would end its log
        raise FencedError(epoch, walk.at.epoch)
    frames: list[LogObject] = []
    is_barred = False
    while walk.at.epoch != epoch:
        found = walk.step()
        if found is None:
            if _put_fence(log, walk, epoch, token):
                break
            if not is_barred:  # its owner goes on, and may win every race by its phase
                _put_barrier(log, walk.at, epoch, token)
                is_barred = True
        elif found.is_frame:
            frames.append(found)
        elif found.next_epoch > epoch:
            raise FencedError(epoch, found.next_epoch)
    return tuple(frames)


def _put_fence(log: ObjectLog, walk: LogWalk, epoch: int, token: bytes) -> bool:
    """Put the fence at the walk's place and go over it; False: that was taken meanwhile."""
    seqs = epoch, epoch
    data, checksum = formats.encode(Kind.FENCE, walk.at, seqs, token, walk.previous)
    if log.put_new(walk.at, data) is not None:
        return False
    fence = LogObject(Kind.FENCE, walk.at, epoch, epoch, token, walk.previous, b"", checksum)
    walk.went_over(fence)
    return True


def _put_barrier(log: ObjectLog, at: LogPlace, epoch: int, token: bytes) -> None:
    place = LogPlace(at.epoch, at.number + AHEAD)
    data, _ = formats.encode(Kind.FENCE, place, (epoch, epoch), token, 0)
    log.put_new(place, data)


def _refuse_later_claim(log: ObjectLog, epoch: int) -> None:
    """Check that no other process claimed the log since; claims are put one after the other."""
    if log.get(LogPlace(epoch + 1, 0)) is not None:
        raise FencedError(epoch, epoch + 1)
