"""What a statement cannot do is refused in one sentence, and changes nothing."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.server.rest.tokens import new_token, tokens_of
from tests.query.writes.conftest import filled
from tests.server.stores import opened

SECRET = new_token()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "insert into orders values (4, 'x', 'y', null)",
            "row 1 .* 'total' is double, not 'y'",
        ),
        (
            "insert into orders (id, day) values (4, '2026-01-01'), (5, 'tomorrow')",
            r"row 2 of the statement: column 'day' is date32\[day\], not 'tomorrow'",
        ),
        (
            "insert into orders (id, total) select id + 9, who from orders order by id",
            "row 1 of the statement: column 'total' is double, not 'ada'",
        ),
        ("insert into orders (id) values (9223372036854775808)", "column 'id' is int64, not '92"),
        ("update orders set day = 'x' || id where id = 2", "row 1 .* column 'day' is .*, not 'x2'"),
        (
            "insert into orders (id) select null",
            "row 1 .*: column 'id' takes no null",
        ),
        ("insert into orders (id) values (4), (null)", "column 'id'"),
        ("insert into orders (who) values ('x')", "column 'id' may not be null or missing"),
        (
            "insert into orders (who) select 'x' on conflict do nothing",
            "no value of 'id'",
        ),
        ("insert into orders (id, id) values (4, 5)", "names column 'id' twice"),
        (
            "insert into orders (id, nope) values (4, 5)",
            "no column 'nope'; the columns",
        ),
        (
            "insert into orders (id, who) values (4)",
            "has 1 values, for the 2 columns id, who",
        ),
        ("insert into orders (id, who) select 4", "writes 2 columns, and its query gives 1"),
        ("insert into orders (id, who) select 4, 5, 6", "writes 2 columns, and its query gives 3"),
        ("update orders set nope = 1", "no column 'nope'"),
        ("update orders set total = 1, TOTAL = 2", "SET assigns 'TOTAL' twice"),
        ("update orders set (who, total) = ('x', 1)", "one column at a time"),
        ("delete from nope", "there is no table 'nope'"),
        (
            "insert into information_schema.tables values (1)",
            "there is no table",
        ),
        ("insert into orders select * from nope", "there is no table 'nope'"),
        ("insert into orders select * from '/etc/passwd'", "there is no table '/etc/passwd'"),
        ("insert into events select 1, content from read_text('/etc/passwd')", "is a file"),
        ("delete from orders where id in (select id from read_csv('/tmp/x'))", "is a file"),
        ("insert into orders values (4, 'x', 1, null); delete from orders", "one statement"),
        ("insert into orders values (4, 'x', 1, null)) returning *", "closes nothing"),
        ("delete from orders where (id = 1", r"a '\)' is missing"),
        ("delete from orders /* where id = 1", "ends in a comment"),
        ("delete from orders where id = 1) or (true", "closes nothing"),
        ("delete from orders limit 1", "followed by 'limit 1'"),
        ("update orders set total = 1 where id = 1 order by id", "syntax error"),
        ("with Orders as (select 1 as id) delete from orders where id = 1", "as the table"),
        ("with a as (select 1), orders as (from a) update orders set total = 1", "as the table"),
        ("explain delete from orders", "EXPLAIN is for a query"),
        ("copy orders to '/tmp/x'", "COPY, which is not offered"),
    ],
)
def test_a_statement_that_does_not_fit_changes_nothing(db: st.Store, text: str, words: str) -> None:
    before = db.seq
    with pytest.raises(st.RequestError, match=words):
        db.sql(text)
    with db.transaction() as tx:
        with pytest.raises(st.RequestError, match=words):
            tx.sql(text)
        assert tx.is_open
    assert db.seq == before


def test_what_duckdb_says_keeps_its_lines(db: st.Store) -> None:
    with pytest.raises(st.RequestError) as caught:
        db.sql("update orders set total = total + where 2")
    first, *lines = str(caught.value).split("\n")
    assert first.startswith("DuckDB refuses the statement: Parser Error: syntax error at or near")
    shown, caret = lines[-2:]
    assert shown == "LINE 1: update orders set total = total + where 2"
    assert shown[caret.index("^") :].startswith("where")


@pytest.mark.parametrize(
    ("text", "parameters", "words"),
    [
        ("delete from orders where id = ?", None, r"has the parameters \$1, and was given none"),
        ("delete from orders where id = ?", [], r"has the parameters \$1, and was given none"),
        ("delete from orders where id = ?", [1, 2], r"parameters \$1, and was given \$1, \$2"),
        ("delete from orders where id = $id", [1], r"has the parameters \$id, and was given \$1"),
        ("delete from orders where id = $id", {"i": 1}, r"the parameters \$id, and was given \$i$"),
        ("delete from orders where id = 1", [1], r"has the parameters none, and was given \$1"),
        ("delete from orders where id = ?", "1", "a sequence or a mapping"),
        ("delete from orders where id = ? and total = $x", [1], "Mixing named and positional"),
    ],
)
def test_the_parameters_are_those_of_the_statement(
    db: st.Store, text: str, parameters: Any, words: str
) -> None:
    with pytest.raises(st.RequestError, match=words):
        db.sql(text, parameters)
    assert db["orders"].count() == 3


EVIL = "x'); delete from orders; --"


def test_a_parameter_is_a_value_whatever_is_in_it(db: st.Store) -> None:
    db.sql("insert into orders (id, who) values (4, ?)", [EVIL])
    db.sql("update orders set who = ? where id = 1", [EVIL])
    db.sql("insert into orders (id, who) select 5, ?", [EVIL])
    db.sql("insert into orders (id, who) values (6, $$x'); delete from orders; --$$)")
    assert db.sql("select id from orders where who = ? order by id", [EVIL]).fetchall() == [
        (1,), (4,), (5,), (6,)
    ]  # fmt: skip
    assert db.sql("delete from orders where who = ? or who = 'it''s'", [EVIL]).rows == 4


def test_a_name_is_a_name_whatever_is_in_it(db: st.Store) -> None:
    evil = '"; drop table orders; --'
    db.create_table("odd.table-1", {"id": "int64", evil: "string", "select": "int64"}, "id")
    quoted = '"' + evil.replace('"', '""') + '"'
    for name in ('"odd.table-1"', 'odd."table-1"', 'main."odd.table-1"'):
        db.sql(f"insert into {name} (id, {quoted}, \"select\") values (1, 'a', 2)")
        db.sql(f'update {name} set {quoted} = {quoted} || \'b\', "select" = "select" + 1')
        found = db.sql(f"delete from {name} where {quoted} = 'ab' returning *")
        assert found.fetchall() == [(1, "ab", 3)]
    assert "orders" in db


def test_snapshots_and_readers_refuse_with_one_error(db: st.Store) -> None:
    texts = ("delete from orders", "insert into orders (id) values (9)", "create table x (a int)")
    for text in texts:
        with db.snapshot() as past, pytest.raises(st.ReadOnlyError, match="read"):
            past.sql(text)
        with pytest.raises(st.ReadOnlyError, match="only read"):
            db.sql_reader(text)
    assert db["orders"].count() == 3


def test_a_store_that_was_opened_to_be_read_refuses(own: st.Store, tmp_path: Path) -> None:
    own.checkpoint()
    with st.connect(tmp_path / "shop", read_only=True) as reader:
        for text in ("delete from orders where id = 1", "create table x (a int)", "drop index i"):
            with pytest.raises(st.ReadOnlyError):
                reader.sql(text)
    assert own["orders"].count() == 3


def test_a_token_that_may_only_read_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "shop") as owner:
        filled(owner)
        url = owner.serve(port=0, tokens=tokens_of(f"me read {SECRET}", "test")).url
        with st.connect(url, token=SECRET) as reader:
            assert reader.sql("select count(*) from orders").fetchall() == [(3,)]
            with pytest.raises(st.AccessError):
                reader.sql("delete from orders")
            tx = reader.transaction()
            with pytest.raises(st.AccessError):
                tx.sql("delete from orders")
            tx.rollback()
        assert owner["orders"].count() == 3


def test_a_long_or_deep_text_is_refused_at_once(db: st.Store) -> None:
    for text, words in (
        ("insert into events values (1, '" + "x" * (10 << 20) + "')", "longer than"),
        ("delete from orders where " + "(" * 5_000 + "true" + ")" * 5_000, ""),
        ("update orders set total = " + "-" * 5_000 + "1 where id = 1", ""),
        ("delete from orders where " + "not " * 20_000 + "true", ""),
        ("insert into orders (id) values (" + "1 + " * 20_000 + "1)", ""),
    ):
        try:
            db.sql(text)
        except st.RequestError as error:
            assert words in str(error)  # noqa: PT017
    assert db["events"].count() == 3


def test_half_of_a_surrogate_pair_is_refused(db: st.Store) -> None:
    with pytest.raises(st.RequestError, match="surrogate"):
        db.sql("delete from orders where who = '\ud800'")


def test_a_statement_in_a_transaction_holds_what_a_frame_holds(own: st.Store) -> None:
    text = "insert into orders (id, who) select range + 100, repeat('x', 100_000) from range(2_800)"
    with own.transaction() as tx:
        with pytest.raises(st.LimitError, match="more than 268435456 bytes of rows") as caught:
            tx.sql(text)
        assert caught.value.bytes_max == 256 << 20
    assert own["orders"].count() == 3


def test_two_files_and_tables_are_not_mixed_by_a_server(db: st.Store) -> None:
    frame = pa.table({"id": [1]})
    assert frame.num_rows
    text = "insert into orders (id) select id + 10 from frame"
    if type(db).__name__ == "LocalStore":
        assert db.sql(text).rows == 1
    else:
        with pytest.raises(st.RequestError, match="is a variable of this process"):
            db.sql(text)


def test_a_value_that_python_and_duckdb_name_otherwise_goes_to_duckdb(own: st.Store) -> None:
    cases: list[tuple[object, Callable[[Any], bool]]] = [
        ("5", lambda found: found == 5.0),
        (True, lambda found: found == 1.0),
        (float("nan"), math.isnan),
        (1 << 60, lambda found: found == float(1 << 60)),
    ]
    for given, is_it in cases:
        own.sql("update orders set total = ? where id = 1", [given])
        assert is_it(own.sql("select total from orders where id = 1").fetchall()[0][0])
    noon = dt.datetime(2026, 5, 6, 12)  # noqa: DTZ001 - of no zone
    own.sql("update orders set day = ? where id = 1", [noon])
    assert own.sql("select day from orders where id = 1").fetchall() == [(dt.date(2026, 5, 6),)]
