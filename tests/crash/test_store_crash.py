"""Whenever a store is stopped, it opens with exactly the commits 1..p: no acknowledged one is lost,
none is half there, none is there twice, and it goes on (guarantees 1-4 and 8).

A moment is a file operation of a scenario. Some are tried (`moments`), with one disk each that a
power cut may leave; `SILTSTONE_CRASH=all` tries all disks of all moments.
"""

from __future__ import annotations

import pytest

from tests.crash.moments import chance, some
from tests.crash.store_life import (
    Camera,
    Life,
    Shot,
    answer,
    check,
    images_of,
    open_store,
    photographed,
)
from tests.crash.store_scenarios import SCENARIOS
from tests.nightly import by_day
from tests.support.simulated_files import Fault, SimFiles, SimulatedCrash, When

pytestmark = pytest.mark.xdist_group("lives of stores")  # they are recorded once
scenarios = pytest.mark.parametrize("name", SCENARIOS)


@scenarios
def test_a_power_cut_at_any_step_leaves_a_prefix_with_all_that_was_acknowledged(name):
    shots, states = photographed(SCENARIOS[name])
    rng = chance(name)
    for shot in shots:
        for label, files in images_of(shot, rng):
            check(files, shot, states, rng, label)


@scenarios
def test_what_opens_after_a_kill_at_any_step_survives_a_power_cut_right_after_that(name):
    shots, states = photographed(SCENARIOS[name])
    rng = chance(name)
    for shot in some(shots, rng, 4):
        db = open_store(shot.files)
        seq, now = db.seq, answer(db)
        assert shot.acknowledged <= seq <= shot.begun, shot.label
        assert seq not in states or now == states[seq], shot.label
        shown = Shot(shot.label, shot.files, seq, seq)
        for label, files in images_of(shown, rng):
            again = open_store(files)
            assert (again.seq, answer(again)) == (seq, now), label


@scenarios
def test_a_recovery_may_be_cut_off_at_any_step_and_is_run_again(name):
    shots, states = photographed(SCENARIOS[name])
    rng = chance(name)
    for shot in some(shots, rng, 2):
        for label, files in images_of(shot, rng):
            for again in some(_photographed_recovery(files, shot, label), rng, 2):
                for deeper, last in images_of(again, rng):
                    check(last, again, states, rng, deeper)


@pytest.mark.parametrize("name", ["hand-over", "asynchronous commits", "merges", "vacuums"])
def test_an_owner_killed_with_unsynced_writes_hands_over_whole_whatever_cuts_the_claim_off(name):
    """The heir reads what the dead one wrote and never synced: a power cut may still take it."""
    shots, states = photographed(SCENARIOS[name])
    rng = chance(name)
    for shot in some(shots, rng, 4):
        for moment in some(_photographed_recovery(shot.files, shot, shot.label), rng, 3):
            for label, files in images_of(moment, rng):
                check(files, moment, states, rng, label)
            check(moment.files.killed(), moment, states, rng, f"{moment.label}, killed")


def _photographed_recovery(files: SimFiles, shot: Shot, label: str) -> list[Shot]:
    """Recover, and return each moment of it; what it showed counts as acknowledged at its end."""
    life = Life(files, acknowledged=shot.acknowledged, begun=shot.begun)
    camera = Camera(life)
    files.faults = [camera]
    life.open()
    life.acknowledged = life.begun = life.store.seq
    camera.take("recovered")
    life.abandon()
    return [Shot(f"{label}; {s.label}", s.files, s.acknowledged, s.begun) for s in camera.shots]


@pytest.mark.parametrize("when", list(When))
@pytest.mark.parametrize("name", ["a transaction over tables", "merges", "tables that change"])
def test_a_crash_inside_an_operation_is_swallowed_by_nobody(name, when):
    scenario = SCENARIOS[name]
    states, trace = scenario.recorded
    rng = chance(f"{name} {when}")
    for at in rng.sample(range(1, len(trace) + 1), by_day(3, 12)):
        life = Life(SimFiles([Fault(at, when=when)]), scenario.options)
        with pytest.raises(SimulatedCrash):
            scenario.run(life)
        shot = Shot(f"{when} operation {at}", life.files, life.acknowledged, life.begun)
        life.abandon()
        for label, files in images_of(shot, rng):
            check(files, shot, states, rng, label)
