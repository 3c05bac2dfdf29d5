"""Clients that are not ours understand the answers: the generated one, pylance's, LanceDB's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.server.rest.server import RestServer
from siltstone.server.rest.tokens import new_token, tokens_of
from tests.server.rest import rest_of, stream_of

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
SECRET = new_token()
ROWS = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[st.Store, RestServer]]:
    path = tmp_path_factory.mktemp("clients") / "shop"
    with rest_of(path, tokens=tokens_of(f"us admin {SECRET}", "test")) as (db, service, _):
        db.create_table("keyed", ROWS.schema, primary_key="id")
        db["keyed"].upsert(ROWS)
        yield db, service


def fresh(db: st.Store) -> None:
    if "made" in db.tables():
        db.drop_table("made")
    db["keyed"].truncate()
    db["keyed"].upsert(ROWS)


def test_the_generated_client_parses_every_answer(served: tuple[st.Store, RestServer]) -> None:
    import lance_namespace_urllib3_client as client

    db, service = served
    fresh(db)
    configuration = client.Configuration(host=service.url)
    with client.ApiClient(configuration) as api:
        api.set_default_header("x-api-key", SECRET)
        tables, data = client.TableApi(api), client.DataApi(api)
        made = data.create_table("made", stream_of(ROWS))
        assert made.location
        assert tables.list_tables("$").tables == ["keyed", "made"]
        detailed = client.DescribeTableRequest(load_detailed_metadata=True)
        described = tables.describe_table("made", detailed)
        assert [field.name for field in described.var_schema.fields] == ["id", "v"]
        assert data.insert_into_table("made", stream_of(ROWS)).num_inserted_rows == 3
        merged = data.merge_insert_into_table(
            "keyed",
            on=["id"],
            body=stream_of(pa.table({"id": [3, 4], "v": ["z", "d"]})),
            when_matched_update_all=True,
            when_not_matched_insert_all=True,
        )
        assert (merged.num_updated_rows, merged.num_inserted_rows) == (1, 1)
        update = client.UpdateTableRequest(predicate="id = 1", updates=[["v", "upper(v)"]])
        assert data.update_table("keyed", update).updated_rows == 1
        gone = data.delete_from_table("keyed", client.DeleteFromTableRequest(predicate="id = 2"))
        assert gone.version == db.seq
        count = data.count_table_rows("keyed", client.CountTableRowsRequest())
        assert count == 3
        assert tables.get_table_stats("keyed", client.GetTableStatsRequest()).num_rows == 3
        stats = tables.get_table_stats("made", client.GetTableStatsRequest())
        fragments = stats.fragment_stats
        assert (stats.num_rows, fragments.num_fragments, fragments.lengths.max) == (6, 2, 3)
        stored = sum(path.stat().st_size for path in db.path.glob("tables/made-*/data/*"))
        assert stats.total_bytes > stored
        assert tables.list_table_branches("made").branches == {}
        with pytest.raises(client.ApiException) as caught:
            tables.describe_table("none", client.DescribeTableRequest())
        assert json.loads(caught.value.body)["code"] == 4
        transactions = client.TransactionApi(api)
        with pytest.raises(client.ApiException) as caught:
            transactions.describe_transaction("none", client.DescribeTransactionRequest())
        assert json.loads(caught.value.body)["code"] == 10


def test_pylance_reads_and_writes_through_its_rest_namespace(
    served: tuple[st.Store, RestServer],
) -> None:
    from lance.namespace import RestNamespace
    from lance_namespace import errors
    from lance_namespace_urllib3_client import models as m

    db, service = served
    fresh(db)
    space = RestNamespace(uri=service.url, **{"header.x-api-key": SECRET})
    assert space.list_tables(m.ListTablesRequest(id=[])).tables == ["keyed"]
    space.create_table(m.CreateTableRequest(id=["made"]), stream_of(ROWS))
    described = space.describe_table(m.DescribeTableRequest(id=["made"]))
    assert described.managed_versioning
    assert described.location.startswith(str(db.path))
    space.insert_into_table(m.InsertIntoTableRequest(id=["made"]), stream_of(ROWS))
    assert space.count_table_rows(m.CountTableRowsRequest(id=["made"])).count == 6
    query = m.QueryTableRequest(
        id=["keyed"],
        k=10,
        filter="id > 1",
        columns=m.QueryTableRequestColumns(column_names=["v"]),
        vector=m.QueryTableRequestVector(single_vector=[]),
    )
    found = pa.ipc.open_file(space.query_table(query).data).read_all()
    assert sorted(found.column("v").to_pylist()) == ["b", "c"]
    space.drop_table(m.DropTableRequest(id=["made"]))
    with pytest.raises(errors.TableNotFoundError):
        space.describe_table(m.DescribeTableRequest(id=["made"]))
    bad = m.CountTableRowsRequest(id=["keyed"], predicate="id >")
    with pytest.raises(errors.InvalidInputError):
        space.count_table_rows(bad)
    with pytest.raises(errors.UnsupportedOperationError):
        space.register_table(m.RegisterTableRequest(id=["other"], location="elsewhere"))
    external = RestNamespace(uri=service.url)
    with pytest.raises(errors.UnauthenticatedError):
        external.list_tables(m.ListTablesRequest(id=[]))


def test_pylance_reads_inside_a_transaction_by_a_header(
    served: tuple[st.Store, RestServer],
) -> None:
    from lance.namespace import RestNamespace
    from lance_namespace_urllib3_client import models as m

    db, service = served
    fresh(db)
    outside = RestNamespace(uri=service.url, **{"header.x-api-key": SECRET})
    import urllib.request

    def post(path: str) -> Any:
        request = urllib.request.Request(
            f"{service.url}/v1/transaction/{path}", b"", {"x-api-key": SECRET}, method="POST"
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    key = post("begin")["id"]
    inside = RestNamespace(
        uri=service.url, **{"header.x-api-key": SECRET, "header.x-siltstone-txn": key}
    )
    inside.insert_into_table(
        m.InsertIntoTableRequest(id=["keyed"]), stream_of(pa.table({"id": [9], "v": ["x"]}))
    )
    count = m.CountTableRowsRequest(id=["keyed"])
    assert inside.count_table_rows(count).count == 4
    assert outside.count_table_rows(count).count == 3
    post(f"{key}/commit")
    assert outside.count_table_rows(count).count == 4


def test_the_remote_client_of_lancedb_works_on_fresh_rows(
    served: tuple[st.Store, RestServer],
) -> None:
    import lancedb

    db, service = served
    fresh(db)
    remote = lancedb.connect("db://dev", api_key=SECRET, host_override=service.url)
    assert list(remote.table_names()) == ["keyed"]
    table = remote.open_table("keyed")
    assert table.schema.names == ["id", "v"]
    assert table.count_rows() == 3
    table.add(pa.table({"id": [4], "v": ["d"]}))
    found = table.search().where("id > 2").select(["v"]).limit(10).to_arrow()
    assert sorted(found.column("v").to_pylist()) == ["c", "d"]
    (
        table.merge_insert("id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute(pa.table({"id": [4, 5], "v": ["D", "e"]}))
    )
    table.update(where="id = 5", values={"v": "E"})
    table.delete("id = 1")
    assert db["keyed"].to_arrow().sort_by("id").column("v").to_pylist() == ["b", "c", "D", "E"]
    vectors = pa.table(
        {"id": [1, 2], "e": pa.array([[0.0, 0.0], [3.0, 4.0]], pa.list_(pa.float32(), 2))}
    )
    made = remote.create_table("made", vectors)
    near = made.search([3.0, 3.0]).limit(1).to_arrow()
    assert near.column("id").to_pylist() == [2]
    assert near.column("_distance").to_pylist() == [1.0]
    versions = made.list_versions()
    assert [version["version"] for version in versions] == sorted({v["version"] for v in versions})
    remote.drop_table("made")
    assert db.tables() == ["keyed"]
