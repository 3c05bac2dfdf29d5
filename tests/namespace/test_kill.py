"""A process that dies anywhere around a batch commit leaves all tables with it, or none."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import siltstone as st
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.clients import append, ids, make, opened, rows

VICTIM = """
import sys
import siltstone as st
from siltstone.failpoints import arm
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.clients import rows
from tests.namespace.staging import staged
from tests.namespace.test_transactions import committed

db = st.connect(sys.argv[1], background=False)
ns = SiltstoneNamespace(db)
batch = [staged(ns, name, rows(10, 20)) for name in "ab"]
arm(sys.argv[2])
committed(ns, *batch)
"""


@pytest.mark.parametrize(
    ("order", "is_there"),
    [
        ("commit.before_frame=kill", False),
        ("commit.after_frame=kill", True),
    ],
)
def test_a_kill_leaves_both_tables_or_none(tmp_path: Path, order: str, is_there: bool) -> None:
    where = tmp_path / "shop"
    with st.connect(where, background=False) as db:
        for name in "ab":
            make(SiltstoneNamespace(db), name, rows(0, 10))
    done = subprocess.run([sys.executable, "-c", VICTIM, str(where), order], check=False)
    assert done.returncode == -signal.SIGKILL
    wanted = list(range(20 if is_there else 10))
    with st.connect(where, background=False) as db:
        ns = SiltstoneNamespace(db)
        for name in "ab":
            assert ids(opened(ns, name)) == wanted
            append(ns, name, rows(50, 51))
            assert db[name].count() == len(wanted) + 1
        assert db.verify(deep=True).is_sound
