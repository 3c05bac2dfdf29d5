"""Who reads a log without an owner sees all that was acknowledged, and no power cut takes any.

Whatever MARK says: it is never synced, so it may be old, torn or gone. An owner may die, start,
append or recycle segments at any moment of such a read.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from siltstone.errors import CorruptionError, PoisonedError, UnavailableError
from siltstone.storage.files.locks import Lock
from siltstone.storage.wal.follower import SegmentRecycled, WalFollower
from siltstone.units import SegmentNumber
from tests.crash.test_wal_crash import lives
from tests.crash.wal_scenario import LOG, STORE_ID, Life, reopen, run, steps
from tests.support.simulated_files import Fault, Kind, SimFiles, When

MARK = LOG / "MARK"


def shown(files: SimFiles, life: Life) -> int:
    """Return the last seq that a new reader shows; each frame is one of the life, in order."""
    seq = 0
    for frame in WalFollower(files, LOG, store_id=STORE_ID).poll(SegmentNumber(life.floor)):
        assert (frame.last_seq, bytes(frame.payload)) == life.payloads[frame.first_seq]
        assert seq in (0, frame.first_seq - 1)
        seq = frame.last_seq
    return max(seq, life.flushed)


def require_all(files: SimFiles, life: Life, label: str) -> None:
    """A reader sees all that was acknowledged, and a cut of the power after it takes none of it."""
    seq = shown(files, life)
    assert life.acknowledged <= seq <= life.attempted, label
    for image in files.images(random.Random(5), 2):
        assert reopen(image.files, epoch=20, floor=life.floor).last_seq >= seq, (
            f"{label}, then {image.label}"
        )


def marks(files: SimFiles, first: bytes) -> Iterator[tuple[str, SimFiles]]:
    """Yield machines with whatever may have become of MARK; `first` is an old one."""
    there = files.killed()
    yield "MARK as it is", there
    if not there.exists(MARK):
        return
    whole = there.read(MARK)
    flipped = bytearray(whole)
    flipped[-1:] = bytes([flipped[-1] ^ 4]) if flipped else b""
    for label, content in (("flipped", bytes(flipped)), ("old", first), ("torn", whole[:17])):
        machine = files.killed()
        machine.unlink(MARK)
        machine.write(MARK, content)
        yield f"MARK is {label}", machine
    machine = files.killed()
    machine.unlink(MARK)
    yield "MARK is gone", machine


def first_mark() -> bytes:
    life = Life(SimFiles())
    life.open()
    return life.files.read(MARK)


def test_a_reader_sees_what_was_acknowledged_on_every_disk_that_a_power_cut_leaves() -> None:
    for label, life in lives():
        for image in life.files.images(random.Random(1), 5):
            require_all(image.files, life, f"{label}, {image.label}")


def test_a_reader_after_a_kill_sees_what_was_acknowledged_whatever_became_of_mark() -> None:
    for label, life in lives():
        for how, machine in marks(life.files, first_mark()):
            require_all(machine, life, f"{label}, {how}")


def failed_lives() -> Iterator[tuple[str, Life]]:
    """Yield lives whose disk fails once; a failed sync leaves bytes readable and never durable."""
    whole = Life(SimFiles())
    run(whole)
    for at in range(1, whole.files.operations + 1):
        if whole.files.trace[at - 1].what not in ("pwrite", "sync"):
            continue
        for when in (When.BEFORE, When.MIDDLE, When.AFTER):
            life = Life(SimFiles([Fault(at, Kind.EIO, when)]))
            try:
                run(life)
            except (OSError, PoisonedError, UnavailableError):
                yield f"{when.value} step {at} ({whole.files.trace[at - 1].what}) fails", life


def test_what_a_failed_sync_left_to_be_read_is_not_shown_and_then_lost() -> None:
    count = 0
    for label, life in failed_lives():
        for how, machine in marks(life.files, first_mark()):
            require_all(machine, life, f"{label}, {how}")
            count += 1
    assert count > 100


def test_a_reader_whose_sync_fails_says_so_and_shows_less_only_where_it_says_so() -> None:
    life = Life(SimFiles())
    for step in steps(life)[:9]:
        step()
    life.files.unlink(MARK)
    whole = life.files.killed()
    seq = shown(whole, life)
    synced = [n for n, step in enumerate(whole.trace, 1) if step.what in ("sync", "sync_dir")]
    assert synced
    for at in synced:
        machine = life.files.killed()
        machine.faults = (Fault(at, Kind.EIO),)
        with pytest.raises(OSError, match="Input/output"):
            shown(machine, life)
        machine.faults = ()
        again = shown(machine, life)
        assert again <= seq
        for image in machine.images(random.Random(5), 6):
            assert reopen(image.files, epoch=20, floor=life.floor).last_seq >= again


class At:
    """A fault that never hits: at one of the reader's steps it lets the owner act."""

    def __init__(self, files: SimFiles, at: int, act: Callable[[], object]) -> None:
        self._files, self._at, self._act = files, files.operations + at, act
        self.is_done = False
        files.faults = [self]  # pyright: ignore[reportAttributeAccessIssue]

    def hits(self, operation: int) -> bool:
        if operation >= self._at and not self.is_done:
            self._files.faults = ()
            self.is_done = True
            self._act()
        return False


