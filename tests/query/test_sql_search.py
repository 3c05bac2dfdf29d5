"""`search(...)` stands where a table may in a statement, and has the rows of a search."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import siltstone as st

COLUMNS = {"id": "int64", "v": "vector(float32, 2)", "name": "string"}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Store]:
    with st.connect(tmp_path_factory.mktemp("sql") / "s", background=False) as store:
        docs = store.create_table("docs", COLUMNS, primary_key="id")
        docs.upsert([{"id": n, "v": [n, 0], "name": f"n{n}"} for n in range(20)])
        store.checkpoint()
        store.merge()
        docs.create_index("v", kind="vector")
        docs.update(7, v=[100, 0])
        docs.delete(8)
        people = store.create_table("sales.people", {"id": "int64", "doc": "int64"}, "id")
        people.upsert([{"id": 1, "doc": 7}, {"id": 2, "doc": 6}])
        store.create_table("plain", {"id": "int64", "name": "string"})
        yield store


def test_the_rows_are_those_of_a_search(db: st.Store) -> None:
    wanted = db["docs"].search([7.2, 0], 4).to_pylist()
    assert [row["id"] for row in wanted] == [6, 9, 5, 10]
    found = db.sql("select * from search('docs', ?, k => 4)", [[7.2, 0]])
    assert found.arrow().to_pylist() == wanted
    assert found.columns == ["id", "v", "name", "_distance"]
    assert db.sql("FROM search('docs', ?)", [[7.2, 0]]).arrow().num_rows == 10


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("select id from search('docs', [7.2, 0], k => 2)", None),
        ("select id from search('docs', [7.2, -0.0]::float[2], k := 2)", None),
        ("select id from search('docs', $1, k => $2)", [[7.2, 0], 2]),
        ("select id from search($3, $1, k => $2) limit $4", [[7.2, 0], 2, "docs", 9]),
        ("select id from search('docs', $v, k => $k)", {"v": [7.2, 0], "k": 2}),
        ("select id from search('docs', $v, k => $k) limit $k", {"v": [7.2, 0], "k": 2}),
        ("select id from search('docs', [?, ?], k => ?) where id < ?", [7.2, 0, 2, 99]),
        ("select s.id from SEARCH ( 'docs' , ? , exact => true ) as s limit ?", [[7.2, 0], 2]),
        ("select id from search('docs', ?, k => 2, column => 'v', metric => 'l2')", [(7.2, 0)]),
        ("select id from search('docs', ?, k => 2)", [np.array([7.2, 0])]),
        ("with s as (from search('docs', ?, k => 2)) select id from s", [[7.2, 0]]),
        ("select id -- search('docs', ?)\n from search('docs', ?, k => 2)", [[7.2, 0]]),
        ("select id from (from search('docs', ?, k => 2)) limit 9", [[7.2, 0]]),
        ("select id from (select 1) join search('docs', ?, k => 2) on true", [[7.2, 0]]),
        ("select id from (values (1, ('x'))) x, search('docs', ?, k => 2) y", [[7.2, 0]]),
        ("select id from (select 1) x, search('docs', ?, k => 2) y", [[7.2, 0]]),
        ("select id from search('docs', ?, k => 2, nprobes => 3, refine => null)", [[7.2, 0]]),
        ("with _search_1 as (select 1 id) select id from search('docs', ?, k => 2)", [[7.2, 0]]),
    ],
)
def test_a_search_is_found_however_it_is_written(db: st.Store, text: str, parameters: Any) -> None:
    assert db.sql(text, parameters).fetchall() == [(6,), (9,)]


def test_a_filter_chooses_before_the_ranking_and_where_after_it(db: st.Store) -> None:
    before = "select id from search('docs', ?, k => 2, filter => 'id > 9')"
    assert db.sql(before, [[7, 0]]).fetchall() == [(10,), (11,)]
    after = "select id from search('docs', ?, k => 3) where id > ? and name <> 'n5'"
    assert db.sql(after, [[7, 0], 5]).fetchall() == [(6,), (9,)]
    near = "select id from search('docs', ?, k => 9, distance_range => [1.0, ?]) order by 1"
    assert db.sql(near, [[7, 0], 4.5]).fetchall() == [(5,), (6,), (9,)]


def test_a_search_is_joined_with_tables_and_with_another_search(db: st.Store) -> None:
    joined = (
        "select p.id, s._distance from sales.people p join"
        " search('docs', ?, k => 3, columns => ['id']) s on s.id = p.doc order by p.id"
    )
    assert db.sql(joined, [[100, 0]]).fetchall() == [(1, 0.0)]
    both = (
        "select a.id, b.id from search('docs', ?, k => 1) a, search('docs', ?, k => 1) b"
        " where b.id > ?"
    )
    assert db.sql(both, [[0, 0], [100, 0], 3]).fetchall() == [(0, 7)]
    many = "select _query, id from search('docs', ?, k => 1) order by 1"
    assert db.sql(many, [[[100, 0], [0, 0]]]).fetchall() == [(0, 7), (1, 0)]


def test_the_past_is_searched_as_it_was(db: st.Store) -> None:
    with db.snapshot() as now:
        db["docs"].update(3, v=[300, 0])
        one = "select id from search('docs', ?, k => 1)"
        assert now.sql(one, [[300, 0]]).fetchall() == [(7,)]
        assert db.sql(one, [[300, 0]]).fetchall() == [(3,)]
        db["docs"].update(3, v=[3, 0])


def test_a_joined_process_and_a_reader_ask_the_same(db: st.Store) -> None:
    db.serve_local()
    text, vector = "select * from search('docs', ?, k => 5)", [7.2, 0.0]
    wanted = db.sql(text, [vector]).arrow().to_pylist()
    with (
        st.connect(db.path, join=True) as joined,
        st.connect(db.path, read_only=True) as reader,
    ):
        for other in (joined, reader):
            assert other.sql(text, [vector]).arrow().to_pylist() == wanted


WRONG: list[tuple[str, Any, str]] = [
    ("from search('docs', [1])", None, "vectors of 2 numbers; the query has 1"),
    ("from search('docs', ?)", [[float("nan"), 0]], "no NaN"),
    ("from search('docs', [1, 2], k => 0)", None, "k must be an integer from 1 to 10000"),
    ("from search('docs', [1, 2], k => 10001)", None, "k must be an integer from 1 to 10000"),
    (f"from search('docs', [1, 2], k => {'9' * 5000})", None, "k must be an integer from 1"),
    ("from search('docs', [1, 2], k => :k)", {"k": 2}, r"are \?, \$1 and \$name"),
    ("from search('docs', [1, 2], column => 'w')", None, "no column 'w'"),
    ("from search('docs', [1, 2], column => 'name')", None, "needs fixed-size lists"),
    ("from search('docs', [1, 2], columns => ['w'])", None, "no column"),
    ("from search('docs', [1, 2], columns => 'id')", None, "columns must be a list of names"),
    ("from search('docs', [1, 2], columns => [[1]])", None, "no column"),
    ("from search('docs', [1, 2], metric => 'far')", None, "metric must be one of"),
    ("from search('docs', [1, 2], filter => 'w = 1')", None, "no column 'w'"),
    ("from search('plain', [1, 2])", None, "no column holds vectors"),
    ("from search('nothing', [1, 2])", None, "no table 'nothing'"),
    ("from search('docs')", None, r"a search is search\('table', vector"),
    ("from search('docs', [1, 2], 3)", None, r"a search is search\('table', vector"),
    ("from search(docs, [1, 2])", None, "a constant or a parameter; got 'docs'"),
    ("from search('docs', (select v from docs))", None, "a constant or a parameter"),
    ("from search('docs', [1, 2], l => 3)", None, "must be one of k, column"),
    ("from search('docs', [1, 2], k => 3, k => 4)", None, "k appears twice"),
    ("from search('docs', k => 3, [1, 2])", None, "arguments with names come last"),
    ("from search('docs', ?)", None, r"number 1 of search\(...\) was not given"),
    ("from search('docs', $v)", {"w": 1}, r"the parameter \$v of search\(...\) was not given"),
    ("from search('docs', ?)", [[1, 2], 3], "DuckDB refuses the statement"),
    ("from search('docs', [1, 2]", None, "is not closed"),
    ("from (from search('docs', [1, 2])", None, "DuckDB refuses the statement"),
    ("from " + ", ".join(["search('docs', [1, 2])"] * 17), None, "at most 16 searches"),
    ("select search('docs', [1, 2])", None, "DuckDB refuses the statement"),
    ("select 1, search('docs', [1, 2])", None, "DuckDB refuses the statement"),
]


@pytest.mark.parametrize(("text", "parameters", "said"), WRONG)
def test_a_wrong_search_is_one_clear_error(
    db: st.Store, text: str, parameters: Any, said: str
) -> None:
    with pytest.raises(st.RequestError, match=said):
        db.sql(text, parameters)


def test_a_name_of_a_user_may_be_search(db: st.Store, tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as other:
        other.create_table("search", {"id": "int64"}, primary_key="id").upsert({"id": 1})
        assert other.sql("select search.id from search").fetchall() == [(1,)]
        named = "with search(a) as (select id from search) select a from search where a in (1)"
        assert other.sql("with x as (select 1), search(a) as (select 2) from search").fetchall()
        assert other.sql(named).fetchall() == [(1,)]
    assert db.sql("select s.a from docs s(a, b, c) where a = 1").fetchall() == [(1,)]
