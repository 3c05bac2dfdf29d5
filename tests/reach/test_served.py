"""A server of a mirror at its URL answers what reads, to clients of all kinds, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import lance
import lance.namespace
import lance_namespace as spec
import lancedb
import pytest

import siltstone as st
from siltstone.lance_versions.errors import Code
from siltstone.local.store import LocalStore
from siltstone.server.http.route import Role
from siltstone.server.rest.server import RestServer, serve_reader
from siltstone.server.rest.tokens import AccessToken, Principal, digest_of
from tests.reach.conftest import Mirrored
from tests.server.rest import Rest

HOW = "a store in a bucket is only read, connect(url, read_only=True); to write, open the path with"


@pytest.fixture
def service(far: st.Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestServer]:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")  # the servers of tests have no TLS
    monkeypatch.setenv("AZURE_ALLOW_HTTP", "true")
    assert isinstance(far, LocalStore)
    made = serve_reader(far, host="127.0.0.1", port=0)
    yield made
    made.close()


@pytest.fixture
def client(service: RestServer) -> Iterator[Rest]:
    made = Rest(service)
    yield made
    made.close()


def by_repr(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=repr)


def test_pylance_reads_a_mirror_through_the_server(service: RestServer, shop: Mirrored) -> None:
    space: Any = lance.namespace.RestNamespace(uri=service.url)
    assert space.list_tables(spec.ListTablesRequest(id=[])).tables == ["docs", "keyed", "plain"]
    found = lance.dataset(namespace_client=space, table_id=["plain"])
    assert by_repr(found.to_table().to_pylist()) == shop.at[shop.seq]["plain"]
    assert found.uri.startswith(f"{shop.url}/tables/plain-")
    keyed = lance.dataset(namespace_client=space, table_id=["keyed"])
    assert keyed.to_table(filter="id = 8")["v"].to_pylist() == ["again"]
    where = space.describe_table(spec.DescribeTableRequest(id=["plain"]))
    assert where.storage_options is None


def test_both_clients_of_lancedb_read_a_mirror_through_the_server(
    service: RestServer, shop: Mirrored
) -> None:
    near = lancedb.connect_namespace("rest", {"uri": service.url})
    assert near.list_tables().tables == ["docs", "keyed", "plain"]
    assert by_repr(near.open_table("plain").to_arrow().to_pylist()) == shop.at[shop.seq]["plain"]
    remote = lancedb.connect("db://mirror", api_key="none", host_override=service.url)
    keyed = remote.open_table("keyed")
    assert keyed.count_rows() == len(shop.at[shop.seq]["keyed"])
    found = keyed.search().where("id = 8").to_arrow().to_pylist()
    assert [row["v"] for row in found] == ["again"]


def test_rows_are_read_now_at_a_seq_and_at_a_tag(client: Rest, shop: Mirrored) -> None:
    for seq in (shop.seq, shop.changed):
        told = client.post("/v1/table/plain/scan", {}, x_siltstone_snapshot=f"seq:{seq}")
        assert by_repr(told.rows) == shop.at[seq]["plain"]
    told = client.post("/v1/table/keyed/scan", {}, x_siltstone_snapshot="tag:first")
    assert by_repr(told.rows) == shop.at[shop.tagged]["keyed"]
    counted = client.post("/v1/sql?format=arrow", {"sql": "select count(*) as n from plain"})
    assert counted.rows == [{"n": len(shop.at[shop.seq]["plain"])}]
    for path in ("/v1/status", "/v1/log", "/metrics", "/readyz", "/openapi.json", "/v1/changes"):
        assert client.get(path).status == 200, path


def test_each_route_that_writes_is_refused_in_one_sentence(
    service: RestServer, client: Rest, shop: Mirrored
) -> None:
    writes = [route for route in service.routes if route.role > Role.READ]
    assert len(writes) > 20
    for route in writes:
        told = client.ask(route.method, route.path.replace("{id}", "plain"), {"any": "thing"})
        assert told.code == (403, int(Code.PERMISSION_DENIED)), route.path
        assert HOW in told.json["error"], route.path
        assert shop.url in told.json["error"], route.path
    for path, body in (
        ("/v1/transaction/begin", {}),
        ("/v1/transaction/begin", {"durability": "shipped"}),
        ("/v1/sql", {"sql": "delete from plain"}),
    ):
        assert HOW in client.post(path, body).json["error"], path
    assert HOW in client.get("/v1/follow").json["error"]


def test_no_process_joins_it(service: RestServer) -> None:
    with pytest.raises(st.SiltstoneError) as refused:
        st.connect(service.url)
    assert "\n" not in str(refused.value)


def test_a_token_of_the_server_reads_and_none_is_refused(far: st.Store, shop: Mirrored) -> None:
    assert isinstance(far, LocalStore)
    token = AccessToken(Principal("alice", Role.READ), digest_of("secret"))
    made = serve_reader(far, host="127.0.0.1", port=0, tokens=[token])
    known, unknown = Rest(made, authorization="Bearer secret"), Rest(made)
    try:
        assert known.post("/v1/table/plain/count_rows", {}).status == 200
        assert unknown.post("/v1/table/plain/count_rows", {}).status == 401
    finally:
        for each in (known, unknown, made):
            each.close()


def test_the_command_serves_a_url_until_it_is_told_to_end(
    shop: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")  # the servers of tests have no TLS
    monkeypatch.setenv("AZURE_ALLOW_HTTP", "true")
    command = [sys.executable, "-m", "siltstone", "serve", "--port", "0"]
    environment = {**os.environ, "SILTSTONE_URI": shop.url}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            near = lancedb.connect_namespace("rest", {"uri": url})
            assert near.open_table("plain").count_rows() == len(shop.at[shop.seq]["plain"])
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=60)
            assert process.returncode == 0, said
            assert f"serving {shop.url}" in said
        finally:
            process.kill()
