"""MERGE does to each row what the first clause says whose condition is true for it."""

from __future__ import annotations

import pytest

import siltstone as st

NEW = "using (values (1, 'x', 1.5), (9, 'new', 2)) s(id, who, total)"


def rows(db: st.Store) -> list[tuple[object, ...]]:
    return db.sql("select id, who, total from orders order by id").fetchall()


ADA, BO, NOBODY = (1, "ada", 10.0), (2, "bo", 20.0), (3, None, None)


@pytest.mark.parametrize(
    ("clauses", "count", "after"),
    [
        (
            ("when matched then update set total = s.total when not matched then"
            " insert (id, who, total) values (s.id, s.who, s.total)"),
            2, [(1, "ada", 1.5), BO, NOBODY, (9, "new", 2.0)],
        ),
        ("when matched then delete", 1, [BO, NOBODY]),
        ("when matched and o.total > 50 then delete", 0, [ADA, BO, NOBODY]),
        (
            ("when matched and o.total > 50 then delete when matched then update"
            " set who = o.who || s.who, total = o.total + s.total"),
            1, [(1, "adax", 11.5), BO, NOBODY],
        ),
        ("when not matched by target then insert (who, id) values (lower(s.who), s.id)", 1,
         [ADA, BO, NOBODY, (9, "new", None)]),
        ("when not matched then insert values (s.id, s.who, s.total, null)", 1,
         [ADA, BO, NOBODY, (9, "new", 2.0)]),
        ("when not matched and s.total > 5 then insert by name", 0, [ADA, BO, NOBODY]),
        ("when not matched then insert by name when matched then update by name", 2,
         [(1, "x", 1.5), BO, NOBODY, (9, "new", 2.0)]),
        ("when not matched by source then delete", 2, [ADA]),
        (
            ("when matched then do nothing when not matched by source and o.who is null"
            " then delete when not matched by source then update set total = default"),
            2, [ADA, (2, "bo", None)],
        ),
        (
            ("when matched then update set total = case when o.total > 5 then 0 else 1 end"
            " when not matched then insert by name when not matched by source then delete"),
            4, [(1, "ada", 0.0), (9, "new", 2.0)],
        ),
        ("when matched and s.id = 7 then error 'seven'", 0, [ADA, BO, NOBODY]),
    ],
)  # fmt: skip
def test_rows_are_merged(
    db: st.Store, clauses: str, count: int, after: list[tuple[object, ...]]
) -> None:
    assert db.sql(f"merge into orders as o {NEW} on o.id = s.id {clauses}").rows == count
    assert rows(db) == after


def test_using_joins_by_columns_of_equal_names_and_parameters_may_be_anywhere(db: st.Store) -> None:
    done = db.sql(
        "with n as (select ? as id, ? as total) merge into orders using n using (id)"
        " when matched and orders.total > ? then update set total = n.total + ?",
        [1, 5, 3, 0.5],
    )
    assert (done.rows, rows(db)) == (1, [(1, "ada", 5.5), BO, NOBODY])


def test_star_takes_the_columns_of_a_source_that_has_the_same(db: st.Store) -> None:
    db.create_table("more", db["orders"].schema, "id")
    db.sql("insert into more (id, total) values (2, 7), (12, 8)")
    text = "merge into orders using more on orders.id = more.id when matched then update set *"
    assert db.sql(f"{text} when not matched then insert *").rows == 2
    assert rows(db) == [ADA, (2, None, 7.0), NOBODY, (12, None, 8.0)]
    with pytest.raises(st.SchemaMismatchError, match="say BY NAME, or name the columns"):
        db.sql("merge into orders using rates r on r.who = orders.who when matched then update")


def test_a_row_that_matches_twice_is_refused(db: st.Store) -> None:
    text = "merge into orders o using events e on e.n = o.id when matched then"
    for action in ("update set total = e.n", "delete"):
        with pytest.raises(st.RequestError, match="MERGE matches the row with the key 2 twice"):
            db.sql(f"{text} {action}")
    assert db.sql(f"{text} do nothing").rows == 0
    assert db.sql(text.replace("matched", "matched and e.note = 'b'") + " delete").rows == 1
    assert rows(db) == [ADA, NOBODY]


def test_a_new_row_may_have_the_key_of_one_that_is_deleted(db: st.Store) -> None:
    text = "merge into orders o using (select 2 as id, 'bo2' as who) s on false"
    text += " when not matched then insert by name"
    with pytest.raises(st.DuplicateKeyError):
        db.sql(text)
    assert db.sql(f"{text} when not matched by source and o.id = 2 then delete").rows == 2
    assert rows(db) == [ADA, (2, "bo2", None), NOBODY]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "merge into events e using orders o on o.id = e.n when matched then delete",
            "needs a table",
        ),
        ("merge into orders o using events e on e.n = o.id", "MERGE needs ON condition"),
        (
            "merge into orders o using events e on e.n = 4 when not matched then delete",
            "inserts one",
        ),
        (
            "merge into orders o using events e on o.id = 1 when matched then insert *",
            "only WHEN NOT",
        ),
        (
            "merge into orders o using rates r on r.who = o.who when matched then update set id=9",
            "MERGE would change the key 1 to 9",
        ),
        (
            (
                "merge into orders o using rates r on r.who = o.who when matched and o.id = 2"
                " then error 'no bo'"
            ),
            "a row is MATCHED, which is an error: 'no bo'",
        ),
        (
            (
                "merge into orders o using rates r on r.who = o.who when matched then update"
                " set total = 'x'"
            ),
            "column 'total' is double, not 'x'",
        ),
    ],
)
def test_what_merge_does_not_do_is_refused(db: st.Store, text: str, words: str) -> None:
    with pytest.raises(st.RequestError, match=words):
        db.sql(text)
    assert rows(db) == [ADA, BO, NOBODY]


def test_returning_says_what_became_of_each_row(db: st.Store) -> None:
    found = db.sql(
        f"merge into orders o {NEW} on o.id = s.id when matched then update set total = s.total"
        " when not matched then insert by name when not matched by source and o.id = 3 then delete"
        " returning merge_action, o.id, total"
    )
    assert found.columns == ["merge_action", "id", "total"]
    assert sorted(found.fetchall()) == [("DELETE", 3, None), ("INSERT", 9, 2.0), ("UPDATE", 1, 1.5)]
    found = db.sql(f"merge into orders o {NEW} on o.id = s.id when matched then delete returning *")
    found_rows = sorted(row[:3] for row in found.fetchall())  # a join has no order
    assert found_rows == [(1, "ada", 1.5), (9, "new", 2.0)]


def test_a_merge_sees_the_rows_of_its_transaction(db: st.Store) -> None:
    with db.transaction() as tx:
        tx.sql("insert into orders (id, who) values (9, 'mine')")
        text = f"merge into orders o {NEW} on o.id = s.id when matched then update set who = s.who"
        assert tx.sql(text).rows == 2
    assert rows(db)[-1] == (9, "new", None)


def test_a_large_merge_stages_its_rows(own: st.Store) -> None:
    own.sql("insert into orders (id) select range + 100 from range(200)")
    done = own.sql(
        "merge into orders o using (select range + 200 as id, repeat('y', 200000) as who"
        " from range(400)) s on s.id = o.id when matched then update set who = s.who"
        " when not matched then insert by name when not matched by source and o.id < 3 then delete"
    )
    assert done.rows == 402
    found = own.sql("select count(*), min(id), sum(who[1] = 'y') from orders").fetchall()
    assert found == [(501, 3, 400)]