def before_the_act(*, has_mark: bool, is_locked: bool) -> tuple[Life, Lock | None]:
    life = Life(SimFiles())
    for step in steps(life)[:15]:
        step()
    if not has_mark:
        file = life.files.open(MARK)
        file.pwrite(b"\xff", 30)
    return life, life.files.lock(MARK) if is_locked else None


def checkpoints(life: Life) -> None:
    """Two, so that the segments that a reader knew are recycled."""
    for _ in range(2):
        life.append(size=200)
        life.checkpoint()
    life.append()


def dies_in_a_frame(life: Life) -> None:
    at = life.files.operations
    life.files.faults = (Fault(at + 1, Kind.EIO, When.MIDDLE),)
    with pytest.raises(OSError, match="Input/output"):
        life.append()
    life.files.faults = ()


def starts(life: Life) -> None:
    """A new owner: the one before is dead, its last frame was never synced."""
    life.append(sync=False)
    life.open()
    life.append()


def starts_and_dies(life: Life) -> None:
    """A new owner that dies between its fresh segment's name and the sync of that."""
    life.append(sync=False)
    machine = life.files
    renamed = next(n for n, step in enumerate(trial(life), 1) if step.what == "rename")
    machine.faults = (Fault(machine.operations + renamed + 1, Kind.EIO),)
    with pytest.raises(UnavailableError):
        life.open()
    machine.faults = ()


def trial(life: Life) -> list:
    machine = life.files.killed()
    reopen(machine, epoch=life.epoch + 1, floor=life.floor)
    return machine.trace


ACTS = {
    "appends": lambda life: life.append(),
    "appends without a sync": lambda life: life.append(sync=False),
    "appends what the next segment takes": lambda life: life.append(size=300),
    "checkpoints twice": checkpoints,
    "dies in a frame": dies_in_a_frame,
    "closes": lambda life: life.close(),
    "is followed by another": starts,
    "is followed by one that fails": starts_and_dies,
}


@pytest.mark.parametrize("is_locked", [False, True], ids=["nobody holds MARK", "the owner holds"])
@pytest.mark.parametrize("has_mark", [True, False], ids=["MARK", "no MARK"])
@pytest.mark.parametrize("act", ACTS)
def test_an_owner_may_do_anything_at_any_step_of_a_read(
    act: str, has_mark: bool, is_locked: bool
) -> None:
    at = 0
    while True:
        at += 1
        life, _held = before_the_act(has_mark=has_mark, is_locked=is_locked)
        before, floor = life.acknowledged, life.floor
        between = At(life.files, at, lambda life=life: ACTS[act](life))
        follower = WalFollower(life.files, LOG, store_id=STORE_ID)
        try:
            frames = follower.poll(SegmentNumber(floor))
        except SegmentRecycled as signal:
            if signal.segment >= life.floor:
                raise
            frames = follower.poll(SegmentNumber(life.floor))
        life.files.faults = ()
        label = f"{act} at step {at}"
        seqs = [seq for frame in frames for seq in range(frame.first_seq, frame.last_seq + 1)]
        assert seqs == [*range(seqs[0], seqs[-1] + 1)] if seqs else True, label
        seq = max([life.flushed if life.floor != floor else 0, *seqs])
        assert before <= seq, label
        for image in life.files.images(random.Random(at), 5):
            found = reopen(image.files, epoch=30, floor=life.floor).last_seq
            assert found >= seq, f"{label}, then {image.label}"
        if not between.is_done:
            break
    assert at > 3


def test_a_reader_that_goes_on_shows_each_commit_once_whatever_becomes_of_mark() -> None:
    """It follows a whole life, with switches, checkpoints and a new owner, and no MARK at all."""
    life = Life(SimFiles())
    follower = WalFollower(life.files, LOG, store_id=STORE_ID)
    seq = 0
    for step in steps(life):
        step()
        if life.files.exists(MARK):
            file = life.files.open(MARK)
            file.pwrite(b"\xff" * 4, 20)
        for frame in follower.poll(SegmentNumber(life.floor)):
            assert frame.first_seq > seq
            seq = frame.last_seq
            assert bytes(frame.payload) == life.payloads[frame.first_seq][1]
        assert life.acknowledged <= max(seq, life.flushed)
        for image in life.files.images(random.Random(0), 3):
            assert reopen(image.files, epoch=9, floor=life.floor).last_seq >= seq


def test_damage_that_recovery_refuses_is_not_an_end_for_a_reader_either() -> None:
    """Of each byte of the newest segment's frames but the last one, with an old MARK or none."""
    life = Life(SimFiles())
    life.open()
    old = life.files.read(MARK)
    for _ in range(3):
        life.append()
    (name,) = [name for name in life.files.list(LOG) if name.endswith(".wal")]
    whole = life.files.read(LOG / name)
    for at in range(0, 4096 + 2 * 128, 8):
        for mark in (old, None):
            machine = life.files.killed()
            machine.open(LOG / name).pwrite(bytes([whole[at] ^ 0x10]), at)
            machine.unlink(MARK)
            if mark is not None:
                machine.write(MARK, mark)
            with pytest.raises((SegmentRecycled, CorruptionError)):
                shown(machine, life)
