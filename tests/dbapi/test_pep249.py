"""A store is a database of PEP 249: each point of it, in its order."""

# ruff: noqa: DTZ001 - times without a zone are values, too

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

import siltstone as st
from siltstone import dbapi

NAMES = ("InterfaceError", "DatabaseError")
OF_DATABASE = (
    *("DataError", "OperationalError", "IntegrityError", "InternalError"),
    *("ProgrammingError", "NotSupportedError"),
)


# the module


def test_the_module_says_what_it_is() -> None:
    assert (dbapi.apilevel, dbapi.threadsafety, dbapi.paramstyle) == ("2.0", 1, "qmark")


def test_its_errors_are_one_tree() -> None:
    assert issubclass(dbapi.Warning, Exception)
    assert not issubclass(dbapi.Warning, dbapi.Error)
    assert dbapi.Error.__mro__[1] is Exception
    assert all(getattr(dbapi, name).__base__ is dbapi.Error for name in NAMES)
    assert all(getattr(dbapi, name).__base__ is dbapi.DatabaseError for name in OF_DATABASE)


def test_a_connection_has_the_errors(con: dbapi.Connection) -> None:
    for name in ("Warning", "Error", *NAMES, *OF_DATABASE):
        assert getattr(con, name) is getattr(dbapi, name)


def test_all_public_names_are_there() -> None:
    assert [name for name in dbapi.__all__ if not hasattr(dbapi, name)] == []


# connections


def test_a_path_is_created_opened_and_closed_with_its_connection(tmp_path: Path) -> None:
    con = dbapi.connect(tmp_path / "s", background=False)
    con.cursor().execute("create table t (id bigint primary key)")
    con.commit()
    con.close()
    with st.connect(tmp_path / "s", read_only=True) as db:
        assert db.tables() == ["t"]


def test_an_open_store_stays_open(db: st.Store) -> None:
    dbapi.connect(db).close()
    assert db["t"].count() == 1


def test_an_open_store_takes_no_options(db: st.Store) -> None:
    with pytest.raises(dbapi.ProgrammingError, match=r"has its options already; got \['join'\]"):
        dbapi.connect(db, join=True)


def test_a_connection_is_closed_for_all_calls_and_closed_again_without_error(db: st.Store) -> None:
    con = dbapi.connect(db)
    cur = con.cursor()
    con.close()
    con.close()
    calls = (con.cursor, con.commit, con.rollback, cur.fetchone, lambda: cur.execute("select 1"))
    for call in calls:
        with pytest.raises(dbapi.ProgrammingError, match="the connection is closed"):
            call()
    cur.close()


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"autocommit": None}, "autocommit must be True, False or LEGACY"),
        ({"autocommit": 2}, "autocommit must be True, False or LEGACY"),
        ({"isolation": "serialisable"}, "did you mean 'serializable'"),
        ({"no_such_option": 1}, "no_such_option"),
    ],
)
def test_a_wrong_argument_is_refused(tmp_path: Path, wrong: dict[str, object], why: str) -> None:
    with pytest.raises(dbapi.ProgrammingError, match=why):
        dbapi.connect(tmp_path / "s", **wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "s").exists()


# cursors


def test_a_cursor_describes_the_columns_of_its_rows(cur: dbapi.Cursor) -> None:
    assert (cur.description, cur.rowcount, cur.arraysize, cur.lastrowid) == (None, -1, 1, None)
    cur.execute("select id, n::decimal(10, 2) as d, 'x' as s from t")
    assert cur.description == [
        ("id", "int64", None, None, None, None, None),
        ("d", "decimal128(10, 2)", None, None, 10, 2, None),
        ("s", "string", None, None, None, None, None),
    ]
    assert cur.rowcount == -1
    cur.execute("delete from t")
    assert (cur.description, cur.rowcount) == (None, 1)
    cur.execute("create table u (id bigint)")
    assert cur.description is None
    cur.execute("insert into u values (1), (2) returning id")
    assert (cur.description, cur.rowcount) == ([("id", "int64", *[None] * 5)], 2)
    assert cur.fetchall() == [(1,), (2,)]


def test_rows_are_fetched_one_some_and_all(cur: dbapi.Cursor) -> None:
    assert cur.execute("select range from range(7)") is cur
    assert cur.fetchone() == (0,)
    assert cur.fetchmany() == [(1,)]
    cur.arraysize = 2
    assert cur.fetchmany() == [(2,), (3,)]
    assert cur.fetchmany(0) == []
    assert next(cur) == (4,)
    assert cur.fetchall() == [(5,), (6,)]
    assert (cur.fetchone(), cur.fetchmany(3), cur.fetchall(), list(cur)) == (None, [], [], [])


@pytest.mark.parametrize("size", [-1, 1.5, "2"])
def test_a_wrong_size_is_refused(cur: dbapi.Cursor, size: object) -> None:
    cur.execute("select 1")
    with pytest.raises(dbapi.ProgrammingError, match="size"):
        cur.fetchmany(size)  # type: ignore[arg-type]
    assert cur.fetchall() == [(1,)]


def test_a_cursor_without_rows_says_so(con: dbapi.Connection) -> None:
    cur = con.cursor()
    for call in (cur.fetchone, cur.fetchmany, cur.fetchall, lambda: list(cur)):
        with pytest.raises(dbapi.ProgrammingError, match="there are no rows"):
            call()
    cur.execute("delete from t")
    with pytest.raises(dbapi.ProgrammingError, match="there are no rows"):
        cur.fetchone()


