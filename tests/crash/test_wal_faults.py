"""An error of the disk, at whatever step, never makes the log promise what it cannot keep."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from siltstone.errors import ClosedError, PoisonedError, UnavailableError
from tests.crash.wal_scenario import Life, reopen, run, run_stubborn
from tests.support.simulated_files import Fault, Kind, SimFiles, When


def steps_of_a_whole_life() -> list[str]:
    whole = Life(SimFiles())
    run(whole)
    return [step.what for step in whole.files.trace]


def faulty_lives() -> Iterator[tuple[Fault, Life]]:
    for at, what in enumerate(steps_of_a_whole_life(), 1):
        kinds = [(Kind.EIO, When.BEFORE), (Kind.EIO, When.AFTER)]
        if what == "pwrite":
            kinds.append((Kind.ENOSPC, When.MIDDLE))
        for kind, when in kinds:
            for is_sticky in (False, True):
                fault = Fault(at, kind, when, is_sticky=is_sticky)
                yield fault, Life(SimFiles([fault]))


def test_what_was_acknowledged_before_an_error_survives_a_reopen_and_then_a_power_cut() -> None:
    stopped = 0
    for fault, life in faulty_lives():
        try:
            run_stubborn(life)
        except (OSError, UnavailableError):
            stopped += 1
        machine = life.files.killed()  # the same boot: the page cache is still there
        recovery = reopen(machine, epoch=10, floor=life.floor)
        life.check(recovery)
        for source in (life.files, machine):
            for image in source.images(random.Random(0), 2):
                again = reopen(image.files, epoch=11, floor=life.floor)
                life.check(again)
                if source is machine:
                    assert again.last_seq == recovery.last_seq, f"{fault}, {image.label}"
    assert stopped > 100


def test_a_log_acknowledges_nothing_after_a_failed_write_or_sync() -> None:
    poisoned = 0
    for fault, life in faulty_lives():
        try:
            run_stubborn(life)
        except OSError:
            life.files.faults = ()
            trace = life.files.operations
            for call in (life.append, life.sync, life.wal.rotate):
                with pytest.raises((PoisonedError, ClosedError)):
                    call()
            life.wal.close()
            assert life.files.operations == trace, fault
            poisoned += 1
        except UnavailableError:
            pass
    assert poisoned > 50


def test_short_writes_are_finished() -> None:
    for at in range(1, len(steps_of_a_whole_life()) + 1):
        life = Life(SimFiles([Fault(at, Kind.SHORT)]))
        run(life)
        assert life.acknowledged < life.wal.end.seq
        life.close()
        life.check(reopen(life.files, epoch=10, floor=life.floor))


def test_a_full_disk_fails_commits_cleanly_until_there_is_space_again() -> None:
    life = Life(SimFiles())
    life.open()
    life.append()
    life.append()
    life.append()
    life.files.faults = (Fault(1, Kind.ENOSPC, is_sticky=True),)
    for _ in range(3):
        with pytest.raises(UnavailableError):
            life.append()
        assert not life.wal.is_poisoned
    life.files.faults = ()
    life.append()
    life.check(reopen(life.files, epoch=10))
    assert life.acknowledged == 4
