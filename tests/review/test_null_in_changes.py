"""A change feed declares as never null only what none of its rows has as null: the key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import siltstone as st


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False) as made:
        columns = {"id": "int64", "sure": "int64 not null", "later": "int64"}
        made.create_table("t", columns, primary_key="id")
        yield made


def fed(db: st.Store, level: str) -> pa.Table:
    if level != "memory":
        db.checkpoint()
    if level == "base":
        db.merge()
    return db.changes()["t"].read_all()


LEVELS = pytest.mark.parametrize("level", ["memory", "history", "base"])


@LEVELS
def test_a_delete_has_no_values_of_columns_that_are_never_null(
    db: st.Store, tmp_path: Path, level: str
) -> None:
    db["t"].insert({"id": 1, "sure": 1, "later": 1})
    db["t"].delete(1)
    found = fed(db, level)
    pq.write_table(found, tmp_path / "changes.parquet")  # refuses nulls where none may be
    assert found.schema.field("sure").nullable
    assert not found.schema.field("id").nullable


@LEVELS
def test_a_null_of_before_a_column_was_not_null_is_in_the_feed(
    db: st.Store, tmp_path: Path, level: str
) -> None:
    db["t"].insert({"id": 1, "sure": 1})
    db["t"].update(1, later=2)
    db["t"].alter_column("later", nullable=False)
    found = fed(db, level)
    pq.write_table(found, tmp_path / "changes.parquet")
    assert found.column("later").to_pylist() == [None, 2]


def test_tasks_and_readers_of_a_feed_have_the_same_columns(db: st.Store) -> None:
    db["t"].insert({"id": 1, "sure": 1})
    db["t"].delete(1)
    tasks = db.change_tasks("t", 0)
    fields = db.changes()["t"].schema
    assert [task.fields.equals(fields) for task in tasks] == [True] * len(tasks)
