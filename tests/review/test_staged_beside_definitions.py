"""Staged rows go into the table that they were staged for, whole, or nowhere with a clear error.

Whatever happens to the table meanwhile: it is truncated, dropped, renamed, made again with the same
name, or goes with its namespace; before the rows are attached, or between that and the commit.
"""

# pyright: reportArgumentType=false

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.errors import ConflictError, RequestError, TableNotFoundError
from siltstone.local.store import LocalStore
from siltstone.namespace import SiltstoneNamespace
from tests.maintenance.stores import open_store, rows

COLUMNS = {"id": "int64", "v": "int64"}
NAME = "n.t"


def fill(db: LocalStore, *ids: int, name: str = NAME) -> None:
    table = db[name]
    write = table.upsert if table.primary_key else table.append
    write([{"id": n, "v": 0} for n in ids])


def truncate(db: LocalStore) -> None:
    db[NAME].truncate()


def truncate_and_fill(db: LocalStore) -> None:
    truncate(db)
    fill(db, 8)


def drop(db: LocalStore) -> None:
    db.drop_table(NAME)


def make_again(db: LocalStore) -> None:
    key = db[NAME].primary_key
    db.drop_table(NAME)
    db.create_table(NAME, COLUMNS, key)
    fill(db, 9)


def drop_the_namespace(db: LocalStore) -> None:
    SiltstoneNamespace(db).drop_namespace({"id": ["n"], "behavior": "cascade"})


def rename(db: LocalStore) -> None:
    db.rename_table(NAME, "m.u")
    db.create_table(NAME, COLUMNS, db["m.u"].primary_key)


STAGED, OLD = [(1, 1), (2, 1)], [(5, 0)]
Event = Callable[[LocalStore], None]
AFTER = {
    truncate: [],
    truncate_and_fill: [(8, 0)],
    drop: None,
    make_again: [(9, 0)],
    drop_the_namespace: None,
    rename: [],
}
"""What the table of the name has after the event."""


@pytest.mark.parametrize("real_lance", [False, True], ids=["fake", "lance"])
@pytest.mark.parametrize("is_filled", [False, True], ids=["empty", "filled"])
@pytest.mark.parametrize("key", ["id", ()], ids=["keyed", "plain"])
@pytest.mark.parametrize("is_late", [False, True], ids=["before attach", "after attach"])
@pytest.mark.parametrize("event", list(AFTER), ids=lambda event: event.__name__)
def test_staged_rows_come_into_their_own_table_or_nowhere(
    tmp_path: Path, event: Event, is_late: bool, key: str, is_filled: bool, real_lance: bool
) -> None:
    with open_store(tmp_path / "s", real_lance=real_lance) as db:
        SiltstoneNamespace(db).create_namespace({"id": ["n"]})
        db.create_table(NAME, COLUMNS, key)
        if is_filled:
            fill(db, 5)
        stage = db.stage(NAME)
        pieces = [staged(db, stage, 1), staged(db, stage, 2)]
        if not is_late:
            event(db)
        error = attached(db, stage, pieces, event if is_late else lambda _: None)
        expected = outcome(event, error, is_late=is_late, key=key, is_filled=is_filled)
        through_its_life(db, expected)
    with open_store(tmp_path / "s", real_lance=real_lance) as db:
        assert content(db) == expected


def staged(db: LocalStore, stage: st.StageTask, number: int) -> st.Staged:
    task: st.StageTask = pickle.loads(pickle.dumps(stage))
    return task.run_through(db._core.tables.writer, pa.table({"id": [number], "v": [1]}))


def attached(
    db: LocalStore, stage: st.StageTask, pieces: list[st.Staged], meanwhile: Event
) -> Exception | None:
    try:
        with db.transaction() as tx:
            tx.attach(stage, pieces)
            meanwhile(db)
    except (ConflictError, RequestError) as error:
        return error
    return None


def outcome(
    event: Event, error: Exception | None, *, is_late: bool, key: str, is_filled: bool
) -> dict[str, list[tuple]]:
    """Check how the commit ended, and return what the store holds then."""
    left = AFTER[event]
    found = {} if left is None else {NAME: left}
    if event is rename:
        assert error is None
        return {**found, "m.u": sorted([*STAGED, *(OLD if is_filled else [])])}
    if event not in {truncate, truncate_and_fill}:
        assert isinstance(error, TableNotFoundError)
        return found
    if is_late:
        assert isinstance(error, ConflictError)
        return found
    if not key:
        assert type(error) is RequestError
        assert "stage again" in str(error)
        return found
    assert error is None
    return {NAME: sorted([*STAGED, *left])}


def content(db: LocalStore) -> dict[str, list[tuple]]:
    return {name: rows(db[name]) for name in db.tables()}


def through_its_life(db: LocalStore, expected: dict[str, list[tuple]]) -> None:
    for step in (
        lambda: None,
        db.checkpoint,
        db.merge,
        db.optimize,
        lambda: db.vacuum(dry_run=False, grace_s=-1e9),
    ):
        step()
        assert content(db) == expected
    assert db.verify(deep=True).is_sound


@pytest.mark.parametrize("real_lance", [False, True], ids=["fake", "lance"])
def test_an_append_that_was_staged_before_a_truncate_names_no_file_of_another_folder(
    tmp_path: Path, real_lance: bool
) -> None:
    with open_store(tmp_path / "s", real_lance=real_lance) as db:
        db.create_table(NAME, COLUMNS)
        fill(db, 5)
        stage = db.stage(NAME)
        pieces = [staged(db, stage, 1)]
        truncate(db)
        error = attached(db, stage, pieces, lambda db: fill(db, 8))
        assert isinstance(error, RequestError)
        through_its_life(db, {NAME: []})
