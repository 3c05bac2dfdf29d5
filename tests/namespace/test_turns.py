"""Requests about one name take turns, and none waits for ever for another."""

from __future__ import annotations

import pytest

from siltstone.errors import BusyError
from siltstone.lance_versions.turns import Turns


def test_who_waits_for_a_turn_that_does_not_end_is_told_to_come_again() -> None:
    turns = Turns(wait_s_max=0.05)
    with turns.of("t"), turns.of("another"):
        assert turns.is_taken("t")
        with pytest.raises(BusyError, match=r"another request .* still runs"), turns.of("t"):
            pass
        assert turns.is_taken("t")
    with turns.of("t"):
        pass
    assert not turns.is_taken("t")
