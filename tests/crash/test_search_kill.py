"""After a kill anywhere in maintenance searches find what is there: as it is now, and once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import siltstone as st
from tests.crash.search_victim import SIZE, vector

ROOT = Path(__file__).parent.parent.parent
POINTS = (
    "commit.after_frame",
    "flush.after_fragments",
    "merge.after_deletions",
    "keys.after_write",
    "merge.before_publish",
    "merge.after_publish",
    "index.after_build",
    "index.before_publish",
    "index.after_publish",
    "optimize.before_plan",
    "vacuum.after_delete",
)


@pytest.mark.parametrize("point", POINTS)
def test_a_search_after_a_kill_is_that_of_brute_force(tmp_path: Path, point: str) -> None:
    root = tmp_path / "s"
    command = [sys.executable, "-m", "tests.crash.search_victim", str(root), point]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr[-2000:]
    acknowledged = int(done.stdout.split()[-1])
    with st.connect(root, background=False, retention_s=0) as db:
        require_exact(db, acknowledged)
        db["t"].upsert({"id": 5, "place": [99.0] * SIZE, "words": "change99"})
        db.checkpoint()
        db.merge()
        db.optimize(target_rows=200)
        require_exact(db, acknowledged)
        assert [row["id"] for row in db["t"].search("change99").to_arrow().to_pylist()] == [5]
        assert db.verify(deep=True).is_sound


def require_exact(db: st.Store, acknowledged: int) -> None:
    """Compare searches with the rows that a scan gives, which has all that was acknowledged."""
    rows = db["t"].to_arrow().to_pylist()
    changes = {row["id"]: int(row["words"].split()[0].removeprefix("change")) for row in rows}
    assert max(changes[key] for key in changes if key != 5) >= acknowledged
    places = np.array([row["place"] for row in rows])
    for change in {*range(acknowledged + 1), 99}:
        wanted = np.array(vector(change * 11 % 300, change), np.float32)
        distances = ((places - wanted) ** 2).sum(axis=1)
        nearest = np.sort(distances)[:10]
        for is_exact in (True, False):  # a flat index is exact, too
            found = db["t"].search(wanted, k=10, exact=is_exact).to_arrow()
            assert np.allclose(found.column("_distance").to_numpy(), nearest, atol=1e-3)
            for row in found.to_pylist():
                place = next(each["place"] for each in rows if each["id"] == row["id"])
                assert row["place"] == place
        words = db["t"].search(f"change{change}", k=400).to_arrow().column("id").to_pylist()
        assert sorted(words) == sorted(key for key, n in changes.items() if n == change)
