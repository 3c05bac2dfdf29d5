"""Recovery: makes the readable part of the log durable, and continues in a new epoch.

    read and verify the chain ─▶ set a torn tail aside ─▶ unlink ready files
    ─▶ write the fresh segment ─▶ MARK ─▶ return the frames ─▶ unlink files off the chain

    before    … ─ 1-5 ─ 1-6                    (epoch-segment)
    after     … ─ 1-5 ─ 2-6    1-6 is off the chain, and unlinked when 2-6 is durable and read

*Readable is not durable*: after a failed sync, or a kill before one, the frames of the newest
segment may be in the page cache alone. They are written again into a fresh file (never a recycled
one) that takes the newest segment's number in the new epoch: under a temporary name, synced,
renamed, the directory synced. It does not depend on the old file: its `previous` is that of the old
one, and the name and bytes of the segment before were synced before the old header was written.
Frames keep segment number, offset and seqs; their epoch and checksums are new, so frames that an
owner of the old epoch still appends are never read.

Files off the chain are unlinked and never used again: all their frames are in a segment of a later
epoch, in a durable record, or in quarantine. Recovery unlinks them after the fresh segment is
durable, because until then its name may not be; after MARK, so that readers in other processes find
the fresh segment; and after every frame was read, so that recovery deletes nothing of a log that it
refuses because another siltstone wrote a part. It unlinks ready files before it writes anything,
because the disk may be full.

A crash anywhere leaves the old chain, or both chains: recovery runs again.

    … ─ 1-5 ─ 1-6 ─ 2-7      where a follower of this process knows a place in 1-6

It has read the log up to there, and all of that is durable. So nothing is copied: what is behind is
made durable where it is, as `storage.wal.follower` does, and the fresh segment is the next one,
whose header says where the old epoch ends. If the disk has other bytes than the page cache, or the
log has no such place, all is read and copied.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from siltstone.errors import FencedError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats.log.frame import (
    HEADER_BYTES,
    Buffer,
    Frame,
    Position,
    SegmentHeader,
    encode_header,
    encode_mark,
)
from siltstone.storage.files.files import REMOTE_TYPES, File, Files, discard, is_temporary
from siltstone.storage.wal.chain import Chain, Confirmed, Stretch, read_chain, read_stretch
from siltstone.storage.wal.segment_pool import SEGMENT_BYTES, SegmentPool, first_bytes
from siltstone.storage.wal.segments import MARK_NAME, moved, segment_path, unavailable
from siltstone.storage.wal.wal import Owned, Wal
from siltstone.telemetry.notices import NoticeLog
from siltstone.units import EMPTY_SEQ, Epoch, SegmentNumber, Seq

_BATCH_FRAMES = 256
_log = NoticeLog(__name__)


class Recovery(msgspec.Struct, frozen=True):
    """The recovered log, all of it durable.

    `frames` yields once, oldest first, and holds one segment at a time; read it before the log is
    retired. The frames begin after `start_seq`, which the record's `flushed_seq` must have reached,
    and end at `last_seq`. Reading the last frame unlinks the files off the chain, but not before,
    because only another siltstone may understand a frame. `torn_tail` is the path of the copied
    torn tail, if there was one. `goes_on`: the frames begin behind the place that was known.
    """

    frames: Iterator[Frame]
    wal: Wal
    start_seq: Seq
    last_seq: Seq
    torn_tail: Path | None
    goes_on: bool = False


def recover(
    files: Files,
    directory: Path,
    *,
    store_id: bytes,
    floor: SegmentNumber,
    epoch: Epoch,
    quarantine: Path,
    segment_bytes: int = SEGMENT_BYTES,
    last_seq: Seq = EMPTY_SEQ,
    reserve: Callable[[int], None] = lambda _: None,
    require_in_place: Callable[[], None] = lambda: None,
    give_way: Callable[[], bool] = lambda: False,
    owned: Owned | None = None,
    known: Confirmed | None = None,
) -> Recovery:
    """Recover the log in `directory` for a new owner, whose `epoch` is durably claimed.

    Args:
        files: The file system.
        directory: The directory of the segments; created if absent.
        store_id: 16 bytes.
        floor: The lowest segment with commits that only the log has; 1 for a new store.
        epoch: The new epoch, higher than all before.
        quarantine: The directory for a copy of a torn tail; created if needed.
        segment_bytes: The size that segments grow to.
        last_seq: The log cannot end before it; the log of a new store begins after it.
        reserve: Called with the size of the next segment; see `SegmentPool`.
        require_in_place: Raises if the owner no longer owns the directory; see `SegmentPool`.
        give_way: Deletes what can be had again, on a full disk; see `SegmentPool`.
        owned: What the log asks for each frame whether it is the owner's; None: nothing.
        known: Up to where a follower of this process has read the log, if one has.

    Raises:
        CorruptionError: An acknowledged part of the log is damaged or missing; nothing was changed.
        FencedError: The log has this epoch or a later one already.
        UnsupportedFormatError: A siltstone of another format wrote it; nothing was changed.
        UnavailableError: There is no space, or the file system refuses; run it again.
    """
    with unavailable(directory):
        files.mkdir(directory)
        is_local = not files.filesystem(directory).startswith(REMOTE_TYPES)
        chain = _chain(files, directory, store_id, floor, last_seq, known)
        if chain.newest.header.epoch >= epoch:
            raise FencedError(epoch, chain.newest.header.epoch)
        torn_tail = _set_aside(files, quarantine, chain)
        goes_on = chain.known is not None
        header, frames = (_next if goes_on else _again)(chain, epoch)
        fresh, size = _write_fresh(files, directory, chain, header, frames, segment_bytes)
        cross(Failpoint.OWN_AFTER_SEGMENT)
        file, mark = _open_for_append(files, directory, fresh)
        cross(Failpoint.OWN_AFTER_MARK)
    pool = SegmentPool(
        files,
        directory,
        epoch=epoch,
        taken=fresh.end.segment,
        reserve=reserve,
        require_in_place=require_in_place,
        give_way=give_way,
    )
    wal = Wal(
        pool=pool,
        mark=mark,
        store_id=store_id,
        file=file,
        size=size,
        end=fresh.end,
        segment_bytes=segment_bytes,
        syncs_frames=is_local,
        owned=owned,
    )
    newest = chain.newest if goes_on else fresh
    stretches = [*chain.old, newest]
    superseded = [each.path for each in chain.superseded if each.path != newest.path]
    start_seq = stretches[0].header.previous.seq if chain.known is None else chain.known.seq
    return Recovery(
        frames=_frames(files, directory, stretches, superseded),
        wal=wal,
        start_seq=start_seq,
        last_seq=wal.end.seq,
        torn_tail=torn_tail,
        goes_on=goes_on,
    )


def _chain(
    files: Files,
    directory: Path,
    store_id: bytes,
    floor: SegmentNumber,
    last_seq: Seq,
    known: Confirmed | None,
) -> Chain:
    """Return the log behind a place, all of that durable; or all of the log."""
    read = partial(read_chain, files, directory, store_id=store_id, floor=floor, last_seq=last_seq)
    chain = read(known=known)
    return chain if chain.known is None or _is_stored(files, directory, chain) else read()


def _is_stored(files: Files, directory: Path, chain: Chain) -> bool:
    """Make durable what was read of the newest segment; False: the disk has other bytes."""
    newest = chain.newest
    with contextlib.closing(files.open(newest.path)) as file:
        for start, end in ((0, HEADER_BYTES), (newest.start.offset, newest.end.offset)):
            if file.pread_stored(end - start, start) != file.pread(end - start, start):
                return False
        file.sync()
    files.sync_dir(directory)
    return True


def _frames(
    files: Files, directory: Path, stretches: list[Stretch], superseded: list[Path]
) -> Iterator[Frame]:
    for stretch in stretches:
        with unavailable(directory):
            yield from read_stretch(files, stretch)
    with unavailable(directory):
        for path in superseded:
            files.unlink(path)


def _set_aside(files: Files, quarantine: Path, chain: Chain) -> Path | None:
    """Copy the torn tail to quarantine; a copy that an earlier recovery made is as good."""
    if not chain.tail:
        return None
    path, offset = chain.newest.path, chain.newest.end.offset
    copy = quarantine / f"{path.stem}-{offset}.tail"
    files.mkdir(quarantine)
    files.create_if_absent(copy, chain.tail)
    _log.warning(
        "%s: %d bytes of a torn write from byte %d on were never acknowledged; copied to %s",
        path,
        len(chain.tail),
        offset,
        copy,
    )
    return copy


def _again(chain: Chain, epoch: Epoch) -> tuple[SegmentHeader, Sequence[Frame]]:
    """Return the header and the frames of the newest segment, in the new epoch."""
    old = chain.newest
    header = msgspec.structs.replace(
        old.header, epoch=epoch, durable_offset=old.end.offset, is_recycled=False
    )
    return header, chain.frames


def _next(chain: Chain, epoch: Epoch) -> tuple[SegmentHeader, Sequence[Frame]]:
    """Return the header of the segment behind the newest one, in the new epoch, and no frame."""
    old = chain.newest
    number = SegmentNumber(old.end.segment + 1)
    return SegmentHeader(old.header.store_id, epoch, number, previous=old.end), ()


def _write_fresh(
    files: Files,
    directory: Path,
    chain: Chain,
    header: SegmentHeader,
    frames: Sequence[Frame],
    segment_bytes: int,
) -> tuple[Stretch, int]:
    """Write a segment with frames; it is durable, name and content.

    What was only ready goes first: the disk may be full.
    """
    _remove_leftovers(files, directory, chain)
    data, header = encode_header(header)
    path = segment_path(directory, header.epoch, header.segment)
    size = first_bytes(header.durable_offset, segment_bytes)
    temporary = files.temporary(path)
    try:
        try:
            files.preallocate(temporary, size)
        except OSError:  # no space to spare: then it holds what there is, and not more
            size, temporary = header.durable_offset, files.temporary(path)
            files.preallocate(temporary, size)
        end = _fill(files, temporary, data, header, frames)
        files.rename(temporary, path)
        files.sync_dir(directory)
    except OSError:
        for leftover in (temporary, path):  # give the space back
            discard(files, leftover)
        raise
    return Stretch(path, header, header.start, end), size


def _fill(
    files: Files, path: Path, data: bytes, header: SegmentHeader, frames: Sequence[Frame]
) -> Position:
    """Write and sync a segment's header and frames; return where they end."""
    with contextlib.closing(files.open(path)) as file:
        file.pwrite(data, 0)
        end = header.start
        for start in range(0, len(frames), _BATCH_FRAMES):
            buffers: list[Buffer] = []
            at = end.offset
            for frame in frames[start : start + _BATCH_FRAMES]:
                parts, end = moved(frame, end, header.store_id)
                buffers.extend(parts)
            file.pwritev(buffers, at)
        file.sync()
    return end


def _remove_leftovers(files: Files, directory: Path, chain: Chain) -> None:
    """Unlink what old epochs prepared and temporary files; if they come back, no harm is done.

    A file without a header that may have been a part of the log, below its end, stays.
    """
    for segment in chain.others:
        if segment.number > chain.newest.header.segment:
            files.unlink(segment.path)
    for name in files.list(directory):
        if is_temporary(name):
            files.unlink(directory / name)


def _open_for_append(files: Files, directory: Path, fresh: Stretch) -> tuple[File, File]:
    """Open the fresh segment and MARK, which then says that all of it is durable."""
    with contextlib.ExitStack() as if_it_fails:
        file = files.open(fresh.path)
        if_it_fails.callback(file.close)
        mark = files.open(directory / MARK_NAME, create=True)
        if_it_fails.callback(mark.close)
        mark.pwrite(encode_mark(fresh.end, fresh.header.store_id), 0)
        if_it_fails.pop_all()
        return file, mark
