"""A table is put back whole or not at all, wherever its process is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import siltstone as st

ROOT = Path(__file__).parent.parent.parent
FEW = ("commit.before_frame", "commit.after_frame")
STAGED = ("attach.before_plan", "attach.after_plan", *FEW)
CASES = [(point, "few") for point in FEW] + [(point, "staged") for point in STAGED]
CASES.append(("attach.after_plan=kill@2", "staged"))  # of the second of two jobs


@pytest.mark.parametrize(("point", "size"), CASES)
def test_a_killed_put_back_has_happened_or_has_not(tmp_path: Path, point: str, size: str) -> None:
    root, order = tmp_path / "s", point if "=" in point else f"{point}=kill"
    command = [sys.executable, "-m", "tests.crash.put_back_victim", str(root), order, size]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr[-2000:]
    before = int(done.stdout.split()[-1])
    with st.connect(root, background=False) as db:
        is_done = point == "commit.after_frame"
        assert db.seq == before + (2 if is_done else 1)
        found = db.diff(before)["t"]
        counts = (0, 0, 0) if is_done else (50, 200, 100)
        assert (found.added, found.removed, found.changed) == counts
        if not is_done:
            assert db.put_back("t", to=before).rows == 350
        assert db.diff(before).rows == 0
        assert db.verify(deep=True).is_sound
