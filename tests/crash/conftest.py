"""Each failpoint is counted while crashes are tried: the moments behind one are worth a look."""

from collections.abc import Iterator

import pytest

from siltstone.failpoints import CATALOG, arm, disarm


@pytest.fixture(autouse=True, scope="module")
def _failpoints_are_counted() -> Iterator[None]:
    arm(", ".join(f"{point.label}=note" for point in CATALOG))
    yield
    disarm()
