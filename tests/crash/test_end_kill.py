"""An owner that is killed between any two steps of its end has lost nothing, and owes what it owed.

A real process, with real children: LOCK, the log and the records are those that the kill left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import siltstone as st
from siltstone.failpoints import Failpoint, Point
from siltstone.maintenance.schedule.scheduler import HISTORY_PARTS_MAX
from tests.maintenance.ends import ROWS, SMALL, age, fill, is_sound, status_of

pytestmark = pytest.mark.timeout(600)
ENDS = """
import sys
import siltstone as st
options = {"memory_bytes_max": 1 << 20, "retention": "0s", "close_upkeep_s": 300}
db = st.connect(sys.argv[1], background=False, **options)
db["t"].upsert([{"id": 0, "v": 1}])
db.tag("audit")
db.close(upkeep=True)
"""
STEPS = [
    Failpoint.END_AFTER_LOG,
    Failpoint.END_AFTER_MERGE,
    Failpoint.END_AFTER_OPTIMIZE,
    Failpoint.VACUUM_BEFORE_PLAN,
    Failpoint.VACUUM_AFTER_FLOOR,
    Failpoint.VACUUM_AFTER_TRIM,
    Failpoint.VACUUM_AFTER_UNLINK,
    Failpoint.VACUUM_BEFORE_DELETE,
    Failpoint.END_AFTER_VACUUM,
]


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that is behind with all that an end may do."""
    root = tmp_path_factory.mktemp("behind") / "s"
    with st.connect(root, background=False) as db:
        for _ in range(HISTORY_PARTS_MAX + 1):
            fill(db, 3)
        fill(db)
    age(root)
    return root


@pytest.mark.parametrize("point", STEPS, ids=lambda point: point.label)
def test_a_kill_between_two_steps_of_an_end_costs_nothing(
    behind: Path, tmp_path: Path, point: Point
) -> None:
    root = tmp_path / "s"
    subprocess.run(["cp", "-a", behind, root], check=True)
    orders = {"SILTSTONE_FAILPOINTS": f"{point.label}=kill"}
    command = [sys.executable, "-c", ENDS, str(root)]
    killed = subprocess.run(command, env=os.environ | orders, check=False)
    assert killed.returncode == -signal.SIGKILL
    with st.connect(root, read_only=True) as db:
        assert (db.tags(), db["t"].get(0)) == ({"audit": db.seq - 1}, {"id": 0, "v": 1})
    # At once: LOCK may still say that the owner ends, of a process that is no more.
    options = {"memory_bytes_max": SMALL, "close_upkeep_s": 300, "join_timeout_s": 0}
    db = st.connect(root, background=False, **options)
    with db.snapshot(tag="audit") as snapshot:
        assert snapshot["t"].get(0) == {"id": 0, "v": 1}
    db.close(upkeep=True)
    found = status_of(root)
    assert (found.tables[0].base_rows, found.owed) == (ROWS, ())
    assert found.tables[0].history_parts < HISTORY_PARTS_MAX // 2
    assert is_sound(root, 1)
