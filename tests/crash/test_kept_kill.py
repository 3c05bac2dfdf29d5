"""Killed between the link of a name and the pin that needs it, a process leaves what it found.

Then another program cleans up, with all options: what the store has is read, and the same work goes
through when it is done again.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import siltstone as st
from siltstone.api.store import Store
from siltstone.namespace import SiltstoneNamespace
from siltstone.storage.tables import kept_names
from tests.namespace.clients import append, make, opened, rows

VICTIM = """
import sys
import siltstone as st
from siltstone.failpoints import arm
from tests.crash.test_kept_kill import OPTIONS, WORK

with st.connect(sys.argv[1], **OPTIONS) as db:
    arm(sys.argv[3])
    WORK[sys.argv[2]](db)
"""
OPTIONS = {"background": False}


def by_client(db: Store) -> None:
    append(SiltstoneNamespace(db), "p", rows(20, 21))


def merge(db: Store) -> None:
    db["k"].upsert([{"id": 20, "v": "x"}])
    db.checkpoint()
    db.merge()


def index(db: Store) -> None:
    if "later_v" in {each.name for each in db["k"].indexes()}:
        db.optimize()  # a declaration is durable before anything is built
    else:
        db["k"].create_index("v", name="later_v")


WORK: dict[str, Callable[[Store], object]] = {
    "append": lambda db: db["p"].append([{"id": 20, "v": "x"}]),
    "client": by_client,
    "merge": merge,
    "index": index,
    "column": lambda db: db["bare"].drop_column("id"),
}
ORDERS = [
    *((work, "name.after_link=kill@1") for work in WORK),
    ("column", "name.after_link=kill@3"),
    ("index", "name.after_link=kill@2"),
    ("index", "name.after_link=kill@3"),
]


def contents(db: Store) -> dict[str, list[tuple[object, ...]]]:
    return {
        name: sorted(tuple(row.values()) for row in db[name].to_arrow().to_pylist())
        for name in db.tables()
    }


def clean_up(root: Path) -> None:
    """Take away all that Lance would list: with `delete_unverified`, and no version in its way."""
    for home in root.glob(f"tables/**/_siltstone/{kept_names.KEPT}"):
        for directory in kept_names.DIRECTORIES:
            for path in (home.parents[1] / directory).rglob("*"):
                if path.is_file():
                    path.unlink()


@pytest.mark.parametrize(("work", "order"), ORDERS)
def test_a_kill_between_link_and_pin_loses_nothing_and_the_work_is_done_again(
    tmp_path: Path, work: str, order: str
) -> None:
    where = tmp_path / "shop"
    with st.connect(where, **OPTIONS) as db:
        make(SiltstoneNamespace(db), "p", rows(0, 4))
        db.create_table("k", {"id": "int64", "v": "string"}, "id")
        db["k"].upsert([{"id": n, "v": "x"} for n in range(4)])
        db.checkpoint()
        db.merge()
        db.create_table("bare", {"id": "int64"})
        db["bare"].append([{"id": n} for n in range(3)])
        db["bare"].add_column("later", "int64")
        before = contents(db)
    done = subprocess.run([sys.executable, "-c", VICTIM, str(where), work, order], check=False)
    assert done.returncode == -signal.SIGKILL
    clean_up(where)
    with st.connect(where, **OPTIONS) as db:
        left = contents(db)
        assert left | {"k": []} == before | {"k": []}
        assert left["k"][:4] == before["k"], "the rows of a merge are in the log"
        assert db.verify(deep=True).is_sound
        WORK[work](db)
        db.checkpoint()
        db.vacuum(dry_run=False, grace_s=0)
        assert db.verify(deep=True).findings == ()
        after = contents(db)
        assert after["bare"] == ([(None,)] * 3 if work == "column" else before["bare"])
        assert len(after["p"]) == (5 if work in {"append", "client"} else 4)
        assert opened(SiltstoneNamespace(db), "p").count_rows() == len(after["p"])
        assert db["k"].to_arrow(["id"], "v = 'x'").num_rows == len(after["k"])
        if work == "index":
            (built,) = [each for each in db["k"].indexes() if each.name == "later_v"]
            assert (built.segments, built.lagging_rows) == (1, 0), built
