"""An Arrow filter of any depth is answered or refused: it ends neither this process nor an owner.

Arrow recurses into an expression as deep as it is; some 20,000 ORs in a chain overflow the stack.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import functools, operator, os, sys
import pyarrow.compute as pc
import siltstone as st

path, door, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with st.connect(path, background=False) as db:
    db.create_table("t", {"id": "int64"}, primary_key="id").upsert({"id": 1})
    wanted = functools.reduce(operator.or_, [pc.field("id") == n for n in range(count)])
    if door == "joined":
        db.serve_local()
        db = st.connect(path, join=True)
    try:
        print(db["t"].count(wanted))
    except st.RequestError as error:
        print(error)
    sys.stdout.flush()
    os._exit(0)  # Arrow may recurse to free it, too
"""


def answer(path: Path, door: str, count: int) -> str:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), door, str(count)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-500:]
    return run.stdout.strip()


@pytest.mark.parametrize("door", ["here", "joined"])
def test_a_filter_that_would_overflow_the_stack_is_refused(tmp_path: Path, door: str) -> None:
    assert "nested deeper than 4096" in answer(tmp_path / "s", door, 30_000)


def test_a_chain_of_two_thousand_is_answered(tmp_path: Path) -> None:
    assert answer(tmp_path / "s", "here", 2_000) == "1"
