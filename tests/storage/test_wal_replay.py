"""Replay gives a prefix with all that was acknowledged, or says which file is damaged."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash

from siltstone.errors import CorruptionError, FencedError, UnsupportedFormatError
from siltstone.formats.log.frame import (
    Mark,
    Position,
    SegmentHeader,
    encode_frame,
    encode_header,
    encode_mark,
)
from siltstone.formats.store_format import STORE_FORMAT
from siltstone.storage.wal import chain
from siltstone.storage.wal.recovery import Recovery
from siltstone.storage.wal.segments import read_mark
from siltstone.storage.wal.wal import Wal
from siltstone.units import Epoch, SegmentNumber, Seq
from tests.crash.wal_scenario import LOG, QUARANTINE, STORE_ID, reopen
from tests.support.simulated_files import SimFiles

FIRST = LOG / "00000001-000000000001.wal"
SECOND = LOG / "00000001-000000000002.wal"
MARK = LOG / "MARK"
FRAME = 136


def append(wal: Wal, count: int = 1, *, sync: bool = True) -> None:
    for _ in range(count):
        seq = Seq(wal.end.seq + 1)
        wal.append(first_seq=seq, last_seq=seq, payload=[b"%030d" % seq], sync=sync)
        if sync:
            wal.tell()


def written(count: int) -> SimFiles:
    """Return a machine with `count` acknowledged commits, three to a segment, then a crash."""
    files = SimFiles()
    append(reopen(files, epoch=1).wal, count)
    return files.killed()


def overwrite(files: SimFiles, path: Path, data: bytes) -> SimFiles:
    machine = files.killed()
    machine.unlink(path)
    machine.write(path, data)
    return machine


def seqs(recovery: Recovery) -> list[int]:
    frames = list(recovery.frames)
    assert all(bytes(frame.payload) == b"%030d" % frame.first_seq for frame in frames)
    return [frame.first_seq for frame in frames]


def imported(files: SimFiles, *, epoch: int) -> Wal:
    """Return the log of a new owner, who has read all of it."""
    recovery = reopen(files, epoch=epoch)
    seqs(recovery)
    return recovery.wal


def recovered(files: SimFiles, **arguments: int) -> list[int] | CorruptionError:
    try:
        return seqs(reopen(files, epoch=2, **arguments))
    except CorruptionError as error:
        return error


def changed_bytes(data: bytes) -> list[tuple[str, bytes]]:
    flips = [(f"byte {n} ^ {x:#x}", n, x) for n in range(len(data)) for x in (0x01, 0xFF)]
    return [(label, data[:n] + bytes([data[n] ^ x]) + data[n + 1 :]) for label, n, x in flips]


def test_a_new_store_begins_empty_and_behind_the_seq_that_is_known() -> None:
    recovery = reopen(SimFiles(), epoch=1, last_seq=41)
    assert seqs(recovery) == []
    assert (recovery.start_seq, recovery.last_seq, recovery.wal.end.segment) == (41, 41, 1)
    append(recovery.wal)


def test_segments_are_replayed_in_order_and_frames_keep_their_segment() -> None:
    files = written(7)
    recovery = reopen(files, epoch=2)
    assert [(f.segment, f.first_seq) for f in recovery.frames] == [
        (1, 1), (1, 2), (1, 3), (2, 4), (2, 5), (2, 6), (3, 7),
    ]  # fmt: skip
    assert recovery.wal.end.segment == 3
    assert read_mark(files, LOG, STORE_ID) == Mark(Epoch(2), SegmentNumber(3), 4096 + FRAME, Seq(7))


def test_replay_begins_at_the_floor() -> None:
    recovery = reopen(written(7), epoch=2, floor=2)
    assert (recovery.start_seq, seqs(recovery)) == (3, [4, 5, 6, 7])


def test_recovery_leaves_the_older_segments_of_the_chain_as_they_were() -> None:
    files = written(5)
    before = {path: data for path, data in files.tree() if path.endswith(".wal")}
    for epoch in (2, 3, 4):
        append(reopen(files, epoch=epoch).wal)
    after = dict(files.tree())
    assert after[str(FIRST)] == before[str(FIRST)]
    assert seqs(reopen(files, epoch=5)) == list(range(1, 9))


def test_a_segment_that_was_written_again_is_gone() -> None:
    files = written(5)
    for epoch in (2, 3, 4):
        append(imported(files, epoch=epoch))
    names = ["00000001-000000000001.wal", "00000003-000000000002.wal", "00000004-000000000003.wal"]
    assert files.list(LOG) == [*names, "MARK"]


def test_a_segment_that_comes_back_after_it_was_written_again_is_not_read() -> None:
    files = written(5)
    old = files.read(SECOND)
    append(imported(files, epoch=2))
    files.write(SECOND, old)  # its unlink was not synced, and the power went
    assert seqs(reopen(files, epoch=3)) == [1, 2, 3, 4, 5, 6]
    assert not files.exists(SECOND)


def test_what_a_fenced_owner_still_appends_is_never_read() -> None:
    files = SimFiles()
    old = reopen(files, epoch=1).wal
    append(old, 2)
    new = reopen(files, epoch=2).wal
    append(old, 4)  # goes on in its own segments 1 and 2
    append(new)
    assert seqs(reopen(files, epoch=3)) == [1, 2, 3]


def test_an_epoch_that_the_log_has_already_is_fenced() -> None:
    files = written(1)
    with pytest.raises(FencedError) as caught:
        reopen(files, epoch=1)
    assert (caught.value.ours, caught.value.theirs) == (1, 1)


def test_damage_to_an_acknowledged_byte_of_the_newest_segment_is_corruption_when_mark_knows() -> (
    None
):
    files = written(5)
    data = files.read(SECOND)
    end = 4096 + 2 * FRAME
    for label, changed in changed_bytes(data[:end]):
        result = recovered(overwrite(files, SECOND, changed + data[end:]))
        assert isinstance(result, CorruptionError), label
        assert result.path == SECOND, label


def test_without_mark_any_changed_byte_gives_an_exact_prefix_or_corruption() -> None:
    files = written(5)
    files.unlink(MARK)
    data = files.read(SECOND)
    outcomes = set()
    for label, changed in changed_bytes(data):
        result = recovered(overwrite(files, SECOND, changed))
        if isinstance(result, list):
            assert result == list(range(1, len(result) + 1)), label
            assert len(result) >= 3, label
        outcomes.add(len(result) if isinstance(result, list) else "corruption")
    assert outcomes == {"corruption", 4, 5}  # the last frame may be torn, no other


def test_a_changed_byte_of_an_older_segment_is_corruption() -> None:
    files = written(5)
    files.unlink(MARK)
    data = files.read(FIRST)
    end = 4096 + 3 * FRAME
    for label, changed in changed_bytes(data[:end]):
        result = recovered(overwrite(files, FIRST, changed + data[end:]))
        assert isinstance(result, CorruptionError), label
        assert result.path == FIRST, label


def test_every_truncation_gives_an_exact_prefix_or_corruption() -> None:
    files = written(5)
    for path, with_mark in ((FIRST, False), (SECOND, False), (SECOND, True)):
        machine = files.killed()
        if not with_mark:
            machine.unlink(MARK)
        data = machine.read(path)
        for size in [*range(0, 4096, 64), *range(4096, len(data))]:
            result = recovered(overwrite(machine, path, data[:size]))
            if isinstance(result, list):
                assert result in ([1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5]), size
                assert result == [1, 2, 3, 4, 5] or not (with_mark or path == FIRST), size


def test_a_zeroed_sector_is_corruption_or_no_change() -> None:
    files = written(5)
    for path in (FIRST, SECOND):
        data = files.read(path)
        for start in range(0, len(data), 512):
            zeroed = data[:start] + bytes(512) + data[start + 512 :]
            result = recovered(overwrite(files, path, zeroed[: len(data)]))
            assert isinstance(result, CorruptionError) or result == [1, 2, 3, 4, 5], (path, start)


@pytest.mark.parametrize(
    ("damage", "path"),
    [
        (lambda f: f.unlink(FIRST), FIRST),
        (lambda f: f.unlink(SECOND), SECOND),
        (lambda f: (f.rename(FIRST, LOG / "x"), f.rename(SECOND, FIRST)), SECOND),
        (
            lambda f: (
                f.rename(FIRST, LOG / "x"),
                f.rename(SECOND, FIRST),
                f.rename(LOG / "x", SECOND),
            ),
            SECOND,
        ),
    ],
    ids=["first gone", "second gone", "second in place of the first", "swapped"],
)
def test_a_missing_or_swapped_segment_is_corruption(
    damage: Callable[[SimFiles], object], path: Path
) -> None:
    files = written(5)
    damage(files)
    result = recovered(files)
    assert isinstance(result, CorruptionError)
    assert result.path == path


def test_a_log_that_is_gone_is_not_taken_for_a_new_store() -> None:
    files = written(5)
    files.unlink(FIRST)
    files.unlink(SECOND)
    assert isinstance(recovered(files), CorruptionError)
    files.unlink(MARK)
    assert isinstance(recovered(files, floor=2), CorruptionError)
    assert isinstance(recovered(files, last_seq=5), list)  # floor 1, no file: so it is one


def test_a_log_that_ends_below_the_floor_or_before_a_known_seq_is_corruption() -> None:
    files = written(5)
    assert isinstance(recovered(files.killed(), floor=3), CorruptionError)
    assert isinstance(recovered(files.killed(), last_seq=6), CorruptionError)
    assert recovered(files, last_seq=5) == [1, 2, 3, 4, 5]


def test_corruption_changes_nothing_but_the_wish_to_go_on() -> None:
    files = written(5)
    data = files.read(FIRST)
    files = overwrite(files, FIRST, data[:4200] + b"\xff" + data[4201:])
    before = files.tree()
    assert isinstance(recovered(files), CorruptionError)
    assert files.tree() == before


def test_async_frames_that_a_power_cut_reordered_are_a_torn_tail() -> None:
    files = SimFiles()
    wal = reopen(files, epoch=1).wal
    append(wal)
    append(wal, 2, sync=False)
    kept = set()
    for image in files.images(random.Random(0)):
        result = recovered(image.files)
        assert result in ([1], [1, 2], [1, 2, 3]), image.label
        kept.add(len(result) if isinstance(result, list) else 0)
    assert kept == {1, 2, 3}


def test_a_bad_frame_before_one_that_knows_it_durable_is_corruption_without_mark() -> None:
    files = SimFiles()
    wal = reopen(files, epoch=1).wal
    append(wal)
    append(wal, sync=False)
    append(wal)
    files.unlink(MARK)
    data = files.read(FIRST)
    for n, expected in ((0, "corruption"), (1, [1]), (2, [1, 2])):
        at = 4096 + n * FRAME + 110
        damaged = overwrite(files, FIRST, data[:at] + b"\xff" + data[at + 1 :])
        result = recovered(damaged)
        assert ("corruption" if isinstance(result, CorruptionError) else result) == expected


def test_a_damaged_frame_that_recovery_wrote_is_corruption_without_mark() -> None:
    files = written(2)
    reopen(files, epoch=2)
    files.unlink(MARK)
    path = LOG / "00000002-000000000001.wal"
    data = files.read(path)
    for at in (4096, 4096 + FRAME):
        damaged = overwrite(files, path, data[:at] + b"\xff" + data[at + 1 :])
        with pytest.raises(CorruptionError) as caught:
            reopen(damaged, epoch=3)
        assert (caught.value.path, caught.value.offset) == (path, at)


def test_a_torn_tail_is_kept_in_quarantine_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    files = SimFiles()
    wal = reopen(files, epoch=1).wal
    append(wal)
    append(wal, sync=False)
    files.unlink(MARK)
    data = files.read(FIRST)
    torn_at = 4096 + FRAME
    files = overwrite(files, FIRST, data[: torn_at + 120] + bytes(len(data) - torn_at - 120))
    with caplog.at_level(logging.WARNING):
        recovery = reopen(files, epoch=2)
        assert seqs(recovery) == [1]
        assert recovery.torn_tail == QUARANTINE / f"00000001-000000000001-{torn_at}.tail"
        assert files.read(recovery.torn_tail) == data[torn_at : torn_at + 120].rstrip(b"\0")
        assert reopen(files, epoch=3).torn_tail is None
    assert len(caplog.records) == 1
    assert str(FIRST) in caplog.text


@pytest.mark.parametrize("length", [0, 1, 65_535, 65_536, 65_537, 200_000])
def test_the_end_of_what_was_written_is_found_wherever_the_zeros_begin(length: int) -> None:
    rng = random.Random(length)
    for _ in range(30):
        data = bytearray(length)
        for _ in range(rng.randint(0, 3) if length else 0):
            data[rng.randrange(length)] = rng.randint(0, 255)
        start = rng.randint(0, length)
        end = rng.randint(start, length)
        found = chain._end_of_bytes(bytes(data), start, end)
        assert found == start + len(data[start:end].rstrip(b"\0"))


def test_stale_bytes_of_a_recycled_segment_are_no_torn_tail() -> None:
    files = SimFiles()
    wal = reopen(files, epoch=1).wal
    append(wal, 6)
    floor = wal.rotate()
    wal.retire(floor)
    append(wal, 4)
    recovery = reopen(files.killed(), epoch=2, floor=floor)
    assert (seqs(recovery), recovery.torn_tail) == ([7, 8, 9, 10], None)
    assert not files.exists(QUARANTINE)
    append(wal, sync=False)
    files.unlink(MARK)
    path = LOG / "00000001-000000000004.wal"
    data = bytearray(files.read(path))
    data[4096 + FRAME + 120] ^= 0xFF
    recovery = reopen(overwrite(files, path, bytes(data)), epoch=2, floor=floor)
    assert (seqs(recovery), recovery.torn_tail is None) == ([7, 8, 9, 10], False)


def test_what_an_old_epoch_prepared_and_a_crash_left_over_is_cleared() -> None:
    files = SimFiles()
    wal = reopen(files, epoch=1).wal
    append(wal)
    wal.prepare()
    files.write(files.temporary(SECOND), b"half a segment")
    imported(files, epoch=2)
    assert files.list(LOG) == ["00000002-000000000001.wal", "MARK"]


def test_a_foreign_stores_segment_and_mark_are_not_this_stores() -> None:
    files = written(5)
    before = Position(Epoch(1), SegmentNumber(2), 4096, 1, Seq(5))
    header, _ = encode_header(SegmentHeader(bytes(16), Epoch(1), SegmentNumber(3), before))
    files.write(LOG / "00000001-000000000003.wal", header + bytes(512))
    assert recovered(files) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("other", [STORE_FORMAT - 1, STORE_FORMAT + 1])
def test_another_format_is_refused_and_not_a_byte_is_changed(other: int) -> None:
    files = written(5)
    data = bytearray(files.read(SECOND))
    data[16] = other
    data[8:16] = xxhash.xxh3_64_intdigest(data[16:4096]).to_bytes(8, "little")
    files = overwrite(files, SECOND, bytes(data))
    before = files.tree()
    with pytest.raises(UnsupportedFormatError):
        reopen(files, epoch=2)
    assert files.tree() == before


@pytest.mark.parametrize(("seq", "change"), [(4, 0), (2, 0), (3, 1)])
def test_a_valid_frame_that_does_not_continue_the_one_before_is_corruption(
    seq: int, change: int
) -> None:
    files = written(2)
    data = bytearray(files.read(FIRST))
    second = data[4096 + FRAME : 4096 + 2 * FRAME]
    checksum = int.from_bytes(second[8:16], "little") ^ change
    at = Position(Epoch(1), SegmentNumber(1), 4096 + 2 * FRAME, checksum, Seq(2))
    buffers, end = encode_frame(
        [b"x" * 30],
        store_id=STORE_ID,
        at=at,
        first_seq=Seq(seq),
        last_seq=Seq(seq),
        durable_offset=4096,
    )
    data[at.offset : end.offset] = b"".join(buffers)
    result = recovered(overwrite(files, FIRST, bytes(data)))
    assert isinstance(result, CorruptionError)
    assert (result.path, result.offset) == (FIRST, at.offset)


def test_a_mark_of_another_store_or_of_an_older_epoch_says_nothing() -> None:
    files = written(2)
    far = Mark(Epoch(1), SegmentNumber(9), 9999, Seq(99))
    assert recovered(overwrite(files, MARK, encode_mark(far, bytes(16)))) == [1, 2]
    assert isinstance(
        recovered(overwrite(files, MARK, encode_mark(far, STORE_ID))), CorruptionError
    )
    files = written(2)
    reopen(files, epoch=2)
    old = overwrite(files, MARK, encode_mark(far, STORE_ID))
    assert seqs(reopen(old, epoch=3)) == [1, 2]
