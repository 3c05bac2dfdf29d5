"""A follower shows what is durable, once and in order, and never bytes of a recycled segment."""

from __future__ import annotations

import random
from typing import Any

import pytest

from siltstone.errors import CorruptionError
from siltstone.formats.log.frame import Mark, encode_mark
from siltstone.storage.wal import follower
from siltstone.storage.wal.follower import SegmentRecycled, WalFollower
from siltstone.storage.wal.wal import Wal
from siltstone.units import Epoch, SegmentNumber, Seq
from tests.crash.wal_scenario import LOG, STORE_ID, Life, reopen, steps
from tests.support.simulated_files import SimFiles

MARK = LOG / "MARK"
FRAME = 136


def append(wal: Wal, count: int = 1, *, sync: bool = True) -> None:
    for _ in range(count):
        seq = Seq(wal.end.seq + 1)
        wal.append(first_seq=seq, last_seq=seq, payload=[b"%030d" % seq], sync=sync)
        if sync:
            wal.tell()


def followed(files: SimFiles) -> WalFollower:
    return WalFollower(files, LOG, store_id=STORE_ID)


def poll(follower: WalFollower, floor: int = 1) -> list[int]:
    frames = follower.poll(SegmentNumber(floor))
    assert all(bytes(frame.payload) == b"%030d" % frame.first_seq for frame in frames)
    return [frame.first_seq for frame in frames]


@pytest.fixture
def files() -> SimFiles:
    return SimFiles()


@pytest.fixture
def wal(files: SimFiles) -> Wal:
    return reopen(files, epoch=1).wal


def test_a_store_without_a_log_has_no_frames(files: SimFiles) -> None:
    follower = followed(files)
    assert poll(follower) == []
    append(reopen(files, epoch=1).wal)
    assert poll(follower) == [1]


def test_each_durable_frame_comes_once_with_its_segment(files: SimFiles, wal: Wal) -> None:
    follower = followed(files)
    append(wal, 4)
    assert [(f.segment, f.first_seq) for f in follower.poll(SegmentNumber(1))] == [
        (1, 1), (1, 2), (1, 3), (2, 4),
    ]  # fmt: skip
    assert poll(follower) == []
    append(wal, 4)
    assert poll(follower) == [5, 6, 7, 8]


def test_what_its_owner_did_not_sync_is_not_shown(files: SimFiles, wal: Wal) -> None:
    assert files.lock(MARK) is not None  # as an owner that has recovered the log
    follower = followed(files)
    append(wal, 2, sync=False)
    assert poll(follower) == []
    wal.sync()
    append(wal, sync=False)
    assert poll(follower) == [1, 2]


def test_following_makes_no_write_call(files: SimFiles, wal: Wal) -> None:
    append(wal, 5)
    follower = followed(files)
    before = files.operations
    poll(follower)
    assert {step.what for step in files.trace[before:]} <= {"open", "read", "pread", "list"}


def test_without_an_owner_following_syncs_what_it_shows_and_looks_again_without_a_sync(
    files: SimFiles, wal: Wal
) -> None:
    append(wal, 2)
    append(wal, sync=False)
    machine = files.killed()
    follower = followed(machine)
    assert poll(follower) == [1, 2, 3]
    synced = [step for step in machine.trace if step.what in ("sync", "sync_dir")]
    assert [step.path for step in synced] == [LOG / "00000001-000000000001.wal", LOG]
    assert poll(followed(next(machine.images(random.Random(0))).files)) == [1, 2, 3]
    before = machine.operations
    assert poll(follower) == []
    assert {step.what for step in machine.trace[before:]} <= {"open", "read", "pread", "list"}


def test_what_nobody_owns_and_mark_vouches_for_is_shown_without_a_sync(
    files: SimFiles, wal: Wal
) -> None:
    append(wal, 5)
    machine = files.killed()
    assert poll(followed(machine)) == [1, 2, 3, 4, 5]
    assert {step.what for step in machine.trace} <= {"open", "read", "pread", "list"}


