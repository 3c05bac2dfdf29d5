"""Clients declare, watch and drop indexes of tables by HTTP; no answer changes by one."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.server.rest.server import RestServer
from siltstone.server.rest.tokens import new_token, tokens_of
from tests.server.rest import Rest, rest_of

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
SECRET = new_token()
Served = tuple[st.Store, RestServer, Rest]


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("indexes") / "shop"
    with rest_of(path, tokens=tokens_of(f"us admin {SECRET}", "test")) as (db, service, rest):
        rest.headers["x-api-key"] = SECRET
        rows = pa.table(
            {
                "id": range(300),
                "n": [n % 7 for n in range(300)],
                "words": [f"word{n} and more" for n in range(300)],
                "e": pa.array([[n, 1.0] for n in range(300)], pa.list_(pa.float32(), 2)),
            }
        )
        db.create_table("t", rows.schema, primary_key="id")
        db["t"].upsert(rows)
        db.create_table("plain", {"id": "int64"})
        db.checkpoint()
        db.merge()
        yield db, service, rest


def names(rest: Rest) -> list[str]:
    found = rest.post("/v1/table/t/index/list").json["indexes"]
    return [index["index_name"] for index in found if not index["index_name"].startswith("_")]


def test_indexes_are_declared_listed_and_dropped(served: Served) -> None:
    db, _, rest = served
    for body in (
        {"column": "n", "index_type": "BTREE"},
        {"column": "n", "index_type": "bitmap", "name": "few"},
        {"column": "words", "index_type": "FTS", "with_position": True},
        {"column": "e", "index_type": "IVF_FLAT", "distance_type": "L2", "num_partitions": 2},
        {"column": "e", "index_type": "IVF_HNSW_SQ", "name": "graph"},
    ):
        assert rest.post("/v1/table/t/create_index", body).status == 200
    assert names(rest) == sorted(names(rest))
    assert set(names(rest)) == {"n", "few", "words", "e", "graph"}
    stats = rest.post("/v1/table/t/index/n/stats", {}).json
    assert (stats["index_type"], stats["num_indexed_rows"], stats["num_unindexed_rows"]) == (
        *("BTREE", 300),
        0,
    )
    assert rest.post("/v1/table/t/index/e/stats", {}).json["index_type"] == "IVF_FLAT"
    assert rest.post("/v1/table/t/index/graph/stats", {}).json["index_type"] == "IVF_HNSW_SQ"
    assert rest.post("/v1/table/t/query", {"filter": "n = 3", "k": 999}).status == 200
    for name in names(rest):
        assert rest.post(f"/v1/table/t/index/{name}/drop").status == 200
    assert names(rest) == []
    assert db["t"].count("n = 3") == 43


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("none/create_index", {"column": "n", "index_type": "BTREE"}, (404, 4)),
        ("t/create_index", {"column": "nothing", "index_type": "BTREE"}, (404, 12)),
        ("t/create_index", {"column": "n", "index_type": "IVF_HNSW_PQ"}, (406, 0)),
        ("t/create_index", {"column": "n", "index_type": "IVF_HNSW_SQ"}, (400, 13)),
        ("t/create_index", {"column": "e", "index_type": "IVF_RQ"}, (400, 13)),
        ("t/create_index", {"column": "n", "index_type": 7}, (406, 0)),
        ("t/create_index", {"column": "n"}, (406, 0)),
        ("t/create_index", {"index_type": "BTREE"}, (400, 13)),
        ("t/create_index", {"column": "n", "index_type": "IVF_FLAT"}, (400, 13)),
        ("t/create_index", {"column": "e", "index_type": "BTREE"}, (400, 13)),
        ("t/create_index", {"column": "n", "index_type": "BTREE", "name": "_n"}, (400, 13)),
        ("t/create_index", {"column": "n", "index_type": "BTREE", "name": 5}, (400, 13)),
        ("plain/create_index", {"column": "id", "index_type": "BITMAP"}, (400, 13)),
        ("plain/index/id_idx/drop", None, (404, 6)),
        ("t/index/none/stats", {}, (404, 6)),
        ("t/index/none/drop", None, (404, 6)),
        ("t/index/_key/drop", None, (404, 6)),
    ],
)
def test_what_is_no_index_is_refused(
    served: Served, path: str, body: object, code: tuple[int, int]
) -> None:
    rest = served[2]
    assert rest.post(f"/v1/table/{path}", body).code == code
    assert names(rest) == []


def test_an_index_of_a_plain_table_has_the_name_that_lance_gives(served: Served) -> None:
    db, _, rest = served
    body = {"column": "id", "index_type": "BTREE"}
    assert rest.post("/v1/table/plain/create_scalar_index", body).status == 200
    db["plain"].append([{"id": 1}])
    (found,) = rest.post("/v1/table/plain/index/list").json["indexes"]
    assert (found["index_name"], found["num_unindexed_rows"]) == ("id_idx", 1)
    assert rest.post("/v1/table/plain/create_index", body).code == (409, 7)
    assert rest.post("/v1/table/plain/index/id_idx/drop").status == 200
    assert rest.post("/v1/table/plain/index/list").json["indexes"] == []


def test_an_index_is_there_once_and_is_no_part_of_a_transaction(served: Served) -> None:
    rest = served[2]
    body = {"column": "n", "index_type": "BTREE"}
    key = rest.post("/v1/transaction/begin").json["id"]
    assert rest.post("/v1/table/t/create_index", body, x_siltstone_txn=key).code == (400, 13)
    assert rest.post("/v1/table/t/create_index", body).status == 200
    assert rest.post("/v1/table/t/create_index", body).code == (409, 7)


def test_lancedb_and_the_generated_client_make_indexes(served: Served) -> None:
    import lance_namespace_urllib3_client as client
    import lancedb

    _, service, rest = served
    remote = lancedb.connect("db://dev", api_key=SECRET, host_override=service.url)
    table = remote.open_table("t")
    table.create_scalar_index("n", index_type="BITMAP")
    found = [index for index in table.list_indices() if not index.name.startswith("_")]
    assert [(index.name, index.columns) for index in found] == [("n", ["n"])]
    stats = table.index_stats("n")
    assert stats is not None
    assert (stats.index_type, stats.num_indexed_rows) == ("BITMAP", 300)
    table.drop_index("n")
    with client.ApiClient(client.Configuration(host=service.url)) as api:
        api.set_default_header("x-api-key", SECRET)
        indexes = client.IndexApi(api)
        request = client.CreateTableIndexRequest(column="words", index_type="FTS", stem=False)
        indexes.create_table_index("t", request)
        listed = indexes.list_table_indices("t", client.ListTableIndicesRequest()).indexes
        assert "words" in [index.index_name for index in listed]
        told = indexes.describe_table_index_stats(
            "t", "words", client.DescribeTableIndexStatsRequest()
        )
        assert told.num_unindexed_rows == 0
    assert names(rest) == ["words"]
