"""Whatever a crash leaves of the manifest, the store opens with all that was acknowledged."""

import random
from itertools import islice

import pytest

from tests.crash.manifest_scenario import Progress, check, make_store, marks, run
from tests.crash.moments import most_of
from tests.support.simulated_files import Fault, SimFiles, SimulatedCrash, When


def crashed(at: int, when: When, files: SimFiles | None = None) -> tuple[SimFiles, Progress] | None:
    """Run until step `at`; None when the scenario has fewer steps."""
    files, progress = files or SimFiles(), Progress()
    files.faults = [Fault(files.operations + at, when=when)]
    try:
        run(files, progress)
    except SimulatedCrash:
        return files, progress
    return None


@pytest.mark.parametrize("when", list(When))
def test_a_power_cut_at_any_step_loses_nothing_acknowledged(when):
    at, seen = 1, 0
    while stopped := crashed(at, when):
        files, progress = stopped
        for image in files.images(random.Random(at)):
            seen += 1
            check(image.files, progress)
        at += 1
    assert at > 80
    assert seen > 200


@pytest.mark.parametrize("when", list(When))
def test_a_kill_at_any_step_and_a_power_cut_after_the_next_open_lose_nothing(when):
    at = 1
    while stopped := crashed(at, when):
        files, progress = stopped
        after = files.killed()
        record = make_store(after)
        progress.acknowledged = list(marks(record))  # shown to somebody: it must stay
        for image in after.images(random.Random(at)):
            check(image.files, progress)
        at += 1


def initialise_until(files: SimFiles, at: int) -> bool:
    """Make a store and crash at step `at`; False when it is done before."""
    files.faults = [Fault(files.operations + at)]
    try:
        make_store(files)
    except SimulatedCrash:
        return True
    return False


def test_a_store_that_was_killed_twice_while_it_was_made_is_completed_by_the_third():
    first = 1
    while initialise_until(files := SimFiles(), first):
        for image in islice(files.images(random.Random(first)), most_of(1)):
            second = 1
            while initialise_until(again := image.files.killed(), second):
                for last in again.images(random.Random(second)):
                    check(last.files, Progress())
                check(again.killed(), Progress())
                second += 1
        first += 1
    assert first > 12
