"""Stock Lance clients commit versions by HTTP: many tables in one transaction, all or none."""

from __future__ import annotations

from collections.abc import Iterator

import lance
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.server.rest.server import RestServer
from tests.server.rest import Rest, rest_of

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
ROWS = pa.table({"id": [1, 2, 3]})
Served = tuple[st.Store, RestServer, Rest]


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with rest_of(tmp_path_factory.mktemp("namespace") / "shop") as found:
        yield found


def space_of(service: RestServer, **headers: str):
    from lance.namespace import RestNamespace

    named = {f"header.{name}": value for name, value in headers.items()}
    return RestNamespace(uri=service.url, **named)


def count(space, *name: str) -> int:
    return lance.dataset(namespace_client=space, table_id=list(name)).count_rows()


def test_pylance_creates_appends_and_deletes_through_the_server(served: Served) -> None:
    db, service, rest = served
    space = space_of(service)
    for name in (["t"], ["db", "t"]):
        lance.write_dataset(ROWS, namespace_client=space, table_id=name, mode="create")
        lance.write_dataset(ROWS, namespace_client=space, table_id=name, mode="append")
        lance.dataset(namespace_client=space, table_id=name).delete("id = 1")
        assert count(space, *name) == 4
    assert db.tables() == ["db.t", "t"]
    assert db["t"].count() == db["db.t"].count() == 4
    assert rest.post("/v1/table/db$t/count_rows", {}).json == 4
    assert rest.get("/v1/namespace/$/list").json == {"namespaces": ["db"]}
    assert rest.get("/v1/namespace/db/table/list").json == {"tables": ["t"]}
    assert rest.get("/v1/namespace/$/table/list").json == {"tables": ["t"]}


def test_two_tables_in_one_transaction_by_a_header(served: Served) -> None:
    db, service, rest = served
    space = space_of(service)
    for name in ("a", "b"):
        lance.write_dataset(ROWS, namespace_client=space, table_id=[name], mode="create")
    seq = db.seq
    for ends, rows in (("rollback", 3), ("commit", 6)):
        key = rest.post("/v1/transaction/begin").json["id"]
        inside = space_of(service, **{"x-siltstone-txn": key})
        for name in ("a", "b"):
            lance.write_dataset(ROWS, namespace_client=inside, table_id=[name], mode="append")
            assert (count(inside, name), count(space, name)) == (6, 3)
        assert rest.post(f"/v1/transaction/{key}/{ends}").status == 200
        assert [count(space, name) for name in ("a", "b")] == [rows, rows]
    assert db.seq == seq + 1
    past = space_of(service, **{"x-siltstone-snapshot": f"seq:{seq}"})
    assert [count(past, name) for name in ("a", "b")] == [3, 3]


def test_a_batch_commit_is_all_or_nothing(served: Served) -> None:
    db, _, rest = served
    declare = [{"declare_table": {"id": [name]}} for name in ("x", "y")]
    done = rest.post("/v1/table/batch-commit", {"operations": declare})
    assert done.status == 200
    assert [set(found) for found in done.json["results"]] == [{"declare_table"}] * 2
    seq = db.seq
    again = [{"declare_table": {"id": ["z"]}}, {"declare_table": {"id": ["x"]}}]
    assert rest.post("/v1/table/batch-commit", {"operations": again}).code == (409, 5)
    assert (db.seq, db.tables()) == (seq, ["x", "y"])


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("t/version/describe", {"version": 99}),
        ("t/version/describe", {"version": "one"}),
        ("t/version/create", {"version": 99, "manifest_path": "x", "manifest_size": 1}),
        ("t/version/create", {"version": 2, "manifest_path": "/etc/passwd", "manifest_size": 1}),
        ("t/version/create", {"version": 2, "manifest_path": "../../x", "manifest_size": 1}),
        ("t/version/create", {"version": 2, "manifest_path": 7, "manifest_size": "x"}),
        ("none/version/list", {}),
        ("t/version/delete", {"ranges": 5}),
        ("version/batch-create", {"entries": [5]}),
        ("batch-commit", {"operations": [{}]}),
        ("batch-commit", {"operations": [{"declare_table": {"id": ["n"]}, "x": {}}]}),
        ("batch-commit", {"operations": [{"declare_table": {"id": ["n"]}}] * 10_000}),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(
    served: Served, verb: str, body: object
) -> None:
    db, service, rest = served
    lance.write_dataset(ROWS, namespace_client=space_of(service), table_id=["t"], mode="create")
    seq = db.seq
    status, code = rest.post(f"/v1/table/{verb}", body).code
    assert status in {400, 404, 406, 409}, code
    assert (db.seq, db.tables(), db["t"].count()) == (seq, ["t"], 3)


def test_a_commit_in_a_transaction_that_ended_is_refused(served: Served) -> None:
    db, service, rest = served
    lance.write_dataset(ROWS, namespace_client=space_of(service), table_id=["t"], mode="create")
    seq, key = db.seq, rest.post("/v1/transaction/begin").json["id"]
    rest.post(f"/v1/transaction/{key}/rollback")
    given = {"version": 2, "manifest_path": "x", "manifest_size": 1}
    batch = {"operations": [{"declare_table": {"id": ["n"]}}]}
    for path, body in (("t/version/create", given), ("batch-commit", batch), ("n/declare", {})):
        refused = rest.post(f"/v1/table/{path}", body, x_siltstone_txn=key)
        assert refused.code == (404, 10)
    assert (db.seq, db.tables()) == (seq, ["t"])


def test_pylance_and_lancedb_are_clients_of_one_transaction(served: Served) -> None:
    import lancedb

    db, service, rest = served
    space = space_of(service)
    for name in ("a", "b"):
        lance.write_dataset(ROWS, namespace_client=space, table_id=[name], mode="create")
    seq, key = db.seq, rest.post("/v1/transaction/begin").json["id"]
    inside = space_of(service, **{"x-siltstone-txn": key})
    lance.write_dataset(ROWS, namespace_client=inside, table_id=["a"], mode="append")
    properties = {"uri": service.url, "header.x-siltstone-txn": key}
    lancedb.connect_namespace("rest", properties).open_table("b").add(ROWS)
    assert (count(inside, "a"), count(inside, "b")) == (6, 6)
    assert (count(space, "a"), count(space, "b")) == (3, 3)
    assert rest.post(f"/v1/transaction/{key}/commit").status == 200
    assert (count(space, "a"), count(space, "b")) == (6, 6)
    assert db.seq == seq + 1
