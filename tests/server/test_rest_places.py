"""A table is where the answers say: its folder exists, and a rename leaves it in its namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.namespace import RestNamespace
from lance_namespace import DescribeTableRequest

import siltstone as st
from siltstone.joined.store import JoinedStore
from siltstone.namespace import SiltstoneNamespace
from siltstone.server.rest.server import RestServer
from tests.server.rest import Rest, rest_of

Served = tuple[st.Store, RestServer, Rest]
ROWS = pa.table({"id": [1, 2]})
REMOTE = {"x_lancedb_database": "dev"}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with rest_of(tmp_path / "shop") as found:
        yield found


def test_a_rename_stays_in_its_namespace_unless_another_is_named(served: Served) -> None:
    db, _, rest = served
    db.create_table("n1.a", ROWS.schema)
    rename = "/v1/table/n1$a/rename"
    assert rest.post(rename, {"new_table_name": "b"}).status == 200
    assert db.tables() == ["n1.b"]
    same = {"new_table_name": "a", "new_namespace_id": ["n1"]}
    assert rest.post("/v1/table/n1$b/rename", same).status == 200
    assert db.tables() == ["n1.a"]
    assert rest.post(rename, {"new_table_name": "a", "new_namespace_id": ["n2"]}).status == 200
    assert db.tables() == ["n2.a"]
    root = {"new_table_name": "a", "new_namespace_id": []}
    assert rest.post("/v1/table/n2$a/rename", root).status == 200
    assert db.tables() == ["a"]


@pytest.mark.parametrize("key", ["", "id"])
def test_every_operation_of_every_door_tells_the_folder_that_lance_opens(
    served: Served, key: str
) -> None:
    db, service, rest = served
    at = "/v1/table/n$t"
    made = rest.post(f"{at}/create?primary_key={key}", ROWS).json["location"]
    db.checkpoint()
    db.merge()
    asked = {"id": ["n", "t"]}
    wanted = DescribeTableRequest(id=["n", "t"])
    with JoinedStore(db.path, str(db.serve_local())) as joined:
        told = {
            "create again": rest.post(f"{at}/create?mode=exist_ok", ROWS).json["location"],
            "describe": rest.post(f"{at}/describe", {}).json["location"],
            "describe for LanceDB": rest.post(f"{at}/describe", {}, **REMOTE).json["location"],
            "pylance": RestNamespace(uri=service.url).describe_table(wanted).location,
            "in process": SiltstoneNamespace(db).describe_table(asked).location,
            "joined": SiltstoneNamespace(joined).describe_table(asked).location,
        }
    uri = rest.post(f"{at}/describe", {"with_table_uri": True}).json["table_uri"]
    assert lance.dataset(made).count_rows() == lance.dataset(uri).count_rows() == 2
    found = rest.post(f"{at}/drop", {}).json
    told["drop"] = found["location"]
    assert told == dict.fromkeys(told, made)
    assert uri == Path(made).as_uri()
    assert found["id"] == ["n", "t"]


def test_a_declared_table_lies_where_all_operations_say(served: Served) -> None:
    db, _, rest = served
    declared = rest.post("/v1/table/a/declare", {}).json["location"]
    assert rest.post("/v1/table/a/describe", {}).json["location"] == declared
    assert rest.post("/v1/table/a/describe", {}, **REMOTE).json["location"] == declared
    operations = {"operations": [{"deregister_table": {"id": ["a"]}}]}
    (result,) = rest.post("/v1/table/batch-commit", operations).json["results"]
    assert result["deregister_table"]["location"] == declared
    ns = SiltstoneNamespace(db)
    again = ns.declare_table({"id": ["a"]}).location
    assert again == rest.post("/v1/table/a/deregister", {}).json["location"] != declared


@pytest.mark.filterwarnings("ignore")
def test_the_remote_client_of_lancedb_opens_a_plain_table_where_it_lies(served: Served) -> None:
    import lancedb

    async def rows() -> int:
        db = await lancedb.connect_async("db://dev", api_key="x", host_override=served[1].url)
        table = await db.create_table("t", ROWS)
        return (await table.to_lance()).count_rows()

    assert asyncio.run(rows()) == 2
