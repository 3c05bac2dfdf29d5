"""A column that takes no null has none: when it is said, and beside each commit since.

`alter_column(nullable=False)` looks at all rows, and its commit conflicts with those that wrote a
null since it looked. A commit whose rows are from before conflicts if they have one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False) as made:
        made.create_table("t", {"id": "int64", "n": "int32"}, "id")
        made["t"].insert([{"id": 1, "n": 10}, {"id": 2, "n": 20}])
        yield made


def strict(db: st.Store) -> bool:
    return not db["t"].schema.field("n").nullable


@pytest.mark.parametrize("level", ["memory", "history", "base"])
def test_a_null_of_any_level_is_found(db: st.Store, level: str) -> None:
    db["t"].insert({"id": 3, "n": None})
    if level != "memory":
        db.checkpoint()
    if level == "base":
        db.checkpoint()
        db.merge()
    with pytest.raises(st.SchemaMismatchError, match=r"has a null in the row \{'id': 3\}"):
        db["t"].alter_column("n", nullable=False)
    assert not strict(db)
    db["t"].update(3, n=1)
    db["t"].alter_column("n", nullable=False)
    assert strict(db)
    db.checkpoint()
    db.merge()
    assert db["t"].count() == 3


def test_a_null_of_the_transaction_itself_is_found(db: st.Store) -> None:
    with db.transaction() as tx:
        tx["t"].update(1, n=None)
        with pytest.raises(st.SchemaMismatchError, match="has a null"):
            tx["t"].alter_column("n", nullable=False)
        tx["t"].update(1, n=1)
        tx["t"].alter_column("n", nullable=False)
        with pytest.raises(st.SchemaMismatchError, match="may not be null"):
            tx["t"].insert({"id": 3})
    assert strict(db)


WRITES: dict[str, Callable[[Any, object], object]] = {
    "a row": lambda table, value: table.update(2, n=value),
    "rows": lambda table, value: table.insert(
        pa.table({"id": range(10, 9000), "n": pa.array([value] * 8990, pa.int32())})
    ),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_a_null_that_was_written_since_the_look_is_a_conflict(
    db: st.Store, write: str, isolation: Any
) -> None:
    tx = db.transaction(isolation=isolation)
    tx["t"].alter_column("n", nullable=False)
    WRITES[write](db["t"], None)
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert not strict(db)


def test_other_rows_that_were_written_since_the_look_are_none(db: st.Store) -> None:
    tx = db.transaction()
    tx["t"].alter_column("n", nullable=False)
    db["t"].insert({"id": 3, "n": 30})
    tx.commit()
    assert strict(db)
    assert db["t"].count() == 3


@pytest.mark.parametrize("write", WRITES)
def test_a_commit_with_a_null_from_before_is_a_conflict(db: st.Store, write: str) -> None:
    tx = db.transaction()
    WRITES[write](tx["t"], None)
    db["t"].alter_column("n", nullable=False)
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert db["t"].count(filter="n is null") == 0


@pytest.mark.parametrize("write", WRITES)
def test_a_commit_without_one_from_before_is_none(db: st.Store, write: str) -> None:
    tx = db.transaction()
    WRITES[write](tx["t"], 5)
    db["t"].alter_column("n", nullable=False)
    tx.commit()
    assert db["t"].count(filter="n = 5") == (1 if write == "a row" else 8990)


def test_rows_staged_before_are_staged_again(db: st.Store) -> None:
    stage = db.stage("t")
    piece = stage.run(pa.table({"id": [3], "n": pa.array([None], pa.int32())}))
    db["t"].alter_column("n", nullable=False)
    with pytest.raises(st.SchemaMismatchError, match="stage them again"), db.transaction() as tx:
        tx.attach(stage, [piece])
    tx = db.transaction()
    db["t"].alter_column("n", nullable=True)
    assert db["t"].count() == 2


def test_null_is_allowed_again_at_no_cost(db: st.Store) -> None:
    db["t"].alter_column("n", nullable=False)
    db.checkpoint()
    db.merge()
    before = db.seq
    db["t"].alter_column("n", nullable=True)
    db["t"].insert({"id": 3, "n": None})
    db.checkpoint()
    db.merge()
    assert db["t"].get(3) == {"id": 3, "n": None}
    with db.snapshot(seq=before) as past:
        assert not past["t"].schema.field("n").nullable
        assert past["t"].count() == 2
    assert db.seq == before + 2
    db["t"].alter_column("n", nullable=True)  # it may be: nothing changes
    assert db.verify(deep=True).findings == ()


def test_the_feed_shows_a_null_of_before(db: st.Store) -> None:
    db["t"].insert({"id": 3, "n": None})
    db["t"].delete(3)
    db["t"].alter_column("n", nullable=False)
    for _ in range(2):
        found = db.changes(0)["t"].read_all()
        assert [(row["id"], row["n"]) for row in found.to_pylist()][2] == (3, None)
        found.validate(full=True)
        db.checkpoint()


def test_a_default_is_set_and_taken_away(db: st.Store) -> None:
    table = db["t"]
    table.alter_column("n", nullable=False, default=9)
    table.insert({"id": 3})
    table.alter_column("n", default=None)
    with pytest.raises(st.SchemaMismatchError, match="may not be null or missing"):
        table.insert({"id": 4})
    assert table.get(3) == {"id": 3, "n": 9}
    words = [change for entry in db.log() for change in entry.changes]
    assert words[:3] == [
        "set default of column t.n", "forbid null in column t.n", "set default of column t.n",
    ]  # fmt: skip


def test_a_change_under_a_token_is_made_once(db: st.Store) -> None:
    for _ in range(2):
        with db.transaction(token=("app", 1)) as tx:
            tx["t"].alter_column("n", nullable=False)
        db["t"].alter_column("n", nullable=True)
        db["t"].upsert({"id": 3, "n": None})
    assert not strict(db)


def test_two_changes_of_one_column_conflict(db: st.Store) -> None:
    one, other = db.transaction(), db.transaction()
    one["t"].alter_column("n", default=1)
    other["t"].alter_column("n", default=2)
    one.commit()
    with pytest.raises(st.ConflictError):
        other.commit()


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"name": "id", "nullable": True}, st.RequestError, "the key, which is never null"),
        ({"name": "id", "default": 1}, st.RequestError, "the key, which has no default"),
        ({"name": "m", "default": 1}, st.SchemaMismatchError, "no column 'm'"),
        ({"name": "n", "default": "x"}, st.SchemaMismatchError, "is int32, not str 'x'"),
        ({"name": "n", "default": [1]}, st.SchemaMismatchError, "is int32, not list"),
        ({"name": "n", "nullable": 1}, st.RequestError, "nullable must be True or False"),
    ],
)
def test_what_cannot_be_is_refused(
    db: st.Store, change: dict[str, Any], error: type[Exception], match: str
) -> None:
    before = db.seq
    with pytest.raises(error, match=match):
        db["t"].alter_column(**change)
    assert db.seq == before


def test_a_table_without_a_key_is_strict_from_the_start_alone(db: st.Store) -> None:
    plain = db.create_table("p", {"a": "int64", "b": "int64 not null"})
    with pytest.raises(st.RequestError, match="make a new table with 'not null'"):
        plain.alter_column("a", nullable=False)
    plain.alter_column("b", nullable=False)
    plain.alter_column("b", nullable=True)
    plain.append({"a": 1})
    assert plain.to_arrow().to_pylist() == [{"a": 1, "b": None}]
