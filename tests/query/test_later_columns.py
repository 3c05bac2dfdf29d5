"""Changes in the columns of a later seq; and a feed is cut where the table has its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from siltstone.api.store import Store
from tests.query.test_changes_of_names import apply
from tests.query.test_changes_of_the_past import in_order, rows_of_tasks

SCHEMA = {"id": "int64", "v": "int64"}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Store]:
    with st.connect(tmp_path / "db", background=False, segment_bytes=65_536) as store:
        yield store


def columns_that_come_and_go(db: Store, settle: Callable[[], object]) -> None:
    """A name that passes from a column to another one: by name, values would move."""
    table = db.create_table("t", SCHEMA, primary_key="id")
    table.upsert([{"id": n, "v": n} for n in range(4)])
    settle()
    table.delete(3)
    table.add_column("n", "string")
    table.upsert({"id": 1, "v": 10, "n": "x"})
    settle()
    table.rename_column("v", "w")
    table.rename_column("id", "key")
    table.upsert({"key": 2, "w": 20, "n": "y"})
    table.drop_column("n")
    table.add_column("n", "float64")
    table.add_column("v", "int64")
    settle()
    table.truncate()
    table.upsert({"key": 5, "w": 50, "n": 0.5, "v": 500})


@pytest.mark.parametrize("settles", ["nothing", "checkpoint", "merge"])
def test_a_feed_in_pieces_has_the_columns_and_rows_of_the_whole_one(
    db: Store, settles: str
) -> None:
    def settle() -> None:
        if settles != "nothing":
            db.checkpoint()
        if settles == "merge":
            db.merge()

    columns_that_come_and_go(db, settle)
    db.create_table("other", SCHEMA, primary_key="id")
    for columns_at in range(2, db.seq + 1):
        whole = db.changes(1, columns_at, ["t"])["t"].read_all()
        pieces = [
            db.change_tasks("t", since, since + 1, columns_at=columns_at)
            for since in range(1, columns_at)
        ]
        tasks = [task for piece in pieces for task in piece]
        assert all(task.schema.equals(whole.schema) for task in tasks)
        key = whole.schema.names[2]
        assert by_key(rows_of_tasks(tasks), key) == by_key(whole.to_pylist(), key), columns_at


def by_key(rows: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["_seq"], row[key], row["_op"], repr(row)))


def test_rows_that_a_feed_begins_with_have_the_later_columns_too(db: Store) -> None:
    db.create_table("t", SCHEMA, primary_key="id").upsert({"id": 1, "v": 1})
    begin = db.seq
    db["t"].rename_column("v", "w")
    db["t"].add_column("n", "string")
    tasks = db.change_tasks("t", begin, begin, begins=True, columns_at=db.seq)
    assert rows_of_tasks(tasks) == [{"_seq": begin, "_op": "upsert", "id": 1, "w": 1, "n": None}]


def test_columns_of_another_table_are_matched_by_name(db: Store) -> None:
    db.create_table("t", SCHEMA, primary_key="id").upsert({"id": 1, "v": 1})
    before = db.seq
    db.drop_table("t")
    db.create_table("t", {"n": "string", "v": "int64", "id": "int64"}, primary_key="id")
    tasks = db.change_tasks("t", 0, before, columns_at=db.seq)
    assert rows_of_tasks(tasks) == [
        {"_seq": before, "_op": "upsert", "n": None, "v": 1, "id": 1},
    ]


@pytest.mark.parametrize(
    ("schema", "key", "said"),
    [
        ({"id": "int64", "v": "string"}, "id", "'v' of type string, not int64"),
        ({"id": "string", "v": "int64"}, "id", "string"),
        ({"id": "int64", "v": "int64"}, ["id", "v"], "'v': DataType"),
    ],
)
def test_another_key_or_type_of_another_table_is_refused_with_both(
    db: Store, schema: dict[str, str], key: str | list[str], said: str
) -> None:
    db.create_table("t", SCHEMA, primary_key="id").upsert({"id": 1, "v": 1})
    before = db.seq
    db.drop_table("t")
    db.create_table("t", schema, primary_key=key)
    with pytest.raises(st.SchemaMismatchError, match=f"until seq {before}") as caught:
        db.change_tasks("t", 0, before, columns_at=db.seq)
    assert f"at seq {db.seq}" in str(caught.value)
    assert said in str(caught.value)


def test_columns_of_a_seq_below_the_range_or_in_the_future_are_refused(db: Store) -> None:
    db.create_table("t", SCHEMA, primary_key="id").upsert({"id": 1, "v": 1})
    with pytest.raises(st.RequestError, match="not of seq 1"):
        db.change_tasks("t", 1, 2, columns_at=1)
    with pytest.raises(st.SnapshotExpiredError, match="columns at seq 3"):
        db.change_tasks("t", 1, 2, columns_at=3)
    wrong: Any = "2"
    with pytest.raises(st.RequestError, match="integer"):
        db.change_tasks("t", 1, 2, columns_at=wrong)
    db.rename_table("t", "u")
    with pytest.raises(st.TableNotFoundError, match="seq 3"):
        db.change_tasks("t", 0, 2, columns_at=3)


# where a cut ends


def other_commits(db: Store) -> None:
    for n in range(2):
        db["other"].upsert({"id": n, "v": n})


def dropped(db: Store) -> None:
    db.drop_table("t")
    other_commits(db)
    db.create_table("t", SCHEMA, primary_key="id")
    db["t"].upsert({"id": 7, "v": 7})


def renamed_away(db: Store) -> None:
    db.rename_table("t", "u")
    db["u"].upsert({"id": 6, "v": 6})
    other_commits(db)
    db.create_table("t", SCHEMA, primary_key="id").upsert({"id": 7, "v": 7})


def renamed_and_back(db: Store) -> None:
    db.rename_table("t", "u")
    for n in range(3):
        db["u"].upsert({"id": n, "v": 10 + n})
    db.rename_table("u", "t")


def passed_to_one_that_was(db: Store) -> None:
    db["other"].upsert({"id": 9, "v": 9})
    db.rename_table("t", "u")
    other_commits(db)
    db.rename_table("other", "t")
    db.create_table("other", SCHEMA, primary_key="id")


PASSES = [dropped, renamed_away, renamed_and_back, passed_to_one_that_was]


@pytest.mark.parametrize("pass_on", PASSES)
@pytest.mark.parametrize("rows_max", [1, 2, 3, 100])
def test_a_feed_is_cut_where_the_table_has_its_name_and_makes_the_copy(
    db: Store, pass_on: Callable[[Store], None], rows_max: int
) -> None:
    db.create_table("other", SCHEMA, primary_key="id")
    db.create_table("t", SCHEMA, primary_key="id")
    db["t"].upsert([{"id": n, "v": n} for n in range(3)])
    since = at = db.seq
    with db.snapshot(seq=since) as then:
        copy = {row["id"]: row for row in then["t"].to_arrow().to_pylist()}
    pass_on(db)
    db["t"].upsert({"id": 8, "v": 8})
    other_commits(db)
    while at < db.seq:
        end, count = db.changes_upto("t", at, rows_max)
        assert end > at
        rows = rows_of_tasks(db.change_tasks("t", at, end, columns_at=db.seq))
        assert in_order(rows) == in_order(db.changes(at, end, ["t"])["t"].read_all().to_pylist())
        assert len(rows) == count or len(rows) >= count > rows_max
        copy = apply(copy, iter(in_seq_order(rows)))
        with db.snapshot(seq=end) as then:
            assert copy == {row["id"]: row for row in then["t"].to_arrow().to_pylist()}
        at = end


def in_seq_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["_seq"], row["_op"] != "delete"))
