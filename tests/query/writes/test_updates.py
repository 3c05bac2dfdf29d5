"""UPDATE, DELETE and TRUNCATE change the rows that they match, each once, and no key."""

from __future__ import annotations

from typing import Any

import pytest

import siltstone as st


def totals(db: st.Store) -> list[object]:
    return [row[0] for row in db.sql("select total from orders order by id").fetchall()]


@pytest.mark.parametrize(
    ("text", "parameters", "rows", "after"),
    [
        ("update orders set total = 5 where id = 1", None, 1, [5.0, 20.0, None]),
        ("update orders o set total = ? where o.id = ?", [5, 1], 1, [5.0, 20.0, None]),
        ("update orders set total = default where id = 1", None, 1, [None, 20.0, None]),
        ("update orders set total = 5 where id = 99", None, 0, [10.0, 20.0, None]),
        ("update orders set total = total * 2", None, 3, [20.0, 40.0, None]),
        ("update orders set total = '7' where total is null", None, 1, [10.0, 20.0, 7.0]),
        ("update orders set total = $a where who = $b", {"a": 1, "b": "bo"}, 1, [10.0, 1.0, None]),
        (
            "update orders set total = total * r.rate from rates r where r.who = orders.who",
            None, 2, [20.0, 60.0, None],
        ),
        (
            """with r as (from rates) update orders as o set total = r.rate from r
            where r.who is not distinct from o.who""",
            None, 2, [2.0, 3.0, None],
        ),
        (
            "update orders set total = (select max(total) from orders) + ? where id in (1, 3)",
            [1], 2, [21.0, 20.0, 21.0],
        ),
        ("update orders set id = id, total = 0 where id < 3", None, 2, [0.0, 0.0, None]),
        ("update orders set total = case when id = 1 then 1 end", None, 3, [1.0, None, None]),
    ],
)  # fmt: skip
def test_rows_are_updated(
    db: st.Store, text: str, parameters: Any, rows: int, after: list[object]
) -> None:
    before = db.seq
    done = db.sql(text, parameters)
    assert (done.rows, done.fetchall(), totals(db)) == (rows, [(rows,)], after)
    assert done.seq == db.seq == before + (rows > 0)


def test_the_other_columns_keep_their_values(db: st.Store) -> None:
    before = db["orders"].get(2) or {}
    db.sql("update orders set who = 'x' where id = 2")
    db.sql("update orders set who = who || 'y' where id > 1")
    assert db["orders"].get(2) == before | {"who": "xy"}


def test_a_key_is_not_changed(db: st.Store) -> None:
    words = "would change the key 3 to 4: insert the new row, and delete the old one"
    with pytest.raises(st.RequestError, match=words):
        db.sql("update orders set id = id + (id > 2)::int")
    with pytest.raises(st.RequestError, match="change the key 'ada' to 'x'"):
        db.sql("update rates set who = 'x' where who = 'ada'")
    assert db["orders"].count() == 3


def test_a_row_that_matches_twice_is_refused(db: st.Store) -> None:
    with pytest.raises(st.RequestError, match="matches the row with the key 2 twice"):
        db.sql("update orders set total = e.n from events e where e.n = orders.id")
    assert totals(db) == [10.0, 20.0, None]


def test_an_update_needs_a_key(db: st.Store) -> None:
    with pytest.raises(
        st.RequestError, match=r"UPDATE needs a table with .* and 'events' has none"
    ):
        db.sql("update events set n = 1")


def test_returning_gives_the_new_rows_of_an_update(db: st.Store) -> None:
    found = db.sql(
        "update orders o set total = total + 1 where id = 1 returning o.*, total * 2 as x"
    )
    assert found.columns == ["id", "who", "total", "day", "x"]
    assert [row[2] for row in found.fetchall()] == [11.0]
    assert db.sql("update orders set total = 4 where id = 1 returning total").fetchall() == [(4.0,)]
    assert db.sql("update orders set total = 4 where id = 77 returning total").fetchall() == []


