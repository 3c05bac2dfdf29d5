"""An upsert takes no value away in silence: rows that lack columns say what becomes of them.

refuse   the default: nothing is written, whether the key, or any row, exists or not
keep     rows that exist keep what the given ones do not name; new rows have null there
null     what a row does not name is null
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.errors import SchemaMismatchError

COLUMNS = {"id": "int64", "n": "int64", "s": "string"}
Rows = list[dict[str, Any]]
Upsert = Callable[..., int]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False) as made:
        made.create_table("t", COLUMNS, primary_key="id")
        made["t"].insert([{"id": 1, "n": 10, "s": "a"}, {"id": 2, "n": 20, "s": "b"}])
        yield made


@pytest.fixture(params=["table", "transaction", "serializable", "merged"])
def upsert(request: pytest.FixtureRequest, db: st.Store) -> Upsert:
    """Return what upserts into `t`, as a commit of its own or as a part of a transaction."""
    if request.param == "merged":
        db.merge()

    def alone(rows: object, **how: Any) -> int:
        return db["t"].upsert(rows, **how).rows

    def within(rows: object, **how: Any) -> int:
        isolation = "serializable" if request.param == "serializable" else "snapshot"
        with db.transaction(isolation=isolation) as tx:
            return tx["t"].upsert(rows, **how)

    return alone if request.param in {"table", "merged"} else within


def rows_of(db: st.Store, table: str = "t") -> Rows:
    return sorted(db[table].to_arrow().to_pylist(), key=lambda row: row["id"])


OLD = [{"id": 1, "n": 10, "s": "a"}, {"id": 2, "n": 20, "s": "b"}]
FORMS: dict[str, Callable[[Rows], object]] = {
    "dicts": lambda rows: rows,
    "generator": lambda rows: (row for row in rows),
    "table": pa.Table.from_pylist,
    "stream": lambda rows: pa.Table.from_pylist(rows).to_reader(),
    "polars": pl.DataFrame,
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_lack_a_column_are_refused_and_nothing_is_written(
    db: st.Store, upsert: Upsert, form: str
) -> None:
    for key in (1, 7):  # the key exists, and it does not
        with pytest.raises(SchemaMismatchError, match=r"'s'.*\"keep\".*\"null\".*insert"):
            upsert(FORMS[form]([{"id": key, "n": 5}]))
        assert rows_of(db) == OLD


def test_one_row_that_lacks_a_column_is_refused(db: st.Store, upsert: Upsert) -> None:
    for given in ({"id": 1, "n": 5}, {"id": 1}, [{"id": 1, "n": 5, "s": "x"}, {"id": 2, "s": "y"}]):
        with pytest.raises(SchemaMismatchError, match='"keep"'):
            upsert(given)
    assert rows_of(db) == OLD


def test_an_empty_table_refuses_them_too(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s") as db:
        table = db.create_table("t", COLUMNS, primary_key="id")
        for given in ({"id": 1}, pa.table({"id": [1]}), pa.table({"id": pa.array([], "int64")})):
            with pytest.raises(SchemaMismatchError, match=r"'n', 's'"):
                table.upsert(given)
        assert table.upsert([]).rows == 0
        assert table.count() == 0


def test_of_very_many_columns_that_are_missing_a_few_are_named(tmp_path: Path) -> None:
    columns = {"id": "int64"} | {f"c{n}": "int64" for n in range(3000)}
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", columns, primary_key="id")
        with pytest.raises(SchemaMismatchError, match=r"'c0', .* more, and an upsert") as refused:
            table.upsert({"id": 1})
    assert len(str(refused.value)) < 1_000


def test_many_rows_in_files_of_their_own_are_refused_too(tmp_path: Path) -> None:
    """A load of this size is staged, and never was a row of Python."""
    with st.connect(tmp_path / "s") as db:
        table = db.create_table("t", COLUMNS, primary_key="id")
        numbers = pa.array(range(3_000_000))
        with pytest.raises(SchemaMismatchError, match="'s'"):
            table.upsert(pa.table({"id": numbers, "n": numbers}))
        assert table.upsert(pa.table({"id": numbers, "n": numbers}), "null").rows == 3_000_000
        assert table.get(5) == {"id": 5, "n": 5, "s": None}


@pytest.mark.parametrize("form", FORMS)
def test_keep_leaves_what_rows_do_not_name(db: st.Store, upsert: Upsert, form: str) -> None:
    assert upsert(FORMS[form]([{"id": 7, "n": 5}, {"id": 1, "n": 11}]), missing="keep") == 2
    assert rows_of(db) == [{"id": 1, "n": 11, "s": "a"}, OLD[1], {"id": 7, "n": 5, "s": None}]


def test_keep_goes_by_the_row(db: st.Store, upsert: Upsert) -> None:
    given = [{"id": 1, "n": 11}, {"id": 2, "s": "bb"}, {"id": 3}, {"id": 4, "s": "d"}]
    assert upsert(given, missing="keep") == 4
    assert rows_of(db) == [
        {"id": 1, "n": 11, "s": "a"},
        {"id": 2, "n": 20, "s": "bb"},
        {"id": 3, "n": None, "s": None},
        {"id": 4, "n": None, "s": "d"},
    ]


def test_keep_takes_rows_with_equal_keys_one_after_the_other(db: st.Store, upsert: Upsert) -> None:
    given = [{"id": 1, "n": 11}, {"id": 1, "s": "x"}, {"id": 3, "n": 1}, {"id": 3, "n": 2}]
    assert upsert(given, missing="keep") == 2
    assert rows_of(db)[::2] == [{"id": 1, "n": 11, "s": "x"}, {"id": 3, "n": 2, "s": None}]


@pytest.mark.parametrize("missing", ["refuse", "keep", "null"])
def test_a_null_that_is_given_is_a_value(db: st.Store, upsert: Upsert, missing: str) -> None:
    given = [{"id": 1, "n": None, "s": "z"}, {"id": 2, "n": 20, "s": None}]
    for rows in (given, pa.Table.from_pylist(given), given[0], given[1]):
        upsert(rows, missing=missing)
        assert set(map(str, rows_of(db))) >= set(map(str, [rows] if rows in given else given))


@pytest.mark.parametrize("form", FORMS)
def test_null_makes_what_rows_do_not_name_null(db: st.Store, upsert: Upsert, form: str) -> None:
    assert upsert(FORMS[form]([{"id": 1, "n": 11}, {"id": 3, "n": 1}]), missing="null") == 2
    assert rows_of(db) == [
        {"id": 1, "n": 11, "s": None}, OLD[1], {"id": 3, "n": 1, "s": None}
    ]  # fmt: skip


def test_null_goes_by_the_row(db: st.Store, upsert: Upsert) -> None:
    upsert([{"id": 1, "n": 11}, {"id": 2, "s": "bb"}], missing="null")
    assert rows_of(db) == [{"id": 1, "n": 11, "s": None}, {"id": 2, "n": None, "s": "bb"}]
    upsert({"id": 1, "s": "a"}, missing="null")
    assert db["t"].get(1) == {"id": 1, "n": None, "s": "a"}


def test_insert_and_create_take_rows_that_lack_columns(db: st.Store) -> None:
    db["t"].insert([{"id": 3}, {"id": 4, "s": "d"}])
    with db.transaction() as tx:
        tx["t"].insert({"id": 5, "n": 1})
    assert [row["n"] for row in rows_of(db)] == [10, 20, None, None, 1]


@pytest.mark.parametrize("missing", ["", "keeps", "KEEP", None, 1, [], {}])
def test_another_word_is_refused(db: st.Store, upsert: Upsert, missing: Any) -> None:
    with pytest.raises(st.RequestError, match="missing must be one of refuse, keep, null; got"):
        upsert({"id": 1, "n": 1, "s": "x"}, missing=missing)
    assert rows_of(db) == OLD


@pytest.mark.parametrize("missing", ["refuse", "keep", "null"])
@pytest.mark.parametrize("form", FORMS)
def test_a_wrong_column_is_named_before_a_missing_one(
    db: st.Store, upsert: Upsert, missing: str, form: str
) -> None:
    with pytest.raises(SchemaMismatchError, match=r"no column.*'nn'"):
        upsert(FORMS[form]([{"id": 1, "nn": 1}]), missing=missing)
    with pytest.raises(SchemaMismatchError, match="column 'id' may not be null or missing"):
        upsert(FORMS[form]([{"n": 1}]), missing=missing)
    with pytest.raises(SchemaMismatchError, match="column 'n' is int64"):
        upsert(FORMS[form]([{"id": 1, "n": "x", "s": "x"}]), missing=missing)
    assert rows_of(db) == OLD


@pytest.fixture
def strict(db: st.Store) -> st.Table:
    schema = pa.schema(
        [pa.field("id", pa.int64(), False), pa.field("n", pa.int64(), False), ("s", pa.string())]
    )
    made = db.create_table("strict", schema, primary_key="id")
    made.insert({"id": 1, "n": 10, "s": "a"})
    return made


@pytest.mark.parametrize("form", FORMS)
def test_a_column_that_takes_no_null_is_kept_and_never_left_out(
    strict: st.Table, form: str
) -> None:
    as_given = FORMS[form]
    strict.upsert(as_given([{"id": 1, "s": "b"}]), missing="keep")
    assert strict.get(1) == {"id": 1, "n": 10, "s": "b"}
    for given, missing in (([{"id": 2, "s": "b"}], "keep"), ([{"id": 1, "s": "c"}], "null")):
        with pytest.raises(SchemaMismatchError, match="column 'n' may not be null or missing"):
            strict.upsert(as_given(given), missing=missing)
    with pytest.raises(SchemaMismatchError, match=r"'n'.*keep"):
        strict.upsert(as_given([{"id": 1, "s": "c"}]))
    assert strict.to_arrow().to_pylist() == [{"id": 1, "n": 10, "s": "b"}]


def test_a_refused_upsert_leaves_its_transaction_as_it_was(db: st.Store, strict: st.Table) -> None:
    with db.transaction() as tx:
        for rows in ([{"id": 1, "n": 1}, {"id": 5, "s": ""}], [{"id": 2, "n": 1}, {"id": 1}]):
            with pytest.raises(SchemaMismatchError):
                tx["t"].upsert(rows)
        with pytest.raises(SchemaMismatchError):
            tx["strict"].upsert([{"id": 1, "s": "z"}, {"id": 2, "s": "z"}], missing="keep")
        assert tx["t"].count() == 2
        assert tx["strict"].get(1) == {"id": 1, "n": 10, "s": "a"}
    assert rows_of(db) == OLD


def test_keep_sees_the_rows_of_its_own_transaction(db: st.Store) -> None:
    with db.transaction() as tx:
        tx["t"].upsert({"id": 3, "n": 1, "s": "c"})
        tx["t"].upsert({"id": 3, "n": 2}, missing="keep")
        tx["t"].upsert([{"id": 3, "s": "cc"}, {"id": 4, "n": 4}], missing="keep")
        tx["t"].delete([1])
        tx["t"].upsert([{"id": 1, "n": 1}], missing="keep")
    assert rows_of(db) == [
        {"id": 1, "n": 1, "s": None}, OLD[1], {"id": 3, "n": 2, "s": "cc"},
        {"id": 4, "n": 4, "s": None},
    ]  # fmt: skip


def test_keep_conflicts_as_an_update_does(db: st.Store) -> None:
    lost = db.transaction()
    lost["t"].upsert({"id": 1, "n": 11}, missing="keep")
    db["t"].update(1, s="theirs")
    with pytest.raises(st.ConflictError):
        lost.commit()
    db["t"].update(1, s="a")
    with db.transaction() as tx:
        tx["t"].upsert({"id": 1, "n": 11}, missing="keep")
        db["t"].update(2, s="theirs")  # another row
    assert rows_of(db) == [{"id": 1, "n": 11, "s": "a"}, {"id": 2, "n": 20, "s": "theirs"}]


def test_writers_that_keep_each_others_columns_lose_none(db: st.Store) -> None:
    table = db["t"]

    def write(name: str, values: list[object]) -> None:
        for value in values:
            table.upsert([{"id": 1, name: value}, {"id": 9, name: value}], missing="keep")

    threads = [
        threading.Thread(target=write, args=("n", list(range(100)))),
        threading.Thread(target=write, args=("s", list(map(str, range(100))))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [table.get(key) for key in (1, 9)] == [{"id": k, "n": 99, "s": "99"} for k in (1, 9)]


def test_after_add_column_old_writers_are_refused_and_those_that_keep_go_on(db: st.Store) -> None:
    table = db["t"]
    table.upsert({"id": 1, "n": 1, "s": "a"})  # its columns are known from here on
    table.add_column("more", "string")
    table.update(1, more="kept")
    for rows in ({"id": 1, "n": 2, "s": "a"}, [{"id": 1, "n": 2, "s": "a"}]):
        with pytest.raises(SchemaMismatchError, match="'more'"):
            table.upsert(rows)
    table.upsert({"id": 1, "n": 2, "s": "a"}, missing="keep")
    assert table.get(1) == {"id": 1, "n": 2, "s": "a", "more": "kept"}


NESTED = {
    "id": "int64", "v": pa.list_(pa.float32(), 2), "d": pa.struct([("a", pa.int64())]),
    "w": pa.decimal128(30, 2), "t": pa.time64("ns"), "u": pa.uuid(), "m": "large_string",
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in NESTED if name != "id"])
def test_values_of_every_form_are_kept_and_given(db: st.Store, name: str) -> None:
    import datetime as dt
    from decimal import Decimal
    from uuid import UUID

    one = {
        "id": 1, "v": [1.0, 2.0], "d": {"a": 1}, "w": Decimal("1.25"), "t": dt.time(1, 2, 3),
        "u": UUID(int=7), "m": "m",
    }  # fmt: skip
    table = db.create_table("nested", pa.schema([*pa_fields(NESTED)]), primary_key="id")
    table.insert([one, {**one, "id": 2}])
    other = {
        "v": [3.0, 4.0], "d": {"a": None}, "w": Decimal("-2.00"), "t": dt.time(4), "m": "",
        "u": UUID(int=8),
    }  # fmt: skip
    given = {"id": 1, name: other[name]}
    table.upsert(given, missing="keep")
    table.upsert([{"id": 2}, {"id": 3, name: other[name]}], missing="keep")
    empty = dict.fromkeys(NESTED)
    assert rows_of(db, "nested") == [
        {**one, **given}, {**one, "id": 2}, {**empty, "id": 3, name: other[name]}
    ]  # fmt: skip


def pa_fields(kinds: dict[str, Any]) -> Iterator[pa.Field]:
    for name, kind in kinds.items():
        yield pa.field(name, getattr(pa, kind)() if isinstance(kind, str) else kind)


def test_keep_of_many_rows_of_arrow(db: st.Store) -> None:
    table, count = db["t"], 5_000
    table.upsert(pa.table({"id": range(count), "n": range(count), "s": ["s"] * count}))
    db.merge()
    table.upsert(pa.table({"id": range(1_000, count + 10), "n": [-1] * (count - 990)}), "keep")
    found = db["t"].to_arrow().to_pandas()
    assert len(found) == count + 10
    assert (found.n == -1).sum() == count - 990
    assert found.s.isna().sum() == 10


def test_a_plain_table_takes_no_upsert_whatever_is_missing(db: st.Store) -> None:
    plain = db.create_table("plain", COLUMNS)
    for missing in ("refuse", "keep", "null"):
        with pytest.raises(st.RequestError, match="is a plain table"):
            plain.upsert({"id": 1}, missing=missing)  # type: ignore[arg-type]
