"""A bank under everything at once and kills at random never loses or shows a cent more.

`SILTSTONE_SOAK_S` makes it longer, `SILTSTONE_SOAK_SEED` other; `python -m proof.soak` is the same
for as long as one likes.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proof.soak import mirrored
from proof.soak.soak import Soak

SECONDS = float(os.environ.get("SILTSTONE_SOAK_S", "60"))
SEED = int(os.environ.get("SILTSTONE_SOAK_SEED", "20"))


@pytest.mark.timeout(int(SECONDS) + 240)
def test_no_snapshot_of_any_process_is_wrong_whoever_is_killed(tmp_path: Path) -> None:
    with mirrored.bucket(print) as url:
        soak = Soak(tmp_path, SEED, mirror=url)
        soak.run(SECONDS)
    print(soak)  # noqa: T201 - what it was worth
    assert soak.commits
    assert soak.kills
    assert not soak.idle
    assert soak.write_skews  # else the games could show nothing
    assert soak.contended