def test_a_follower_goes_on_through_a_recovery_without_gap_or_repetition(
    files: SimFiles, wal: Wal
) -> None:
    follower = followed(files)
    append(wal, 4)
    assert poll(follower) == [1, 2, 3, 4]
    append(wal, sync=False)  # readable, so recovery makes it durable
    new = reopen(files, epoch=2).wal
    append(new, 4)
    assert poll(follower) == [5, 6, 7, 8, 9]
    assert poll(followed(files)) == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_a_recovery_between_the_look_at_the_mark_and_at_the_segment_is_no_damage(
    files: SimFiles, wal: Wal, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(wal, 5)
    of_mark, epochs = follower.read_mark, [2]

    def before_a_recovery(*args: Any) -> Mark | None:
        mark = of_mark(*args)
        if epochs:
            reopen(files, epoch=epochs.pop())
        return mark

    behind = followed(files)
    monkeypatch.setattr(follower, "read_mark", before_a_recovery)
    assert poll(behind) == [1, 2, 3, 4, 5]
    epochs.append(3)
    assert poll(followed(files)) == [1, 2, 3, 4, 5]


def test_frames_below_a_new_floor_are_left_to_the_record(files: SimFiles, wal: Wal) -> None:
    follower = followed(files)
    append(wal, 2)
    assert poll(follower) == [1, 2]
    append(wal, 6)
    floor = wal.rotate()
    append(wal, 2)
    wal.retire(floor)
    assert poll(follower, floor) == [9, 10]
    assert poll(followed(files), floor) == [9, 10]


def test_a_sealed_log_without_a_new_frame_has_none_above_its_floor(
    files: SimFiles, wal: Wal
) -> None:
    append(wal, 2)
    follower = followed(files)
    floor = wal.rotate()
    wal.retire(floor)
    assert poll(follower, floor) == []
    append(wal)
    assert poll(follower, floor) == [3]


def test_a_recycled_segment_is_a_signal_and_the_new_floor_goes_on(
    files: SimFiles, wal: Wal
) -> None:
    follower = followed(files)
    append(wal, 2)
    poll(follower)
    append(wal, 5)
    floor = wal.rotate()
    wal.retire(floor)
    append(wal, 4)
    with pytest.raises(SegmentRecycled) as caught:
        poll(follower, 1)
    assert caught.value.segment < floor
    assert poll(follower, floor) == [8, 9, 10, 11]


def test_a_damaged_frame_below_the_mark_is_a_signal_with_its_place(
    files: SimFiles, wal: Wal
) -> None:
    append(wal, 2)
    path = LOG / "00000001-000000000001.wal"
    file = files.open(path)
    file.pwrite(b"\xff", 4096 + FRAME + 120)
    with pytest.raises(SegmentRecycled) as caught:
        poll(followed(files))
    signal = caught.value
    assert (signal.path, signal.segment, signal.offset) == (path, 1, 4096 + FRAME)


def test_every_changed_byte_of_a_durable_frame_is_a_signal_and_never_data(
    files: SimFiles, wal: Wal
) -> None:
    append(wal, 5)
    for name, size in (("00000001-000000000001.wal", 3), ("00000001-000000000002.wal", 2)):
        file = files.open(LOG / name)
        for at in range(4096 + size * FRAME):
            byte = file.pread(1, at)
            file.pwrite(bytes([byte[0] ^ 0xFF]), at)
            with pytest.raises((SegmentRecycled, CorruptionError)):
                poll(followed(files))
            file.pwrite(byte, at)
    assert poll(followed(files)) == [1, 2, 3, 4, 5]


def test_without_mark_all_whole_frames_are_shown(files: SimFiles, wal: Wal) -> None:
    append(wal, 5)
    files.unlink(MARK)
    follower = followed(files)
    assert poll(follower) == [1, 2, 3, 4, 5]
    assert poll(follower) == []
    append(wal)
    assert poll(follower) == [6]


@pytest.mark.parametrize("is_held", [True, False])
def test_a_torn_mark_is_as_good_as_none(files: SimFiles, wal: Wal, is_held: bool) -> None:
    _held = files.lock(MARK) if is_held else None
    append(wal, 5)
    follower = followed(files)
    assert poll(follower) == [1, 2, 3, 4, 5]
    whole = files.read(MARK)
    append(wal)
    newer = files.read(MARK)
    file = files.open(MARK)
    file.pwrite(whole[:20] + newer[20:], 0)
    assert poll(follower) == [6]
    file.pwrite(newer, 0)
    assert poll(follower) == []
    append(wal)
    assert poll(follower) == [7]


def test_an_older_mark_hides_nothing_of_a_recovered_segment(files: SimFiles, wal: Wal) -> None:
    append(wal, 4)
    old = files.read(MARK)
    append(wal, sync=False)
    machine = files.killed()
    reopen(machine, epoch=2)
    machine.open(MARK).pwrite(old, 0)  # as if the crash came before recovery wrote its own
    assert poll(followed(machine)) == [1, 2, 3, 4, 5]


def test_a_mark_that_lies_far_ahead_shows_no_more_than_recovery_found(
    files: SimFiles, wal: Wal
) -> None:
    append(wal, 2)
    machine = files.killed()
    reopen(machine, epoch=2)
    far = Mark(Epoch(1), SegmentNumber(1), 10**9, Seq(99))
    machine.open(MARK).pwrite(encode_mark(far, STORE_ID), 0)
    assert poll(followed(machine)) == [1, 2]


def test_a_follower_at_every_step_shows_only_what_every_power_cut_keeps() -> None:
    """And never goes back: it follows a whole life, with switches, checkpoints, a new owner."""
    life = Life(SimFiles())
    follower = followed(life.files)
    shown = 0
    for step in steps(life):
        step()
        _held = life.files.lock(MARK)  # by the first one, and kept
        for frame in follower.poll(SegmentNumber(life.floor)):
            assert frame.first_seq > shown
            shown = frame.last_seq
            assert bytes(frame.payload) == life.payloads[frame.first_seq][1]
        assert max(shown, life.flushed) == life.acknowledged
        for image in life.files.images(random.Random(0), 3):
            assert reopen(image.files, epoch=9, floor=life.floor).last_seq >= shown
