"""Metadata of tables and columns over REST: as the generated client, LanceDB's and ours ask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lancedb
import pyarrow as pa
import pytest

from siltstone.server.rest.server import RestServer
from tests.server.rest import Rest, rest_of

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
ROWS = pa.table({"id": [1, 2], "v": ["a", "b"]})


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, RestServer, Rest]]:
    with rest_of(tmp_path_factory.mktemp("metadata") / "shop") as (db, service, rest):
        db.create_table("k", ROWS.schema, primary_key="id").upsert(ROWS)
        db.create_table("p", ROWS.schema).append(ROWS)
        yield db, service, rest


def test_the_generated_client_sends_and_gets_it_as_one_object(
    served: tuple[Any, RestServer, Rest],
) -> None:
    import lance_namespace_urllib3_client as client

    db, service, _ = served
    with client.ApiClient(client.Configuration(host=service.url)) as api:
        tables = client.TableApi(api)
        assert tables.update_table_schema_metadata("k", {"owner": "us"}) == {"owner": "us"}
        update = client.UpdateFieldMetadataEntry(path="v", metadata={"unit": "m"})
        request = client.UpdateFieldMetadataRequest(updates=[update])
        found = tables.update_field_metadata("k", request)
        assert (found.version, found.fields) == (db.seq, {"v": {"unit": "m"}})
        detailed = client.DescribeTableRequest(load_detailed_metadata=True)
        schema = tables.describe_table("k", detailed).var_schema
        assert schema.metadata == {"owner": "us"}
        assert [field.metadata for field in schema.fields] == [None, {"unit": "m"}]


@pytest.mark.parametrize("name", ["k", "p"])
def test_the_remote_client_of_lancedb_notes_and_shows_it(
    served: tuple[Any, RestServer, Rest], name: str
) -> None:
    _, service, _ = served
    table = lancedb.connect("db://dev", api_key="none", host_override=service.url).open_table(name)
    table.update_field_metadata({"path": "v", "metadata": {"lancedb:description": "a text"}})
    assert table.schema.field("v").metadata == {b"lancedb:description": b"a text"}
    assert table.search().limit(5).to_arrow().num_rows == 2


WRONG: list[tuple[str, object]] = [
    ("schema_metadata/update", {"owner": 5}),
    ("schema_metadata/update", ["owner"]),
    ("schema_metadata/update", {"ARROW:extension:name": "x"}),
    ("schema_metadata/update", {"metadata": {"owner": "us"}}),
    ("update_field_metadata", {}),
    ("update_field_metadata", {"updates": []}),
    ("update_field_metadata", {"updates": [{"path": "v"}]}),
    ("update_field_metadata", {"updates": [{"path": "", "metadata": {}}]}),
    ("update_field_metadata", {"updates": [{"path": "v", "metadata": {}, "also": 1}]}),
    ("update_field_metadata", {"updates": [{"path": "v", "metadata": {"a": 1}}]}),
    ("update_field_metadata", {"updates": [{"path": "v", "metadata": {}, "replace": "x"}]}),
]


@pytest.mark.parametrize(("what", "body"), WRONG)
def test_what_is_wrong_is_refused_and_changes_nothing(
    served: tuple[Any, RestServer, Rest], what: str, body: object
) -> None:
    db, _, rest = served
    seq = db.seq
    answer = rest.post(f"/v1/table/k/{what}", body)
    assert (answer.status, answer.json["code"]) == (400, 13)
    assert db.seq == seq


def test_a_statement_is_a_part_of_its_transaction(served: tuple[Any, RestServer, Rest]) -> None:
    db, _, rest = served
    key = rest.post("/v1/transaction/begin", {}).json["id"]
    path = "/v1/table/k/schema_metadata/update"
    assert rest.post(path, {"owner": "us"}, x_siltstone_txn=key).json == {"owner": "us"}
    assert db["k"].schema.metadata is None
    rest.post(f"/v1/transaction/{key}/commit")
    assert db["k"].schema.metadata == {b"owner": b"us"}
