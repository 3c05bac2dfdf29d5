# pyright: basic
"""Whatever fails for one table, merges, optimizes and indexes are done for all others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from siltstone.errors import (
    CorruptionError,
    InvariantError,
    LanceRefusedError,
    SchemaMismatchError,
    UnavailableError,
)
from siltstone.local.store import LocalStore
from siltstone.maintenance.schedule.stalled import Stalled
from siltstone.maintenance.schedule.unmerged import foldable_rows, history_bytes, wants_merge
from tests.engine.seams import HookedTables, fake_env, open_store

KEYED = {"id": "int64", "v": "string"}
ERRORS: list[Exception] = [
    CorruptionError("tables/bad-1/base", None, "damaged"),
    InvariantError("Lance panicked"),
    LanceRefusedError("the write failed"),
    SchemaMismatchError("Lance cannot store these rows"),
    UnavailableError("permission denied"),
]
each_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)


class Bad:
    """A store with hooks; `fail` lets a method of its tables fail for the table `bad`."""

    def __init__(self, root: Path) -> None:
        hooked: list[HookedTables] = []
        self.db = open_store(root, fake_env(hooked=hooked))
        self.hooks = hooked[0].hooks
        for name in ("bad", "good"):
            self.db.create_table(name, KEYED, primary_key="id")

    def write(self, first: int, *names: str) -> None:
        for name in names or ("bad", "good"):
            self.db[name].upsert([{"id": i, "v": f"{first}"} for i in range(first, first + 50)])
        self.db.checkpoint()

    def fail(self, name: str, error: Exception) -> None:
        def hook(pin: object, *_: object) -> None:
            if "tables/bad-" in str(pin):
                raise error

        self.hooks[name] = hook

    def storages(self) -> tuple:
        found = {s.folder: s for s in self.db._core.state().view.record.keyed}
        return found["tables/bad-1"], found["tables/good-2"]


@pytest.fixture
def bad(tmp_path: Path):
    found = Bad(tmp_path / "shop")
    with found.db:
        yield found


def rows(db: LocalStore, name: str) -> list[tuple]:
    return sorted(tuple(row.values()) for row in db[name].to_arrow().to_pylist())


@each_error
def test_a_merge_of_the_others_is_done(bad: Bad, error: Exception):
    bad.write(0)
    expected = rows(bad.db, "bad")
    bad.fail("fold", error)
    with pytest.raises(type(error)):
        bad.db.merge()
    left, merged = bad.storages()
    assert (left.merged_seq, merged.merged_seq) == (0, bad.db.seq)
    assert rows(bad.db, "bad") == expected
    bad.hooks.clear()
    bad.db.merge()
    assert bad.storages()[0].merged_seq == bad.db.seq
    assert rows(bad.db, "bad") == expected


def test_an_error_of_arrow_is_one_of_the_table(bad: Bad):
    bad.write(0)
    bad.fail("fold", pa.ArrowInvalid("offset overflow"))
    with pytest.raises(InvariantError, match="'bad' cannot be merged: offset overflow"):
        bad.db.merge()
    assert bad.storages()[1].merged_seq == bad.db.seq


@each_error
def test_an_optimize_of_the_others_is_done(bad: Bad, error: Exception):
    for number in range(4):
        bad.write(number)
    expected = rows(bad.db, "bad")
    bad.fail("compact", error)
    with pytest.raises(type(error)):
        bad.db.optimize()
    parts = {each.name: each.history_parts for each in bad.db.status().tables}
    assert parts == {"bad": 4, "good": 1}
    bad.hooks.clear()
    bad.db.optimize()
    assert rows(bad.db, "bad") == expected


@pytest.mark.parametrize("error", [e for e in ERRORS if not isinstance(e, SchemaMismatchError)])
def test_the_indexes_of_the_others_are_built(bad: Bad, error: Exception):
    bad.write(0)
    bad.db.merge()
    bad.fail("build", error)
    with pytest.raises(type(error)):
        bad.db["bad"].create_index("v")
    bad.db["good"].create_index("v")
    bad.write(50)
    with pytest.raises(type(error)):
        bad.db.optimize()
    lacking = {t.name: [each.lagging_rows for each in t.indexes] for t in bad.db.status().tables}
    assert lacking["good"] == [0]
    assert lacking["bad"] != [0]


def stalled_after(bad: Bad, failure: str | None, merge: Callable[[], object]) -> Stalled:
    found = Stalled()
    found.begins(bad.db._core.state().view)
    merge()
    found.ended(bad.db._core.state().view, failure)
    return found


def test_rows_that_no_merge_folds_hold_up_no_other_table(bad: Bad):
    bad.write(0)
    bad.fail("fold", InvariantError("Lance panicked"))

    def merge() -> None:
        with pytest.raises(InvariantError):
            bad.db.merge()

    stalled = stalled_after(bad, "InvariantError: Lance panicked", merge)
    view = bad.db._core.state().view
    assert {number: stall.rows for number, stall in stalled.tables.items()} == {1: 50}
    assert history_bytes(view) > 0
    assert history_bytes(view, stalled.tables) == 0
    assert not stalled.full(view, history_bytes(view) + 1)
    assert "tables/bad-1" in stalled.full(view, history_bytes(view))[1]
    assert stalled.held_back(view) == {1}
    bad.write(50, "bad")
    assert not stalled.held_back(bad.db._core.state().view)  # its rows have doubled
    bad.hooks.clear()
    stalled.begins(bad.db._core.state().view)
    bad.db.merge()
    stalled.ended(bad.db._core.state().view, None)
    assert not stalled.tables


def test_a_merge_that_was_killed_stalls_no_table(bad: Bad):
    bad.write(0)
    assert not stalled_after(bad, None, lambda: None).tables
    assert foldable_rows(bad.db._core.state().view.levels[1]) == 50
    assert not wants_merge(bad.db._core.state().view, 1 << 30)
