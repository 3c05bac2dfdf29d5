"""A disk that fails or is full, at whatever step, costs a typed error and nothing that was there.

The call that meets it raises a SiltstoneError, and what that says holds: in doubt is decided by a
reopen, anything else did not happen. When the cause is gone the same call works, at most after a
reopen, and then a power cut loses nothing (guarantees 1-4). Some steps (`moments`);
`SILTSTONE_CRASH=all` takes all.
"""

from __future__ import annotations

import random

import pytest

from tests.crash.moments import IS_LONG, chance, most_of
from tests.crash.store_life import (
    Life,
    Shot,
    answer,
    check,
    follow,
    images_of,
    rows_of,
    with_fault,
)
from tests.crash.store_scenarios import SCENARIOS
from tests.support.simulated_files import Fault, Kind, SimFiles, When

STEPS, STEPS_MAX = 3, 24
FAULTS = [
    (Kind.EIO, When.BEFORE),
    (Kind.EIO, When.AFTER),
    (Kind.ENOSPC, When.BEFORE),
    (Kind.ENOSPC, When.MIDDLE),
]
scenarios = pytest.mark.parametrize("name", SCENARIOS)


def steps_of(operations: int, rng: random.Random) -> list[int]:
    """Return some steps in any order, or all; of many a caller takes the first `STEPS`."""
    every = range(1, operations + 1)
    return list(every) if IS_LONG else rng.sample(every, min(STEPS_MAX, operations))


def are_enough(tried: int, failed: int) -> bool:
    """Say whether a short run has tried enough steps: some faults are met by the reserve alone."""
    return not IS_LONG and tried >= most_of(STEPS) and failed > 0


@pytest.mark.parametrize("is_sticky", [False, True])
@pytest.mark.parametrize(("kind", "when"), FAULTS)
@scenarios
def test_a_fault_is_a_typed_error_and_the_call_works_when_the_cause_is_gone(
    name, kind, when, is_sticky
):
    scenario = SCENARIOS[name]
    states, operations = scenario.recorded
    rng = chance(f"{name} {kind} {when} {is_sticky}")
    total = 0
    for tried, at in enumerate(steps_of(operations, rng)):
        if are_enough(tried, total):
            break
        fault = Fault(at, kind, when, is_sticky=is_sticky)
        life, failed = with_fault(scenario, states, fault)
        # A checkpoint after a durable commit may fail without failing the commit.
        is_noted = life.db is not None and life.db.status().failure is not None
        total += failed or is_noted
        assert failed <= 1, fault
        assert life.seq == max(states), fault
        if life.db is not None:
            assert answer(life.db.snapshot()) == rows_of(states[life.seq]), fault
        shot = Shot(str(fault), life.files, life.acknowledged, life.begun)
        for label, files in images_of(shot, rng):
            check(files, shot, states, rng, label)
        life.abandon()
    assert total


@scenarios
def test_a_short_write_is_finished_and_nobody_hears_of_it(name):
    scenario = SCENARIOS[name]
    states, operations = scenario.recorded
    rng = chance(name)
    for at in steps_of(operations, rng) if IS_LONG else steps_of(operations, rng)[: most_of(STEPS)]:
        life = scenario.run(Life(SimFiles([Fault(at, Kind.SHORT)]), scenario.options))
        shot = Shot(f"short at {at}", life.files, life.acknowledged, life.begun)
        assert answer(life.store.snapshot()) == rows_of(states[life.seq])
        life.abandon()
        # A reader syncs what it finds beyond that, and shows it then (ADR 78).
        assert follow(life.files.killed(), shot, states, shot.label) >= life.acknowledged
        for label, files in images_of(shot, rng):
            check(files, shot, states, rng, label)
