"""Each clause of MERGE sees the columns that DuckDB shows it: of the source, the table, or both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import siltstone as st
from tests.server.stores import opened

MADE = (
    "create table t (id bigint primary key, v bigint, s varchar)",
    "insert into t values (1, 10, 'a'), (2, 20, 'b'), (3, null, null)",
    "create table u (id bigint primary key, v bigint)",
    "insert into u values (1, 100), (2, 200), (5, 500)",
)
ON = "merge into t using u on t.id = u.id"


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[st.Store, duckdb.DuckDBPyConnection]]:
    with opened(tmp_path / "shop") as db, duckdb.connect() as peer:
        for text in MADE:
            db.sql(text)
            peer.execute(text)
        yield db, peer


def taken(text: str) -> Any:
    return pytest.param(text, id=text)


@pytest.mark.parametrize(
    "text",
    [
        taken(f"{ON} when not matched then insert (id, v) values (id, v)"),
        taken(f"{ON} when not matched and v > 400 then insert (id, v) values (id + 1, v)"),
        taken(f"{ON} when not matched by source and v is null then update set v = id"),
        taken(
            f"{ON} when matched then update set v = t.v + u.v when not matched by source and id = 3"
            " then delete when not matched then insert values (id, v, 'new')"
        ),
        taken(
            "merge into t using u using (id) when matched and id > 1 then update set v = u.v + id"
            " when not matched then insert (id) values (id)"
        ),
        taken("merge into t using u using (ID) when matched then delete"),
        taken(
            "merge into t x using (values (1, 5), (9, 6)) y(id, k) on x.id = y.id when matched then"
            " update set v = k when not matched then insert (id, v) values (id, k)"
        ),
        taken("merge into t using u on t.id < u.id and u.id = 2 when not matched then insert (id)"
              " values (id + 90) when not matched by source then delete"),
        taken(f"{ON} when matched then delete returning t.*"),
        taken(f"{ON} when matched then do nothing returning *, merge_action"),
        taken(f"{ON} when matched then delete returning *"),
        taken(f"{ON} when matched then delete returning *, merge_action"),
        taken(f"{ON} when matched then delete returning t.v, * exclude (v)"),
        taken(f"{ON} when matched then delete returning v, t . * exclude (id), merge_action as a"),
    ],
)  # fmt: skip
def test_a_clause_is_taken_as_duckdb_takes_it(
    both: tuple[st.Store, duckdb.DuckDBPyConnection], text: str
) -> None:
    db, peer = both
    assert sorted(db.sql(text).fetchall()) == sorted(peer.execute(text).fetchall())
    query = "from t order by id"
    assert db.sql(query).fetchall() == peer.execute(query).fetchall()


@pytest.mark.parametrize(
    "text",
    [
        taken(f"{ON} when not matched by source then update set v = u.v"),
        taken(f"{ON} when not matched by source and u.v is null then delete"),
        taken(f"{ON} when not matched then insert (id, s) values (u.id, t.s)"),
        taken(f"{ON} when not matched then insert (id, s) values (u.id, s)"),
        taken(f"{ON} when matched then update set v = v"),
    ],
)
def test_a_clause_that_names_what_it_cannot_see_is_refused(
    both: tuple[st.Store, duckdb.DuckDBPyConnection], text: str
) -> None:
    db, peer = both
    with pytest.raises(duckdb.BinderException):
        peer.execute(text)
    before = db.sql("from t").fetchall()
    with pytest.raises(st.RequestError, match="Binder Error"):
        db.sql(text)
    assert db.sql("from t").fetchall() == before


def test_a_row_is_matched_or_not_by_one_look(
    both: tuple[st.Store, duckdb.DuckDBPyConnection],
) -> None:
    db, _ = both
    db.sql("create table l (id bigint primary key, v bigint)")
    db.sql("insert into l select range, 0 from range(1000)")
    done = db.sql(
        "merge into l using (select range as id from range(1000)) s on l.id = s.id and random() <"
        " .5 when matched then update set v = 1 when not matched by source then update set v = 2"
        " when not matched then insert (id, v) values (s.id + 1000, 3)"
    )
    found = dict(db.sql("select v, count(*) from l group by v").fetchall())
    assert found.keys() == {1, 2, 3}
    assert found[1] + found[2] == 1000
    assert found[2] == found[3]
    assert done.rows == 1000 + found[3]


@pytest.mark.parametrize(
    "clauses",
    [
        "when not matched then insert (id) values (1)",
        "when matched and t.id = 2 then delete when not matched then insert (id) values (1)",
        (
            "when not matched and u.id = 5 then insert (id) values (7) when not matched then"
            " insert (id) values (7)"
        ),
        "when matched then update set v = 0 when not matched then insert (id) values (1)",
        "when matched then delete when not matched then insert (v) values (u.v)",
    ],
)
def test_a_new_row_whose_key_is_taken_changes_nothing(
    both: tuple[st.Store, duckdb.DuckDBPyConnection], clauses: str
) -> None:
    db, _ = both
    db.sql("insert into u values (6, 600)")
    before = db.sql("from t").fetchall()
    with db.transaction() as tx:
        tx.sql("insert into u values (8, 800)")
        with pytest.raises((st.DuplicateKeyError, st.SchemaMismatchError)):
            tx.sql(f"{ON} {clauses}")
        assert tx.sql("from t").fetchall() == before
    with pytest.raises((st.DuplicateKeyError, st.SchemaMismatchError)):
        db.sql(f"{ON} {clauses}")
    assert db.sql("from t").fetchall() == before
    assert db.sql("select count(*) from u").fetchall() == [(5,)]
