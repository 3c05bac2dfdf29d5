"""A disk that fails or is full, at whatever step, costs a typed error and nothing that was there.

The call that meets it raises a SiltstoneError, and what that says holds: in doubt is decided by a
reopen, anything else did not happen. When the cause is gone the same call works, at most after a
reopen, and then a power cut loses nothing (guarantees 1-4). Each scenario meets a few faults at
some of its steps (`moments`); `SILTSTONE_CRASH=all` tries all faults at all steps.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.crash.moments import IS_LONG, MOMENTS, chance, chosen, some
from tests.crash.store_life import (
    Life,
    Shot,
    answer,
    check,
    follow,
    images_of,
    kind_of,
    rows_of,
    with_fault,
)
from tests.crash.store_scenarios import SCENARIOS
from tests.nightly import IS_NIGHTLY, by_day
from tests.support.simulated_files import Fault, Kind, Operation, SimFiles, When

FAULTS_TRIED, SHORT_TRIED = 3, by_day(1, 3)
FAULTS = [
    Fault(0, kind, when, is_sticky=is_sticky)
    for kind, when in (
        (Kind.EIO, When.BEFORE),
        (Kind.EIO, When.AFTER),
        (Kind.ENOSPC, When.BEFORE),
        (Kind.ENOSPC, When.MIDDLE),
    )
    for is_sticky in (False, True)
]
pytestmark = [
    pytest.mark.xdist_group("lives of stores"),  # they are recorded once
    pytest.mark.timeout(36_000 if IS_LONG else by_day(300, 1_200)),
]
scenarios = pytest.mark.parametrize("name", SCENARIOS)


def faults_of(trace: Sequence[Operation], rng: random.Random) -> list[Fault]:
    """Return a fault at some steps, in any order, of each kind as many; or all at all steps."""
    steps = [at + 1 for at in chosen([{kind_of(each)} for each in trace], rng, MOMENTS)]
    if IS_LONG:
        return [replace(fault, at=at) for at in steps for fault in FAULTS]
    rng.shuffle(steps)
    kinds = itertools.cycle(rng.sample(FAULTS, len(FAULTS)))
    return [replace(fault, at=at) for fault, at in zip(kinds, steps, strict=False)]


def are_enough(tried: int, failed: int) -> bool:
    """Say whether a short run has tried enough faults: some are met by the reserve alone."""
    return not IS_NIGHTLY and tried >= FAULTS_TRIED and failed > 0


@scenarios
def test_a_fault_is_a_typed_error_and_the_call_works_when_the_cause_is_gone(name):
    scenario = SCENARIOS[name]
    states, trace = scenario.recorded
    rng = chance(name)
    total = 0
    for tried, fault in enumerate(faults_of(trace, rng)):
        if are_enough(tried, total):
            break
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


def test_rows_that_lance_refused_are_read_again_as_soon_as_the_disk_reads_again():
    scenario = SCENARIOS["a table that Lance refuses"]
    states, trace = scenario.recorded
    reads = [
        at
        for at, each in enumerate(trace, 1)
        if each.what == "read" and str(each.path).endswith("rows.arrow")
    ]
    assert reads
    for at in reads:
        life, _ = with_fault(scenario, states, Fault(at, Kind.EIO, is_sticky=True))
        assert life.seq == max(states)
        assert answer(life.store.snapshot()) == rows_of(states[life.seq])
        life.abandon()


@scenarios
def test_a_short_write_is_finished_and_nobody_hears_of_it(name):
    scenario = SCENARIOS[name]
    states, trace = scenario.recorded
    rng = chance(name)
    writes = [at for at, each in enumerate(trace, 1) if each.what == "pwrite"]
    for at in some(writes, rng, SHORT_TRIED):
        life = scenario.run(Life(SimFiles([Fault(at, Kind.SHORT)]), scenario.options))
        shot = Shot(f"short at {at}", life.files, life.acknowledged, life.begun)
        assert answer(life.store.snapshot()) == rows_of(states[life.seq])
        life.abandon()
        # A reader syncs what it finds beyond that, and shows it then (ADR 78).
        assert follow(life.files.killed(), shot, states, shot.label) >= life.acknowledged
        for label, files in images_of(shot, rng):
            check(files, shot, states, rng, label)
