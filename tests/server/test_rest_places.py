"""A table is where the answers say: its folder exists, and a rename leaves it in its namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlparse

import lance
import pyarrow as pa
import pytest

import siltstone as st
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
def test_create_describe_and_drop_name_the_folder_that_lance_opens(
    served: Served, key: str
) -> None:
    db, _, rest = served
    made = rest.post(f"/v1/table/n$t/create?primary_key={key}", ROWS).json["location"]
    db.checkpoint()
    db.merge()
    described = rest.post("/v1/table/n$t/describe", {}, **REMOTE).json["location"]
    found = rest.post("/v1/table/n$t/drop", {}).json
    assert found["id"] == ["n", "t"]
    assert made == described == found["location"]
    assert lance.dataset(urlparse(made).path).count_rows() == 2


@pytest.mark.filterwarnings("ignore")
def test_the_remote_client_of_lancedb_opens_a_plain_table_where_it_lies(served: Served) -> None:
    import lancedb

    async def rows() -> int:
        db = await lancedb.connect_async("db://dev", api_key="x", host_override=served[1].url)
        table = await db.create_table("t", ROWS)
        return (await table.to_lance()).count_rows()

    assert asyncio.run(rows()) == 2
