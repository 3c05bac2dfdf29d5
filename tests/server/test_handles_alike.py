"""Stores, tables and results are at home in Python, SQL tools and notebooks, by every door."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.joined.store import JoinedStore
from tests.server.stores import opened

DOORS = ("owner", "socket", "http", "read-only")


@pytest.fixture(scope="module", params=DOORS)
def db(request: pytest.FixtureRequest, tmp_path_factory) -> Iterator[st.Store]:
    path = tmp_path_factory.mktemp("door") / "shop"
    with opened(path) as owner:
        orders = owner.create_table("orders", {"id": "int64", "total": "float64"}, "id")
        orders.upsert([{"id": number, "total": number / 2} for number in range(12)])
        owner.create_table("events", {"what": "string"}).append({"what": "<b>"})
        if request.param == "owner":
            yield owner
        elif request.param == "read-only":
            with st.connect(path, read_only=True) as reader:
                yield reader
        elif request.param == "socket":
            with JoinedStore(path, str(owner.serve_local())) as joined:
                yield joined
        else:
            with st.connect(owner.serve(port=0).url) as joined:
                yield joined


def test_a_store_is_asked_for_its_tables_like_a_dict_for_its_keys(db: st.Store) -> None:
    with db.snapshot() as past:
        for each in (db, past):
            assert "orders" in each
            assert "ordres" not in each
            assert 7 not in each
            assert len(each) == 2
            assert list(each) == ["events", "orders"]
            assert each._ipython_key_completions_() == ["events", "orders"]
            assert "<td>orders</td>" in each._repr_html_()
            assert each


def test_a_transaction_is_asked_for_its_tables_with_its_own_changes(db: st.Store) -> None:
    if db.is_read_only:
        return
    with db.transaction() as tx:
        tx.create_table("new", {"id": "int64"})
        assert "new" in tx
        assert list(tx) == ["events", "new", "orders"]
        assert "new" not in db
        tx.rollback()


def test_a_table_shows_its_first_rows_and_knows_how_many_it_has(db: st.Store) -> None:
    with db.snapshot() as past:
        for table in (db["orders"], past["orders"]):
            assert len(table) == 12
            assert table.head().num_rows == 5
            assert table.head(3, ["id"], "id > 8").column_names == ["id"]
            assert table.head(100).num_rows == 12
            assert table


def test_a_table_without_rows_is_true_and_counts_none(db: st.Store) -> None:
    with db.snapshot() as past:
        events = past["events"]
        assert len(events) == 1
        assert events.head(0).num_rows == 0
        assert bool(events)


def test_a_table_and_a_result_are_cut_to_a_limit(db: st.Store) -> None:
    with db.snapshot() as past:
        for table in (db["orders"], past["orders"]):
            assert table.limit(3).num_rows == 3
            assert table.limit(3, ["id"], "id > 10").to_pydict() == {"id": [11]}
            assert table.limit(0).column_names == table.schema.names
            with pytest.raises(st.RequestError, match="limit"):
                table.limit(-1)
    found = db.sql("select id from orders order by id")
    assert found.fetchone() == (0,)
    assert found.limit(2).fetchall() == [(0,), (1,)]
    assert len(found.limit(100)) == 12
    for wrong in (-1, 1.5, True):
        with pytest.raises(st.RequestError, match="limit must be an integer from 0"):
            found.limit(wrong)


def test_rows_come_by_key_through_every_door(db: st.Store) -> None:
    with db.snapshot() as past:
        for table in (db["orders"], past["orders"]):
            assert table.range(3, 6).read_all()["total"].to_pylist() == [1.5, 2.0, 2.5]
            last = table.range(None, 6, columns=["id"], limit=2, offset=1, descending=True)
            assert last.read_all().to_pydict() == {"id": [4, 3]}
            page = table.scan(["id"], filter="id > 7", order_by="id", limit=2)
            assert page.read_all().to_pydict() == {"id": [8, 9]}
            with pytest.raises(st.RequestError, match="the columns of the key"):
                table.scan(order_by=["total"])
            with pytest.raises(st.SchemaMismatchError, match="key column 'id' is int64"):
                table.range("a")
    query = "select id from orders where id > ? order by id desc limit 2"
    assert db.sql(query, [4]).fetchall() == [(11,), (10,)]


def test_a_transaction_reads_its_own_rows_by_key_through_every_door(db: st.Store) -> None:
    if db.is_read_only:
        return
    with db.transaction() as tx:
        tx["orders"].upsert([{"id": 5, "total": -1.0}, {"id": 50, "total": 7.0}])
        tx["orders"].delete([4])
        found = tx["orders"].range(3, columns=["id", "total"], limit=2).read_all()
        assert found.to_pydict() == {"id": [3, 5], "total": [1.5, -1.0]}
        found = tx["orders"].scan(["id"], order_by=["id"], descending=True, limit=1)
        assert found.read_all().to_pydict() == {"id": [50]}
        tx.rollback()


@pytest.mark.parametrize("call", ["to_arrow", "to_pandas", "to_polars"])
def test_a_read_of_whole_rows_takes_a_limit(db: st.Store, call: str) -> None:
    assert len(getattr(db["orders"], call)(["id"], limit=4)) == 4
    assert len(getattr(db["orders"], call)(filter="id = 3", limit=4)) == 1
    with pytest.raises(st.RequestError, match="limit"):
        getattr(db["orders"], call)(limit=-1)


def test_a_table_is_arrow_data_to_those_that_take_it(db: st.Store) -> None:
    with db.snapshot() as past:
        for table in (db["orders"], past["orders"]):
            assert pa.table(table).sort_by("id") == table.to_arrow().sort_by("id")
            assert pl.DataFrame(table).height == 12


def test_a_table_can_be_written_into_another(db: st.Store) -> None:
    if db.is_read_only:
        return
    copy = db.create_table("copy", db["orders"].schema, "id")
    assert copy.upsert(db["orders"]).rows == 12
    assert copy.to_arrow().sort_by("id") == db["orders"].to_arrow().sort_by("id")
    db.drop_table("copy")


def test_a_notebook_shows_rows_and_no_markup_of_theirs(db: st.Store) -> None:
    found = db["events"]._repr_html_()
    assert "<th>what</th>" in found
    assert "&lt;b&gt;" in found
    assert "<b>" not in found
    assert found.count("<tr>") == 2
    assert db["orders"]._repr_html_().count("<tr>") == 11


def test_a_result_is_read_as_of_a_cursor(db: st.Store, capsys) -> None:
    found = db.sql("select id, total from orders where id < 5 order by id")
    assert [column[:2] for column in found.description] == [
        ("id", pa.int64()),
        ("total", pa.float64()),
    ]
    assert found.fetchone() == (0, 0.0)
    assert found.fetchmany(2) == [(1, 0.5), (2, 1.0)]
    assert found.fetchmany() == [(3, 1.5)]
    assert found.fetchall() == [(4, 2.0)]
    assert len(found.fetchmany(9)) == 1
    assert found.fetchone() is None
    assert found.fetchmany(3) == []
    assert found.fetchall() == []
    assert len(list(found)) == len(found) == 5
    with pytest.raises(st.RequestError, match="size must be an integer from 0"):
        found.fetchmany(-1)
    found.show(2)
    assert capsys.readouterr().out == ("id  total\n--  -----\n0   0.0\n1   0.5\n(5 rows)\n")
    assert "<td>4</td>" in found._repr_html_()


def test_polars_and_pandas_make_frames_of_a_result(db: st.Store) -> None:
    found = db.sql("select id, total from orders order by id")
    assert isinstance(pl.DataFrame(found), pl.DataFrame)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # Polars 2 makes a series of any stream
        made: Any = pl.from_arrow(found)
    frame = made.struct.unnest() if isinstance(made, pl.Series) else made
    assert isinstance(frame, pl.DataFrame)
    assert frame.equals(found.pl())
    assert pl.from_arrow(found.arrow()).equals(frame)
    assert pl.DataFrame(found).equals(frame)
    assert isinstance(found.df(), pd.DataFrame)


FRAMES = {
    "pandas": lambda: pd.DataFrame({"id": [1, 2, 99]}),
    "polars": lambda: pl.DataFrame({"id": [1, 2, 99], "name": ["a", "b", "c"]}),
    "arrow": lambda: pa.table({"id": [1, 2, 99]}),
    "a reader": lambda: pa.table({"id": [1, 2, 99]}).to_reader(),
}
JOIN = "select count(*) from orders join df using (id)"


@pytest.mark.parametrize("made", FRAMES)
def test_a_statement_sees_the_frames_of_its_caller_or_says_why_not(db: st.Store, made: str) -> None:
    df = FRAMES[made]()
    with db.snapshot() as past:
        for each in (db, past):
            if isinstance(db, JoinedStore):
                with pytest.raises(st.RequestError, match="'df' is a variable of this process"):
                    each.sql(JOIN)
            else:
                assert each.sql(JOIN).fetchone() == (2,)
                df = FRAMES[made]()  # a reader is read once
    del df


def test_a_table_comes_before_a_variable_of_its_name(db: st.Store) -> None:
    orders = pa.table({"id": [1]})
    assert db.sql("select count(*) from Orders").fetchone() == (12,)
    assert orders.num_rows == 1


def test_a_variable_that_has_no_rows_is_no_table(db: st.Store) -> None:
    names = ["a"]
    with pytest.raises(st.RequestError, match="names"):
        db.sql("select * from names")
    assert names


def test_a_statement_does_not_see_the_frames_of_who_called_its_caller(db: st.Store) -> None:
    df = pa.table({"id": [1]})

    def inner() -> None:
        db.sql("select * from df")

    with pytest.raises(st.TableNotFoundError, match="there is no table 'df'"):
        inner()
    assert df.num_rows == 1


def test_a_statement_names_no_file_and_no_variable_of_the_server(db: st.Store) -> None:
    for name in ("'orders.parquet'", "self", "request", "'/etc/passwd'"):
        with pytest.raises(st.RequestError):
            db.sql(f"select * from {name}")
