"""Stock clients create a namespace and then tables in it, over REST as anywhere."""

# pyright: reportArgumentType=false

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lance
import lance.namespace
import lance_namespace as spec
import lancedb
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.server.http.route import Role
from siltstone.server.rest.server import RestServer
from tests.server.rest import Rest, rest_of
from tests.server.test_rest_security import TOKENS, as_role

Served = tuple[st.Store, RestServer, Rest]
ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def served(tmp_path: Any) -> Iterator[Served]:
    with rest_of(tmp_path / "shop") as found:
        yield found


class Space:
    """pylance's own client of the REST namespace; members of requests are arguments."""

    def __init__(self, service: RestServer, **named: str) -> None:
        self.client = lance.namespace.RestNamespace(uri=service.url, **named)

    def ask(self, operation: str, *path: str, **members: Any) -> Any:
        request = getattr(spec, f"{operation.title().replace('_', '')}Request")
        return getattr(self.client, operation)(request(id=list(path), **members))


@pytest.mark.parametrize("delimiter", ["$", "@"])
def test_pylance_makes_nested_namespaces_and_a_table_in_them(
    served: Served, delimiter: str
) -> None:
    db, service, _ = served
    ns = Space(service, delimiter=delimiter)
    ns.ask("create_namespace", "a", properties={"owner": "x"})
    ns.ask("create_namespace", "a", "b")
    assert ns.ask("describe_namespace", "a").properties == {"owner": "x"}
    assert ns.ask("list_namespaces", "a").namespaces == ["b"]
    assert ns.ask("list_tables", "a", "b").tables == []
    where = {"namespace_client": ns.client, "table_id": ["a", "b", "t"]}
    lance.write_dataset(ROWS, mode="create", **where)
    lance.write_dataset(ROWS, mode="append", **where)
    assert lance.dataset(**where).count_rows() == 6
    assert ns.ask("list_tables", "a", "b").tables == ["t"]
    assert db["a.b.t"].count() == 6
    with pytest.raises(Exception, match="not empty"):
        ns.ask("drop_namespace", "a", "b")
    assert ns.ask("drop_table", "a", "b", "t").id == ["a", "b", "t"]
    ns.ask("drop_namespace", "a", "b")
    assert ns.ask("list_namespaces", "a").namespaces == []


def test_lancedb_makes_namespaces_and_tables_by_both_of_its_clients(served: Served) -> None:
    db, service, _ = served
    near = lancedb.connect_namespace("rest", {"uri": service.url})
    near.create_namespace(["n1"])
    near.create_namespace(["n1", "n2"])
    near.create_table("t", ROWS, namespace_path=["n1", "n2"])
    assert near.list_tables(namespace_path=["n1", "n2"]).tables == ["t"]
    assert near.open_table("t", namespace_path=["n1", "n2"]).count_rows() == 3

    far = lancedb.connect("db://shop", api_key="none", host_override=service.url)
    far.create_namespace(["n1", "n3"])
    assert sorted(far.list_namespaces(["n1"]).namespaces) == ["n2", "n3"]
    far.create_table("u", ROWS, namespace_path=["n1", "n3"])
    assert far.open_table("u", namespace_path=["n1", "n3"]).count_rows() == 3
    assert db.tables() == ["n1.n2.t", "n1.n3.u"]
    far.drop_table("u", namespace_path=["n1", "n3"])
    far.drop_namespace(["n1", "n3"])
    assert near.list_namespaces(["n1"]).namespaces == ["n2"]


def test_each_refusal_has_its_code_and_one_sentence(served: Served) -> None:
    _, _, rest = served
    assert rest.post("/v1/namespace/a/create").json == {"properties": {}} | _id(rest)
    for path, body, code in (
        ("namespace/a/create", {}, (409, 2)),
        ("namespace/x$y/create", {}, (404, 1)),
        ("namespace/a$b.c/create", {}, (400, 13)),
        ("namespace/a/create", {"mode": "maybe"}, (400, 13)),
        ("namespace/new/create", {"properties": {"n": 1}}, (400, 13)),
        ("namespace/a/drop", {"behavior": "maybe"}, (400, 13)),
        ("namespace/x/drop", {}, (404, 1)),
        ("namespace/x/describe", {}, (404, 1)),
        ("table/x$t/describe", {}, (404, 4)),
        ("table/a$b.c/describe", {}, (400, 13)),
        ("table/a/register", {"location": "elsewhere"}, (406, 0)),
    ):
        assert rest.post(f"/v1/{path}", body).code == code, path
    deep = "$".join("x" * 17)
    assert rest.post(f"/v1/namespace/{deep}/create").code == (404, 1)
    assert rest.post("/v1/namespace/x/drop", {"mode": "skip"}).status == 200


def _id(rest: Rest) -> dict[str, str]:
    """Return the id of the last commit, as an answer has it."""
    again = rest.post("/v1/namespace/other/create").json
    epoch, _, number = again["transaction_id"].partition("-")
    return {"transaction_id": f"{epoch}-{int(number) - 1}"}


def test_a_transaction_and_a_snapshot_have_their_own_namespaces(served: Served) -> None:
    _, _, rest = served
    key = rest.post("/v1/transaction/begin").json["id"]
    inside = {"x_siltstone_txn": key}
    assert rest.post("/v1/namespace/a/create", **inside).status == 200
    assert rest.get("/v1/namespace/$/list").json == {"namespaces": []}
    assert rest.get("/v1/namespace/$/list", **inside).json == {"namespaces": ["a"]}
    seq = rest.post(f"/v1/transaction/{key}/commit").seq
    assert rest.get("/v1/namespace/$/list").json == {"namespaces": ["a"]}
    past = {"x_siltstone_snapshot": f"seq:{seq - 1}"}
    assert rest.get("/v1/namespace/$/list", **past).json == {"namespaces": []}
    assert rest.post("/v1/namespace/b/create", **past).code == (403, 15)


def test_a_creation_that_is_sent_again_with_its_token_is_applied_once(served: Served) -> None:
    db, _, rest = served
    named = {"x_siltstone_token": "app/1"}
    assert rest.post("/v1/namespace/a/create", **named).status == 200
    seq = db.seq
    assert rest.post("/v1/namespace/a/create", **named).status == 200
    assert db.seq == seq


def test_a_read_token_lists_namespaces_and_creates_none(tmp_path: Any) -> None:
    with rest_of(tmp_path / "shop", tokens=TOKENS) as (_, service, _):
        reader, writer = as_role(service, Role.READ), as_role(service, Role.WRITE)
        assert reader.post("/v1/namespace/a/create").code == (403, 15)
        assert writer.post("/v1/namespace/a/create").status == 200
        assert reader.get("/v1/namespace/$/list").json == {"namespaces": ["a"]}
        reader.close()
        writer.close()
