"""The versions of a plain table begin with 1, which has the rows that the table began with."""

# pyright: reportArgumentType=false

from __future__ import annotations

from collections.abc import Iterator

import lance
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.namespace import SiltstoneNamespace
from siltstone.server.rest.server import RestServer
from tests.server.rest import Rest, rest_of

Served = tuple[st.Store, RestServer, Rest]
ROWS = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with rest_of(tmp_path_factory.mktemp("versions") / "shop") as found:
        yield found


def listed(rest: Rest, name: str) -> list[int]:
    return [v["version"] for v in rest.post(f"/v1/table/{name}/version/list").json["versions"]]


def counted(rest: Rest, name: str, version: int) -> int:
    return int(rest.post(f"/v1/table/{name}/count_rows", {"version": version}).json)


def test_a_table_created_with_rows_has_them_in_version_1(served: Served) -> None:
    _, _, rest = served
    assert rest.post("/v1/table/filled/create", ROWS).json["version"] == 1
    assert listed(rest, "filled") == [1]
    assert rest.post("/v1/table/filled/describe", {"version": 1}).json["version"] == 1
    assert counted(rest, "filled", 1) == 3
    assert rest.post("/v1/table/filled/insert?mode=append", ROWS).json["version"] == 2
    assert (counted(rest, "filled", 1), counted(rest, "filled", 2)) == (3, 6)


def test_a_list_of_versions_takes_the_null_that_lance_sends(served: Served) -> None:
    _, _, rest = served
    assert rest.post("/v1/table/nulled/create", ROWS).status == 200
    found = rest.post("/v1/table/nulled/version/list?descending=true", "null").json["versions"]
    assert [version["version"] for version in found] == [1]
    assert rest.post("/v1/table/nulled/version/describe", "null").code == (400, 13)


def test_a_table_created_without_rows_has_an_empty_version_1(served: Served) -> None:
    _, _, rest = served
    assert rest.post("/v1/table/empty/create", ROWS.slice(0, 0)).json["version"] == 1
    assert listed(rest, "empty") == [1]
    assert counted(rest, "empty", 1) == 0
    assert rest.post("/v1/table/empty/insert?mode=append", ROWS).json["version"] == 2
    assert (counted(rest, "empty", 1), counted(rest, "empty", 2)) == (0, 3)


def test_a_tag_of_version_1_is_listed_and_read(served: Served) -> None:
    _, _, rest = served
    assert rest.post("/v1/table/tagged/create", ROWS).status == 200
    assert rest.post("/v1/table/tagged/insert?mode=append", ROWS).status == 200
    assert rest.post("/v1/table/tagged/tags/create", {"tag": "x", "version": 1}).status == 200
    assert rest.post("/v1/table/tagged/tags/list", {}).json["tags"]["x"]["version"] == 1
    assert rest.post("/v1/table/tagged/tags/version", {"tag": "x"}).json == {"version": 1}


def test_a_step_within_a_commit_is_refused_and_not_read_as_the_version_before(
    served: Served,
) -> None:
    db, _, rest = served
    table = db.create_table("steps", ROWS.schema)
    table.append(ROWS)
    with db.transaction() as tx:
        tx["steps"].append(ROWS)
        tx["steps"].append(ROWS)
    assert listed(rest, "steps") == [1, 2, 3]
    assert (counted(rest, "steps", 1), counted(rest, "steps", 3)) == (3, 9)
    refused = rest.post("/v1/table/steps/count_rows", {"version": 2})
    assert refused.code == (404, 11)
    assert "a step within a commit" in refused.json["error"]


@pytest.mark.parametrize("how", ["append", "overwrite", "attach"])
def test_the_first_rows_from_python_are_version_1(served: Served, how: str) -> None:
    db, _, rest = served
    name = f"by-{how}"
    table = db.create_table(name, ROWS.schema)
    if how == "attach":
        stage = db.stage(name)
        pieces = [stage.run(ROWS.slice(0, 2)), stage.run(ROWS.slice(2))]
        with db.transaction() as tx:
            tx.attach(stage, pieces)
    else:
        getattr(table, how)(ROWS)
    assert listed(rest, name) == [1]
    assert counted(rest, name, 1) == 3
    first = lance.dataset(namespace_client=SiltstoneNamespace(db), table_id=[name], version=1)
    assert sorted(first.to_table()["id"].to_pylist()) == [1, 2, 3]
    lance.write_dataset(
        ROWS, namespace_client=SiltstoneNamespace(db), table_id=[name], mode="append"
    )
    assert listed(rest, name) == [1, 2]
    assert db[name].count() == 6


def test_two_who_append_first_make_versions_1_and_2(served: Served) -> None:
    db, _, rest = served
    db.create_table("raced", ROWS.schema)
    with db.transaction() as first, db.transaction() as second:
        first["raced"].append(ROWS)
        second["raced"].append(ROWS)
        first.commit()
    assert listed(rest, "raced") == [1, 2]
    assert (counted(rest, "raced", 1), counted(rest, "raced", 2)) == (3, 6)


def test_a_version_from_before_a_rename_is_described_by_its_columns(served: Served) -> None:
    db, _, rest = served
    db.create_table("before", ROWS.schema, primary_key="id", data=ROWS)
    version = db.seq
    db.rename_table("before", "after")
    db["after"].drop_column("v")
    remote = {"x_lancedb_database": "dev"}
    found = rest.post("/v1/table/after/describe", {"version": version}, **remote).json
    assert found["version"] == version
    assert [field["name"] for field in found["schema"]["fields"]] == ["id", "v"]
    assert counted(rest, "after", version) == 3
