"""A kill while a column gets values, or another type, in the files leaves the table as it was.

The values lie in files of their own, synced before a version of Lance names them: after a kill no
pin does, a reader has the initial value as before, and the next flush or merge writes them anew.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st

VICTIM = """
import sys

import siltstone as st
from siltstone.failpoints import arm

with st.connect(sys.argv[1], background=False) as db:
    if sys.argv[2] == "plain":
        arm(sys.argv[3])
        db["p"].add_column("n", "int64", 7)
    db["t"].add_column("n", "int64", 7)
    db["t"].insert({"id": 11, "n": None})
    if sys.argv[2] == "history":
        arm(sys.argv[3])
    db.checkpoint()
    arm(sys.argv[3])
    db.merge()
"""


@pytest.mark.parametrize("order", ["alter.after_values=kill", "alter.after_values=raise"])
@pytest.mark.parametrize("where", ["history", "base", "plain"])
def test_a_kill_while_a_column_is_filled_changes_nothing(
    tmp_path: Path, where: str, order: str
) -> None:
    root = tmp_path / "s"
    with st.connect(root, background=False) as db:
        db.create_table("p", {"id": "int64"}, data=[{"id": 1}, {"id": 2}])
        table = db.create_table("t", {"id": "int64"}, "id")
        table.insert([{"id": n} for n in range(10)])
        db.checkpoint()
        db.merge()
        table.delete(3)
        table.insert({"id": 10})
        db.checkpoint()
    done = subprocess.run(
        [sys.executable, "-c", VICTIM, str(root), where, order],
        check=False,
        capture_output=True,
    )
    wanted = {-signal.SIGKILL} if "kill" in order else {0, 1}
    assert done.returncode in wanted, done.stderr
    with st.connect(root, background=False) as db:
        assert db["p"].schema.names == ["id"]
        if where == "plain":
            db["t"].add_column("n", "int64", 7)
        for settle in (lambda: None, db.checkpoint, db.merge):
            settle()
            found = {row["id"]: row["n"] for row in db["t"].to_arrow().to_pylist()}
            late = {11: None} if 11 in found else {}
            assert found == {**dict.fromkeys([0, 1, 2, *range(4, 11)], 7), **late}
        db["p"].add_column("n", "int64", 8)
        assert db["p"].to_arrow().to_pylist() == [{"id": 1, "n": 8}, {"id": 2, "n": 8}]
        db.vacuum(dry_run=False, grace_s=0)
        assert db.verify(deep=True).findings == ()


RETYPES = """
import sys

import siltstone as st
from siltstone.failpoints import arm

with st.connect(sys.argv[1], background=False) as db:
    if sys.argv[2] == "plain":
        arm(sys.argv[3])
        db["p"].alter_column("n", type=sys.argv[4])
    db["t"].alter_column("n", type="int64")
    db["t"].insert({"id": 11, "n": 2**40})
    if sys.argv[2] == "history":
        arm(sys.argv[3])
    db.checkpoint()
    arm(sys.argv[3])
    db.merge()
"""


@pytest.mark.parametrize("order", ["alter.after_values=kill", "alter.after_values=raise"])
@pytest.mark.parametrize(
    ("where", "kind"),
    [("history", ""), ("base", ""), ("plain", "int64"), ("plain", "string")],
)
def test_a_kill_while_a_column_gets_its_type_changes_nothing(
    tmp_path: Path, where: str, kind: str, order: str
) -> None:
    root = tmp_path / "s"
    columns = {"id": "int64", "n": "int32"}
    with st.connect(root, background=False) as db:
        db.create_table("p", columns, data=[{"id": n, "n": n} for n in (1, 2)])
        table = db.create_table("t", columns, "id")
        table.insert([{"id": n, "n": n} for n in range(10)])
        db.checkpoint()
        db.merge()
        table.delete(3)
        table.insert({"id": 10, "n": None})
        db.checkpoint()
        seq = db.seq
        if where == "plain":
            table.alter_column("n", type="int64")
    done = subprocess.run(
        [sys.executable, "-c", RETYPES, str(root), where, order, kind],
        check=False,
        capture_output=True,
    )
    wanted = {-signal.SIGKILL} if "kill" in order else {0, 1}
    assert done.returncode in wanted, done.stderr
    before = {**{n: n for n in range(10) if n != 3}, 10: None}
    with st.connect(root, background=False) as db:
        assert db["p"].schema.field("n").type == pa.int32()
        assert db["t"].schema.field("n").type == pa.int64()
        for settle in (lambda: None, db.checkpoint, db.merge):
            settle()
            found = {row["id"]: row["n"] for row in db["t"].to_arrow().to_pylist()}
            late = {11: 2**40} if 11 in found else {}
            assert found == {**before, **late}
            past = db.snapshot(seq=seq)["t"].to_arrow()
            assert past.schema.field("n").type == pa.int32()
            assert {row["id"]: row["n"] for row in past.to_pylist()} == before
        db["p"].alter_column("n", type=kind or "int64")
        shown = str if kind == "string" else int
        assert [row["n"] for row in db["p"].to_arrow().to_pylist()] == [shown(1), shown(2)]
        db.vacuum(dry_run=False, grace_s=0)
        assert db.verify(deep=True).findings == ()
