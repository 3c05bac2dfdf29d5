"""A process that only reads sees all acknowledged commits in what a crash left, without a write.

Some moments (`moments`), one disk each; `SILTSTONE_CRASH=all` tries all.
"""

from __future__ import annotations

import pytest

from tests.crash.moments import chance, some
from tests.crash.store_life import follow, images_of, open_store, photographed
from tests.crash.store_scenarios import SCENARIOS

pytestmark = pytest.mark.xdist_group("lives of stores")  # they are recorded once
scenarios = pytest.mark.parametrize("name", SCENARIOS)


@scenarios
def test_what_a_reader_sees_after_a_crash_the_next_owner_sees_too(name):
    shots, states = photographed(SCENARIOS[name])
    rng = chance(name)
    for shot in some(shots, rng, 4):
        for label, files in images_of(shot, rng):
            seen = follow(files, shot, states, label)
            cut = next(files.images(rng))  # again: whatever it showed is durable
            db = open_store(cut.files)
            assert (seen or 0) <= db.seq, f"{label}, then {cut.label}"
            db.close()
            db = open_store(files)
            assert (seen or 0) <= db.seq, label
            db.close()
            assert (follow(files, shot, states, label) or 0) == db_seq(files), label


def db_seq(files) -> int:
    """Return the seq that the owner of a closed store ends at."""
    with open_store(files.killed()) as db:
        return db.seq


@scenarios
def test_what_a_reader_beside_a_killed_owner_shows_outlives_a_power_cut(name):
    shots, states = photographed(SCENARIOS[name])
    rng = chance(name)
    for shot in some(shots, rng, 4):
        seen = follow(shot.files, shot, states, shot.label)
        db = open_store(next(shot.files.images(rng)).files)
        assert (seen or 0) <= db.seq, shot.label
