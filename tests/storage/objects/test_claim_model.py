"""Whoever claims a log in a bucket finds all that was acknowledged before, in all interleavings."""

from __future__ import annotations

import pytest

from tests.nightly import by_day
from tests.storage.objects.claim_model import DEFECTS, explored


@pytest.mark.parametrize(
    ("claimers", "frames"), by_day([(1, 2), (1, 3)], [(1, 2), (1, 3), (1, 4), (2, 1)])
)
def test_nothing_that_was_acknowledged_is_missing_to_a_later_owner(claimers, frames):
    states, wrong = explored(claimers, frames)
    assert wrong == ""
    assert states > 4_000


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_step_left_out_is_found(defect):
    _, wrong = explored(DEFECTS[defect], 2, defect)
    assert "is not in what" in wrong
