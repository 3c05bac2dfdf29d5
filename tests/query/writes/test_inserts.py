"""INSERT writes rows of constants, queries and frames, and says what becomes of keys that exist."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st

_DAY = dt.date(2026, 2, 3)


def orders(db: st.Store, *ids: int) -> list[tuple[object, ...]]:
    wanted = ", ".join(map(str, ids))
    return db.sql(
        f"select id, who, total from orders where id in ({wanted}) order by id"
    ).fetchall()


@pytest.mark.parametrize(
    ("statement", "parameters"),
    [
        ("insert into orders values (4, 'cy', 5, '2026-02-03')", None),
        ("INSERT INTO main.Orders (TOTAL, day, id, who) VALUES (5.0, ?, ?, ?);", [_DAY, 4, "cy"]),
        ("insert into orders values (4, $who, 5e0, $day) -- done", {"who": "cy", "day": _DAY}),
        ("insert into \"orders\" select 4, 'cy', 5, date '2026-02-03'", None),
        ("insert into orders (id, who, day, total) (select 4, 'cy', '2026-02-03', '5')", None),
        ("insert into orders by name select 5 as total, 4 as id, 'cy' as who, ? as day", [_DAY]),
        (
            "with new as (select 4 as id, 'cy' as who) insert into orders select *, 5, ? from new",
            [_DAY],
        ),
        ("insert into orders from (values (4, 'cy', 5, '2026-02-03'::date))", None),
        ("insert into orders values (2 + 2, lower('CY'), 10 / 2, make_date(2026, 2, 3))", None),
    ],
)
def test_rows_are_inserted(db: st.Store, statement: str, parameters: Any) -> None:
    before = db.seq
    done = db.sql(statement, parameters)
    assert (done.rows, done.seq) == (1, before + 1)
    assert done.fetchall() == [(1,)]
    assert db["orders"].get(4) == {"id": 4, "who": "cy", "total": 5.0, "day": _DAY}


def test_columns_that_are_not_named_and_default_are_null(db: st.Store) -> None:
    db.sql("insert into orders (id, who) values (4, default), (5, 'x')")
    db.sql("insert into orders (id) select 6")
    assert orders(db, 4, 5, 6) == [(4, None, None), (5, "x", None), (6, None, None)]


def test_a_table_without_a_key_gets_more_rows(db: st.Store) -> None:
    assert db.sql("insert into events values (2, 'b')").rows == 1
    assert db.sql("insert into events select id, who from orders").rows == 3
    assert db["events"].count() == 7


def test_a_key_that_is_there_is_refused(db: st.Store) -> None:
    for statement in (
        "insert into orders (id) values (7), (1)",
        "insert into orders (id) select id + 2 from orders",
        "insert into orders (id) values (7), (7)",
    ):
        with pytest.raises(st.DuplicateKeyError):
            db.sql(statement)
    assert db["orders"].count() == 3


def test_or_replace_keeps_the_columns_that_are_left_out(db: st.Store) -> None:
    assert db.sql("insert or replace into orders (id, total) values (1, 11), (9, 1)").rows == 2
    assert db.sql("insert or replace into orders (total, id) select 12, 2").rows == 1
    assert orders(db, 1, 2, 9) == [(1, "ada", 11.0), (2, "bo", 12.0), (9, None, 1.0)]


def test_of_equal_keys_or_replace_takes_the_last_row(db: st.Store) -> None:
    text = "insert or replace into orders (id, who) select 1, unnest(['x', 'y'])"
    assert db.sql(text).rows == 1
    assert orders(db, 1) == [(1, "y", 10.0)]


@pytest.mark.parametrize(
    "text",
    [
        "insert or ignore into orders (id, who) values (1, 'x'), (8, 'p'), (8, 'q')",
        "insert into orders (id, who) values (1, 'x'), (8, 'p'), (8, 'q') on conflict do nothing",
        "insert into orders (who, id) values ('x', 1), ('p', 8) on conflict (id) do nothing",
        "insert into orders (id, who) select id + 7, 'p' from orders on conflict (ID) do nothing",
    ],
)
def test_do_nothing_leaves_the_rows_that_are_there(db: st.Store, text: str) -> None:
    assert db.sql(text).rows in {1, 3}
    assert orders(db, 1, 8) == [(1, "ada", 10.0), (8, "p", None)]


def test_do_update_sees_the_new_row_as_excluded_and_the_old_one_by_its_name(db: st.Store) -> None:
    done = db.sql(
        "insert into orders as o (id, total) values (1, 5), (9, 7) on conflict (id) do update"
        " set total = o.total + excluded.total, who = coalesce(who, '?') || excluded.total"
    )
    assert done.rows == 2
    assert orders(db, 1, 9) == [(1, "ada5.0", 15.0), (9, None, 7.0)]


def test_do_update_where_changes_some_of_them(db: st.Store) -> None:
    text = (
        "insert into orders (id, total) select id, total * ? from orders on conflict (id)"
        " do update set total = excluded.total where orders.total > ?"
    )
    assert db.sql(text, [10, 15]).rows == 1
    assert orders(db, 1, 2, 3) == [(1, "ada", 10.0), (2, "bo", 200.0), (3, None, None)]


def test_do_update_may_give_a_column_of_the_new_row_without_a_look_at_the_old(db: st.Store) -> None:
    text = "insert into orders (id, who) values (1, ?), (9, 'x') on conflict (id) do update set"
    assert db.sql(f"{text} who = excluded.who", ["z"]).rows == 2
    assert db.sql(f"{text} total = excluded.total", ["z"]).rows == 2
    assert orders(db, 1, 9) == [(1, "z", None), (9, "x", None)]


def test_do_update_gives_each_row_one_value(db: st.Store) -> None:
    with pytest.raises(st.DuplicateKeyError, match="twice among the rows"):
        db.sql(
            "insert into orders (id, total) values (1, 1), (1, 2) on conflict (id) do update"
            " set total = excluded.total"
        )
    assert orders(db, 1) == [(1, "ada", 10.0)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("insert into events values (1, 'x') on conflict do nothing", "ON CONFLICT needs a table"),
        ("insert or replace into events values (1, 'x')", "INSERT OR REPLACE needs a table"),
        ("insert into orders (id) values (1) on conflict (who) do nothing", "is not the key, "),
        ("insert or replace into orders (id) values (1) on conflict do nothing", "no ON CONFLICT"),
        (
            "insert into orders (id) values (1) on conflict on constraint x do nothing",
            "the columns",
        ),
        (
            "insert into orders (id) values (1) on conflict (id) do update set id = 5",
            "would change the key 1 to 5: insert the new row, and delete the old one",
        ),
    ],
)
def test_a_conflict_that_cannot_be_is_refused(db: st.Store, text: str, words: str) -> None:
    with pytest.raises(st.RequestError, match=words):
        db.sql(text)
    assert db["orders"].count() == db["events"].count() == 3


def test_returning_gives_the_rows_as_they_are_now(db: st.Store) -> None:
    found = db.sql(
        "insert into orders (id, who) values (7, 'x'), (8, null) returning id, who || '!'"
    )
    assert (found.rows, found.fetchall()) == (2, [(7, "x!"), (8, None)])
    found = db.sql("insert into events select 5, 'z' returning *, n + 1 as more")
    assert (found.columns, found.fetchall()) == (["n", "note", "more"], [(5, "z", 6)])
    found = db.sql("insert or replace into orders (id, who) values (1, 'w') returning *")
    assert found.fetchall() == [(1, "w", 10.0, dt.date(2026, 1, 1))]
    found = db.sql(
        "insert into orders as o (id, total) values (1, 1), (20, 2) on conflict (id) do update"
        " set total = -excluded.total returning o.id, total"
    )
    assert sorted(found.fetchall()) == [(1, -1.0), (20, 2.0)]
    found = db.sql("insert into orders (id) values (1) on conflict do nothing returning id")
    assert (found.rows, found.fetchall()) == (0, [])


def test_frames_of_the_caller_are_inserted_in_the_process_of_the_owner(own: st.Store) -> None:
    new_orders = pa.table({"id": [11, 12], "who": ["x", "y"]})
    assert own.sql("insert into orders (id, who) select * from new_orders").rows == 2
    with own.transaction() as tx:
        tx.sql("insert into orders (id) select id + 2 from new_orders")
    assert new_orders.num_rows == 2
    assert own["orders"].count() == 7


def test_a_statement_is_one_commit(db: st.Store) -> None:
    before = db.seq
    assert db.sql("insert into orders (id) select range + 100 from range(5000)").seq == before + 1
    assert db.seq == before + 1
    assert db.sql("insert into orders (id) select 1 where false").rows == 0


def test_a_large_statement_stages_its_rows(own: st.Store) -> None:
    text = (
        "insert {} into orders select range + 100, repeat(?, 5000), range, null from range(14000)"
    )
    assert own.sql(text.format(""), ["x"]).rows == 14_000
    assert own.sql("select total from orders where id = 150").fetchall() == [(50.0,)]
    assert own.sql(text.format("or replace"), ["y"]).rows == 14_000
    assert own.sql("select distinct who[1] from orders where id > 99").fetchall() == [("y",)]
    assert own["orders"].count() == 14_003
