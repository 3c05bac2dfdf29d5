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


# without a key


@pytest.fixture
def plain(db: st.Store) -> st.Table:
    table = db.create_table("p", {"a": "int64", "b": "string"})
    table.append([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])
    return table


def test_a_table_without_a_key_takes_no_null_any_more(db: st.Store, plain: st.Table) -> None:
    plain.alter_column("a", nullable=False)
    with pytest.raises(st.SchemaMismatchError, match="'a'"):
        plain.append({"b": "z"})
    with pytest.raises(st.SchemaMismatchError, match="'a'"):
        plain.overwrite([{"a": None, "b": "z"}])
    plain.append({"a": 3, "b": None})
    plain.alter_column("a", nullable=True)
    plain.append({"a": None, "b": None})
    assert [row["a"] for row in plain.to_arrow().to_pylist()] == [1, 2, 3, None]
    assert db.verify(deep=True).findings == ()


def test_a_null_of_a_table_without_a_key_is_found(plain: st.Table) -> None:
    plain.append({"a": 3, "b": None})
    with pytest.raises(
        st.SchemaMismatchError, match=r"has a null in the row \{'a': 3, 'b': None\}"
    ):
        plain.alter_column("b", nullable=False)
    plain.delete_where("a = 3")
    plain.alter_column("b", nullable=False)
    assert not plain.schema.field("b").nullable


def test_a_table_without_a_key_that_has_no_rows_may_be_strict(db: st.Store) -> None:
    table = db.create_table("p", {"a": "int64", "b": "string"})
    table.alter_column("a", nullable=False)
    with pytest.raises(st.SchemaMismatchError, match="'a'"):
        table.append({"b": "x"})
    table.append({"a": 1})
    assert table.to_arrow().to_pylist() == [{"a": 1, "b": None}]


@pytest.mark.parametrize("rows", [[], [{"a": 1, "b": None}, {"a": 2, "b": "y"}]])
def test_a_column_of_not_null_is_added_to_a_table_without_a_key(
    db: st.Store, rows: list[dict[str, Any]]
) -> None:
    table = db.create_table("p", {"a": "int64", "b": "string"}, data=rows)
    table.add_column("n", "int32 not null", 7)
    with pytest.raises(st.SchemaMismatchError, match="'n'"):
        table.append({"a": 3, "b": None, "n": None})
    table.append({"a": 3})
    assert [row["n"] for row in table.to_arrow().to_pylist()] == [7] * (len(rows) + 1)
    assert not table.schema.field("n").nullable
    assert db.verify(deep=True).findings == ()


def test_not_null_outlives_another_type_without_a_key(plain: st.Table) -> None:
    plain.alter_column("a", nullable=False)
    for kind in ("float64", "string"):
        plain.alter_column("a", type=kind)
        assert not plain.schema.field("a").nullable
        with pytest.raises(st.SchemaMismatchError, match="'a'"):
            plain.append({"b": "z"})


@pytest.mark.parametrize("value", [None, 5])
def test_rows_without_a_key_from_before_conflict(
    db: st.Store, plain: st.Table, value: object
) -> None:
    tx = db.transaction()
    tx["p"].append({"a": value, "b": None})
    plain.alter_column("a", nullable=False)
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert plain.count() == 2


def test_rows_without_a_key_since_the_look_conflict(db: st.Store, plain: st.Table) -> None:
    tx = db.transaction()
    tx["p"].alter_column("a", nullable=False)
    plain.append({"a": None, "b": "z"})
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert plain.schema.field("a").nullable
    plain.delete_where("a is null")
    plain.alter_column("a", nullable=False)


def test_an_optimize_meanwhile_does_not_conflict(db: st.Store, plain: st.Table) -> None:
    plain.append({"a": 3, "b": "z"})
    tx = db.transaction()
    tx["p"].alter_column("a", nullable=False)
    db.optimize("p")
    tx.commit()
    assert not plain.schema.field("a").nullable
    assert plain.count() == 3


def test_rows_staged_without_a_key_before_are_staged_again(db: st.Store, plain: st.Table) -> None:
    stage = db.stage("p")
    piece = stage.run(pa.table({"a": pa.array([None], pa.int64()), "b": ["z"]}))
    plain.alter_column("a", nullable=False)
    with pytest.raises(st.SchemaMismatchError, match="stage them again"), db.transaction() as tx:
        tx.attach(stage, [piece])
    assert plain.count() == 2


def test_a_strict_table_without_a_key_is_read_and_written_after_a_reopen(tmp_path: Path) -> None:
    with st.connect(tmp_path / "r", background=False) as db:
        table = db.create_table("p", {"a": "int64"}, data=[{"a": 1}])
        table.alter_column("a", nullable=False)
    with st.connect(tmp_path / "r", read_only=True) as db:
        assert not db["p"].schema.field("a").nullable
    with st.connect(tmp_path / "r", background=False) as db:
        with pytest.raises(st.SchemaMismatchError, match="'a'"):
            db["p"].append({"a": None})
        db["p"].append({"a": 2})
        assert db["p"].count() == 2