def test_a_statement_that_fails_leaves_no_rows_of_the_one_before(cur: dbapi.Cursor) -> None:
    cur.execute("select 1")
    with pytest.raises(dbapi.ProgrammingError):
        cur.execute("selec 1")
    assert (cur.description, cur.rowcount) == (None, -1)
    with pytest.raises(dbapi.ProgrammingError, match="there are no rows"):
        cur.fetchone()


def test_a_closed_cursor_is_closed_for_all_calls(con: dbapi.Connection) -> None:
    with con.cursor() as cur:
        cur.execute("select 1")
    cur.close()
    many = [(1,)]
    calls = (
        *(cur.fetchone, cur.fetchall, lambda: cur.execute("select 1")),
        lambda: cur.executemany("delete from t where id = ?", many),
    )
    for call in calls:
        with pytest.raises(dbapi.ProgrammingError, match="the cursor is closed"):
            call()
    assert con.cursor().execute("select 1").fetchall() == [(1,)]


def test_sizes_are_taken_and_change_nothing(cur: dbapi.Cursor) -> None:
    cur.setinputsizes([10])
    cur.setoutputsize(1, 0)
    assert cur.execute("select 'abc'").fetchone() == ("abc",)
    assert cur.connection.cursor().connection is cur.connection


def test_parameters_are_marks_numbers_or_names(cur: dbapi.Cursor) -> None:
    assert cur.execute("select ?, ?", (1, "a")).fetchone() == (1, "a")
    assert cur.execute("select $2, $1", ["a", 1]).fetchone() == (1, "a")
    assert cur.execute("select $a", {"a": None}).fetchone() == (None,)
    assert cur.execute("select 1", ()).fetchone() == (1,)
    assert cur.execute("insert into t values ($k, $k)", {"k": 5}).rowcount == 1


@pytest.mark.parametrize("wrong", ["a", b"a", 1, {1}, iter([1])])
def test_other_parameters_are_refused(cur: dbapi.Cursor, wrong: object) -> None:
    with pytest.raises(dbapi.ProgrammingError, match="parameters are a sequence or a mapping"):
        cur.execute("select ?", wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [None, b"select 1", 1])
def test_a_statement_is_a_text(cur: dbapi.Cursor, wrong: object) -> None:
    for call in (cur.execute, lambda text: cur.executemany(text, [])):
        with pytest.raises(dbapi.ProgrammingError, match="a statement must be a string"):
            call(wrong)


def test_variables_of_the_caller_are_no_tables(cur: dbapi.Cursor) -> None:
    frame = pa_table()
    with pytest.raises(dbapi.ProgrammingError, match="there is no table 'frame'"):
        cur.execute("select * from frame")
    assert frame.num_rows == 1


def pa_table():
    import pyarrow as pa

    return pa.table({"a": [1]})


# types


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("'a'", dbapi.STRING),
        ("uuid()", dbapi.STRING),
        ("'a'::blob", dbapi.BINARY),
        ("1", dbapi.NUMBER),
        ("1::utinyint", dbapi.NUMBER),
        ("1e0", dbapi.NUMBER),
        ("1.5", dbapi.NUMBER),
        ("true", dbapi.NUMBER),
        ("sum(1)", dbapi.NUMBER),
        ("date '2026-01-01'", dbapi.DATETIME),
        ("time '10:00'", dbapi.DATETIME),
        ("timestamp '2026-01-01'", dbapi.DATETIME),
        ("timestamptz '2026-01-01 00:00:00+00'", dbapi.DATETIME),
        ("interval 1 day", dbapi.DATETIME),
    ],
)
def test_a_type_code_is_equal_to_one_type_object(
    cur: dbapi.Cursor, expression: str, kind: object
) -> None:
    description = cur.execute(f"select {expression}").description
    assert description is not None
    kinds = (dbapi.STRING, dbapi.BINARY, dbapi.NUMBER, dbapi.DATETIME, dbapi.ROWID)
    assert [each for each in kinds if description[0][1] == each] == [kind]


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("[1]", "list<"),
        ("{'a': 1}", "row"),
        ("map {'a': 1}", "map<"),
        ("sum(1)", "hugeint"),
        ("1::float", "float32"),
    ],
)
def test_a_type_code_is_the_name_of_the_type(cur: dbapi.Cursor, expression: str, code: str) -> None:
    description = cur.execute(f"select {expression}").description
    assert description is not None
    assert description[0][1].startswith(code)


def test_the_constructors_make_values_of_python() -> None:
    assert dbapi.Date(2026, 1, 2) == dt.date(2026, 1, 2)
    assert dbapi.Time(1, 2, 3) == dt.time(1, 2, 3)
    assert dbapi.Timestamp(2026, 1, 2, 3, 4, 5) == dt.datetime(2026, 1, 2, 3, 4, 5)
    assert dbapi.Binary(b"ab") == b"ab"
    now = dt.datetime(2026, 1, 2, 3, 4, 5)
    ticks = now.timestamp()
    assert dbapi.DateFromTicks(ticks) == now.date()
    assert dbapi.TimeFromTicks(ticks) == now.time()
    assert dbapi.TimestampFromTicks(ticks) == now