@pytest.mark.parametrize(
    ("text", "parameters", "left"),
    [
        ("delete from orders", None, []),
        ("delete from orders where id = 1", None, [2, 3]),
        ("delete from orders where id = ? and total < ?", [1, 50], [1, 2, 3]),
        ("delete from orders where day < ?", ["2026-01-02"], [2, 3]),
        ("delete from orders where not (day < '2026-01-02')", None, [1, 3]),
        ("delete from orders where who is null or id in (1, 7)", None, [2]),
        ("delete from orders o where o.who = 'it''s' or o.who >= 'b' and o.id <> 1", None, [1, 3]),
        ("delete from orders where total > 15", None, [1, 3]),
        ("delete from orders where id % 2 = 1", None, [2]),
        ("delete from orders where id in (select n from events)", None, [3]),
        ("delete from orders using events where n = id", None, [3]),
        ("delete from orders o using rates r, events where r.who = o.who and n = 1", None, [3]),
        ("with r as (from rates limit 0) delete from orders using r", None, [1, 2, 3]),
    ],
)
def test_rows_are_deleted(db: st.Store, text: str, parameters: Any, left: list[int]) -> None:
    if "total < ?" in text:
        assert db.sql("select 1 where 10 < 50").fetchall()
        left = [2, 3]
    done = db.sql(text, parameters)
    assert done.rows == 3 - len(left)
    assert [row[0] for row in db.sql("select id from orders order by id").fetchall()] == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("delete from events", 0),
        ("delete from events where n = 2", 1),
        ("delete from events where note is null", 2),
        ("delete from events where n > 1 and note = 'b'", 2),
    ],
)
def test_a_filter_deletes_from_a_table_without_a_key(db: st.Store, text: str, left: int) -> None:
    assert db.sql(text).rows == 3 - left
    assert db["events"].count() == left


@pytest.mark.parametrize(
    "where", ["n + 1 = 2", "n in (select id from orders)", "note like 'a%'", "n = 1.5"]
)
def test_what_no_filter_is_deletes_only_by_key(db: st.Store, where: str) -> None:
    with pytest.raises(st.RequestError, match="DELETE on 'events', which has no primary key"):
        db.sql(f"delete from events where {where}")
    assert db["events"].count() == 3


def test_returning_gives_the_rows_that_are_gone(db: st.Store) -> None:
    assert db.sql("delete from orders where id = 1 returning who").fetchall() == [("ada",)]
    assert db.sql("delete from orders where id % 2 = 0 returning id, who").fetchall() == [(2, "bo")]
    assert db.sql("delete from events where n = 1 returning *").fetchall() == [(1, "a")]
    assert db.sql("delete from orders where id = 1 returning who").fetchall() == []


def test_truncate_takes_all_rows(db: st.Store) -> None:
    assert db.sql("truncate orders").rows == 3
    assert db.sql("truncate table events").rows == 3
    assert db["orders"].count() == db["events"].count() == 0


def test_statements_of_a_transaction_see_each_other_and_commit_together(db: st.Store) -> None:
    before = db.seq
    with db.transaction() as tx:
        done = tx.sql("insert into orders (id, total) values (7, 1)")
        assert (done.rows, done.seq) == (1, None)
        assert tx.sql("update orders set total = total + 1 where total < 15").rows == 2
        assert tx.sql("insert into orders (id, total) select 8, sum(total) from orders").rows == 1
        assert tx.sql("delete from orders where id = 3").rows == 1
        assert db["orders"].count() == 3
    assert totals(db) == [11.0, 20.0, 2.0, 33.0]
    assert db.seq == before + 1


def test_a_statement_that_fails_leaves_the_transaction_as_it_was(db: st.Store) -> None:
    with db.transaction() as tx:
        tx.sql("update orders set total = 1 where id = 1")
        for text in (
            "insert into orders (id) values (50), (2)",
            "update orders set total = 'x'",
            "update orders set id = 4",
            "delete from nope",
        ):
            with pytest.raises(st.RequestError):
                tx.sql(text)
        tx.sql("update orders set total = total + 1 where id = 1")
    assert totals(db) == [2.0, 20.0, None]


def test_a_statement_runs_again_after_a_conflict_and_never_in_a_transaction(own: st.Store) -> None:
    with own.transaction() as tx:
        tx.sql("update orders set total = total + 1 where id = 1")
        own.sql("update orders set total = total + 5 where id = 1")
        with pytest.raises(st.ConflictError):
            tx.commit()
    assert totals(own)[0] == 15.0
