"""Categoricals, enums and dictionaries are rows like others: every door takes them as their values.

A column has the type of the values. A schema that asks for a dictionary is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import siltstone as st
from siltstone.cli import main
from tests.server.rest import Rest, rest_of
from tests.server.stores import DOORS, behind, opened

VALUES = ["b", None, "a", "b"]
EXPECTED = [{"id": place, "kind": value} for place, value in enumerate(VALUES)]


def arrow(indexes: pa.DataType | None = None) -> pa.Table:
    kinds = pa.DictionaryArray.from_arrays(
        pa.array([1, None, 0, 1], indexes or pa.int8()), pa.array(["a", "b", "never"])
    )
    return pa.table({"id": range(4), "kind": kinds})


def pandas() -> pd.DataFrame:
    return pd.DataFrame({"id": range(4), "kind": pd.Categorical(VALUES, ["a", "b", "never"])})


FORMS: dict[str, Callable[[], Any]] = {
    "Arrow with small indexes": arrow,
    "Arrow with large indexes": lambda: arrow(pa.uint64()),
    "a categorical of pandas": pandas,
    "a categorical of Polars": lambda: pl.DataFrame(
        {"id": range(4), "kind": pl.Series(VALUES, dtype=pl.Categorical)}
    ),
    "an enum of Polars": lambda: pl.DataFrame(
        {"id": range(4), "kind": pl.Series(VALUES, dtype=pl.Enum(["a", "b", "never"]))}
    ),
    "batches with dictionaries of their own": lambda: pa.concat_tables(
        [
            pa.table({"id": [n], "kind": pa.array([value], pa.string()).dictionary_encode()})
            for n, value in enumerate(VALUES)
        ]
    ).to_reader(),
}


@pytest.fixture(scope="module", params=DOORS)
def db(request: pytest.FixtureRequest, tmp_path_factory) -> Iterator[st.Store]:
    with behind(request.param, tmp_path_factory.mktemp("door") / "shop") as found:
        yield found


@pytest.fixture
def name(db: st.Store) -> Iterator[str]:
    yield "t"
    for table in db.tables():
        db.drop_table(table)


def kept(db: st.Store, name: str = "t") -> list[dict[str, object]]:
    found = db[name].to_arrow().sort_by("id")
    assert found.schema.field("kind").type in {pa.string(), pa.large_string()}
    return found.to_pylist()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("key", ["id", ()])
def test_a_table_made_of_them_has_the_type_of_their_values(
    db: st.Store, name: str, form: str, key: Any
) -> None:
    db.create_table(name, data=FORMS[form](), primary_key=key)
    assert kept(db) == EXPECTED


@pytest.mark.parametrize("form", FORMS)
def test_they_are_written_into_a_column_of_their_values(db: st.Store, name: str, form: str) -> None:
    schema = {"id": "int64", "kind": "string"}
    db.create_table(name, schema, primary_key="id")
    db["t"].insert(FORMS[form]())
    db["t"].upsert(FORMS[form]())
    assert kept(db) == EXPECTED
    db.create_table("plain", schema).append(FORMS[form]())
    assert kept(db, "plain") == EXPECTED
    with db.transaction() as tx:
        tx["t"].delete([0])
        tx["t"].upsert(FORMS[form]())
        tx["plain"].overwrite(FORMS[form]())
    assert kept(db) == kept(db, "plain") == EXPECTED


def test_values_of_any_type_are_taken_also_inside_lists_and_structs(
    db: st.Store, name: str
) -> None:
    words, numbers = arrow()["kind"], pa.array([7, None, 8, 7]).dictionary_encode()
    inner = words.combine_chunks()
    rows = pa.table(
        {
            "id": range(4),
            "number": numbers,
            "list": pa.ListArray.from_arrays([0, 2, 2, 3, 4], inner),
            "struct": pa.StructArray.from_arrays([inner], ["kind"]),
        }
    )
    expected = rows.to_pylist()
    db.create_table(name, data=rows, primary_key="id")
    assert db["t"].schema.field("number").type == pa.int64()
    assert db["t"].to_arrow().sort_by("id").to_pylist() == expected
    schema = pa.schema(
        [("id", pa.int64()), ("number", pa.int32()), ("list", pa.large_list(pa.large_string()))]
    )
    db.create_table("other", schema).append(rows.drop_columns(["struct"]))
    assert db["other"].to_arrow().drop_columns(["number"]).to_pylist() == [
        {"id": row["id"], "list": row["list"]} for row in expected
    ]


def test_a_key_may_be_given_as_a_dictionary(db: st.Store, name: str) -> None:
    keys = pa.table({"kind": pa.array(["a", "b"]).dictionary_encode(), "n": [1, 2]})
    db.create_table(name, data=keys, primary_key="kind")
    assert db["t"].get("b") == {"kind": "b", "n": 2}
    assert db["t"].get_many(keys.select(["kind"])).num_rows == 2
    db["t"].delete(keys.select(["kind"]).slice(1))
    assert db["t"].to_arrow()["kind"].to_pylist() == ["a"]


def test_a_value_that_the_column_cannot_hold_is_refused(db: st.Store, name: str) -> None:
    db.create_table(name, {"id": "int64", "kind": "int64"}, primary_key="id")
    with pytest.raises(st.SchemaMismatchError, match="column 'kind' is int64, not dictionary"):
        db["t"].upsert(arrow())
    assert db["t"].count() == 0


ASKED = pa.schema([("id", pa.int64()), ("kind", pa.dictionary(pa.int32(), pa.string()))])
WHY = r"column 'kind' cannot have type dictionary.*: .*use the type of its values"


def test_a_schema_that_asks_for_a_dictionary_is_refused_by_name(db: st.Store, name: str) -> None:
    for key in ("id", ()):
        with pytest.raises(st.RequestError, match=WHY):
            db.create_table(name, ASKED, primary_key=key)
    nested = pa.schema([("kind", pa.list_(pa.dictionary(pa.int32(), pa.string())))])
    with pytest.raises(st.RequestError, match=r"'kind' cannot have type list.*: dictionary"):
        db.create_table(name, nested)
    table = db.create_table(name, {"id": "int64"})
    with pytest.raises(st.RequestError, match=WHY):
        table.add_column("kind", pa.dictionary(pa.int32(), pa.string()))
    assert table.schema.names == ["id"]


def test_sql_gives_enums_as_their_values(db: st.Store) -> None:
    found = pa.table(db.sql("SELECT 'a'::ENUM('a', 'b') AS one, ['b'::ENUM('b')] AS many"))
    assert found.schema.types == [pa.string(), pa.list_(pa.string())]
    assert found.to_pylist() == [{"one": "a", "many": ["b"]}]


def test_sql_reads_frames_with_categoricals(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        for form in FORMS.values():
            frame = form()
            found = store.sql("SELECT id, kind FROM frame ORDER BY id")
            assert pa.table(found).to_pylist() == EXPECTED
            frame = form()  # noqa: F841 - the statement reads it
            made = store.create_table("t", data=store.sql("FROM frame ORDER BY id"))
            assert kept(store) == EXPECTED
            store.drop_table(made.name)


def test_sql_refuses_a_frame_with_a_wide_decimal_by_name(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        frame = pa.table({"sum": pa.array([1], pa.decimal256(50, 0))})
        with pytest.raises(st.RequestError, match=r"column 'sum' has type decimal256"):
            store.sql("FROM frame")
        assert frame.num_rows == 1


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[st.Store, Rest]]:
    with rest_of(tmp_path_factory.mktemp("rest") / "shop") as (store, _, client):
        yield store, client


@pytest.mark.parametrize("key", ["", "?primary_key=id"])
def test_rest_takes_them_as_rows(rest: tuple[st.Store, Rest], key: str) -> None:
    store, client = rest
    assert client.post(f"/v1/table/t/create{key}", arrow()).status == 200
    assert kept(store) == EXPECTED
    more = arrow().set_column(0, "id", pa.array([4, 5, 6, 7]))
    assert client.post("/v1/table/t/insert", more).status == 200
    merge = "on=id&when_matched_update_all=true&when_not_matched_insert_all=true"
    assert client.post(f"/v1/table/t/merge_insert?{merge}", arrow()).status == 200
    again = [{"id": row["id"] + 4, "kind": row["kind"]} for row in EXPECTED]
    assert kept(store) == EXPECTED + again
    store.drop_table("t")


def test_rest_refuses_a_dictionary_in_a_schema_alone(rest: tuple[st.Store, Rest]) -> None:
    store, client = rest
    answer = client.post("/v1/table/t/create", ASKED.empty_table())
    assert answer.status == 400
    assert "column 'kind' cannot have type dictionary" in answer.json["error"]
    assert store.tables() == []


@pytest.mark.parametrize("ending", ["parquet", "arrow", "feather"])
def test_the_command_line_reads_files_that_have_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    path, file = tmp_path / "shop", tmp_path / f"rows.{ending}"
    if ending == "parquet":
        pq.write_table(arrow(), file)
    else:
        pyarrow.feather.write_feather(pandas(), str(file))
    where = ["--db", str(path)]
    for command in (
        ["init", *where],
        ["create", "t", "--from", str(file), "--pk", "id", *where],
        ["create", "empty", "--schema", str(file), "--pk", "id", *where],
        ["upsert", "empty", str(file), *where],
    ):
        assert main(command) == 0, capsys.readouterr().err
    with opened(path) as store:
        assert kept(store) == kept(store, "empty") == EXPECTED
