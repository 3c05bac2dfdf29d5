"""Whatever moment a crash chooses, the log gives back a prefix with all that was acknowledged."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.crash.moments import chance, most_of, some
from tests.crash.wal_scenario import Life, reopen, run
from tests.support.simulated_files import Fault, SimFiles, SimulatedCrash, When


def lives(*, syncs_writes: bool = True) -> Iterator[tuple[str, Life]]:
    """Yield a life for every step at which it can end, before or in the middle of it."""
    whole = Life(machine(syncs_writes))
    run(whole)
    yield "to its end", whole
    for at in range(1, whole.files.operations + 1):
        what = whole.files.trace[at - 1].what
        for when in (When.BEFORE, When.MIDDLE) if what == "pwrite" else (When.BEFORE,):
            life = Life(machine(syncs_writes))
            life.files.faults = (Fault(at, when=when),)
            with pytest.raises(SimulatedCrash):
                run(life)
            yield f"{when.value} step {at} ({what})", life


def machine(syncs_writes: bool) -> SimFiles:
    files = SimFiles()
    files.syncs_writes = syncs_writes
    return files


def lost(files: SimFiles) -> SimFiles:
    """Return the disk of a power cut that spares nothing unsynced."""
    return next(files.images(random.Random(0), 1)).files


@pytest.mark.parametrize("syncs_writes", [True, False], ids=["one call", "two calls"])
def test_every_power_cut_leaves_every_acknowledged_commit_and_what_was_shown_stays(
    syncs_writes: bool,
) -> None:
    count = 0
    for label, life in lives(syncs_writes=syncs_writes):
        for image in life.files.images(random.Random(1), most_of(4)):
            where = f"{label}, {image.label}"
            recovery = reopen(image.files, epoch=10, floor=life.floor)
            life.check(recovery)
            again = reopen(lost(image.files), epoch=11, floor=life.floor)
            assert again.last_seq == recovery.last_seq, where
            count += 1
    assert count > 50 * most_of(4)


def test_a_kill_then_a_power_cut_lose_nothing_that_was_shown_between_them() -> None:
    for label, life in lives():
        killed = life.files.killed()
        recovery = reopen(killed, epoch=10, floor=life.floor)
        life.check(recovery)
        again = reopen(lost(killed), epoch=11, floor=life.floor)
        life.check(again)
        assert again.last_seq == recovery.last_seq, label


def test_a_crash_inside_recovery_changes_nothing_of_what_the_next_one_finds() -> None:
    """Also when that one crashes again: at every step of recovery, from the likeliest disks."""
    for label, life in some(list(lives()), chance("recovery"), 4):
        for image in life.files.images(random.Random(2), 3):
            expected = recovered_seq(life, image.files.killed(), epoch=20)
            at = 0
            while True:
                at += 1
                failing = image.files.killed()
                failing.faults = (Fault(at, when=When.MIDDLE),)
                try:
                    reopen(failing, epoch=10, floor=life.floor)
                except SimulatedCrash:
                    where = f"{label}, {image.label}, step {at} of recovery"
                    assert recovered_seq(life, failing.killed(), epoch=11) == expected, where
                    for second in failing.images(random.Random(3), 4):
                        assert recovered_seq(life, second.files, epoch=11) == expected, where
                else:
                    break


def recovered_seq(life: Life, files: SimFiles, *, epoch: int) -> int:
    recovery = reopen(files, epoch=epoch, floor=life.floor)
    life.check(recovery)
    return recovery.last_seq


def test_a_log_goes_on_after_any_crash() -> None:
    for label, life in lives():
        image = next(life.files.images(random.Random(4), 1))
        life.files, life.epoch = image.files, 10
        life.open()
        life.append()
        life.checkpoint()
        life.append(sync=False)
        life.close()
        life.open()
        assert life.acknowledged == life.wal.end.seq, label
