"""Processes that a test may kill."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.races.processes import Spares


@pytest.fixture(scope="module")
def spares() -> Iterator[Spares]:
    """Processes that start while others are killed; those left over end with the module."""
    found = Spares()
    yield found
    found.end()
