"""A process that dies anywhere around the creation of a namespace leaves it whole, or none."""

# pyright: reportArgumentType=false

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import siltstone as st
from siltstone.namespace import SiltstoneNamespace

VICTIM = """
import sys
import siltstone as st
from siltstone.failpoints import arm
from siltstone.namespace import SiltstoneNamespace

with st.connect(sys.argv[1], background=False) as db:
    ns = SiltstoneNamespace(db)
    tx = ns.transaction()
    arm(sys.argv[2])
    if sys.argv[3] == "create":
        tx.create_namespace({"id": ["new"], "properties": {"owner": "x"}})
        tx.transaction.create_table("new.t", {"n": "int64"})
    else:
        tx.drop_namespace({"id": ["old"], "behavior": "cascade"})
    tx.commit()
"""
BEFORE = ("old", {"owner": "y"}, ["old.t"])


def found(db: st.Store) -> list[object]:
    ns = SiltstoneNamespace(db)
    names = ns.list_namespaces({"id": []}).namespaces
    return [
        (name, ns.describe_namespace({"id": [name]}).properties, in_it(db, name)) for name in names
    ]


def in_it(db: st.Store, name: str) -> list[str]:
    return [table for table in db.tables() if table.startswith(f"{name}.")]


@pytest.mark.parametrize(
    ("what", "order", "is_done"),
    [
        ("create", "ddl.after_plan=kill@2", False),
        ("create", "commit.before_frame=kill", False),
        ("create", "commit.after_frame=kill", True),
        ("drop", "ddl.after_plan=kill@2", False),
        ("drop", "commit.before_frame=kill", False),
        ("drop", "commit.after_frame=kill", True),
    ],
)
def test_a_kill_leaves_the_namespace_and_its_table_or_neither(
    tmp_path: Path, what: str, order: str, is_done: bool
) -> None:
    where = tmp_path / "shop"
    with st.connect(where, background=False) as db:
        if what == "drop":
            ns = SiltstoneNamespace(db)
            ns.create_namespace({"id": ["old"], "properties": {"owner": "y"}})
            db.create_table("old.t", {"n": "int64"})
    arguments = [str(where), order, what]
    done = subprocess.run([sys.executable, "-c", VICTIM, *arguments], check=False)
    assert done.returncode == -signal.SIGKILL
    before = [BEFORE] if what == "drop" else []
    after = [] if what == "drop" else [("new", {"owner": "x"}, ["new.t"])]
    with st.connect(where, read_only=True) as db:
        assert found(db) in (before, after)  # what the dead one did not sync may show later
    with st.connect(where, background=False) as db:
        assert found(db) == (after if is_done else before)
        SiltstoneNamespace(db).create_namespace({"id": ["next"]})
        assert ("next", {}, []) in found(db)
        assert db.verify(deep=True).is_sound
