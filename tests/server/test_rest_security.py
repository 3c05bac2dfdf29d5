"""Nobody gets in without a role, no browser from elsewhere does, and no secret gets out."""

from __future__ import annotations

import logging
import re
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.errors import RequestError
from siltstone.server.rest.access import is_loopback
from siltstone.server.rest.server import RestServer
from siltstone.server.rest.tokens import Role, digest_of, new_token, tokens_from, tokens_of
from tests.server.rest import Rest, rest_of
from tests.server.stores import opened

SECRETS = {role: f"{role.name.lower()}-{new_token()}" for role in Role if role is not Role.NOBODY}
TOKENS = tokens_of(
    ";".join(f"{role.name} {role.name} {secret}" for role, secret in SECRETS.items()), "test"
)

CONSOLE = {"/", "/console", "/console/{file}", "/console/console/{file}"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[st.Store, RestServer]]:
    path = tmp_path_factory.mktemp("guarded") / "shop"
    with rest_of(path, tokens=TOKENS) as (db, service, _):
        db.create_table("t", {"id": "int64"}, primary_key="id")
        yield db, service


def as_role(service: RestServer, role: Role) -> Rest:
    return Rest(service, authorization=f"Bearer {SECRETS[role]}")


def path_of(route: str) -> str:
    return re.sub(r"{\w+}", "nothing", route)


def test_every_route_needs_a_role_and_refuses_the_one_below(
    guarded: tuple[st.Store, RestServer],
) -> None:
    db, service = guarded
    before = db.seq
    nobody, foreign = Rest(service), Rest(service, x_api_key=new_token())
    foreign.headers = {"x-api-key": new_token()}
    for route in service.routes:
        if route.role is Role.NOBODY:
            assert route.path in {"/healthz", "/readyz"}
            continue
        assert nobody.ask(route.method, path_of(route.path)).code == (401, 16), route.path
        assert foreign.ask(route.method, path_of(route.path)).code == (401, 16), route.path
        if route.role > Role.READ:
            weaker = as_role(service, Role(route.role - 1))
            found = weaker.ask(route.method, path_of(route.path))
            assert found.code == (403, 15), route.path
            weaker.close()
    for rest in (nobody, foreign):
        rest.close()
    assert db.seq == before


def test_the_app_has_no_route_that_lets_nobody_in(guarded: tuple[st.Store, RestServer]) -> None:
    db, service = guarded
    before, nobody = db.seq, Rest(service)
    asked = set(service.router.asked)
    assert ("POST", "/v1/joined/table/{table}/{verb}") in asked
    for method, path in asked:
        for end in ("", "/"):
            answer = nobody.ask(method, path_of(path) + end)
            if path in {"/healthz", "/readyz"}:
                assert answer.status == 200
            elif path in CONSOLE:  # files, the same of every server
                assert answer.status in {200, 307, 404}
                assert b"guarded" not in answer.body
            else:
                assert answer.status == 401, (method, path, answer.body)
    nobody.close()
    assert db.seq == before


def test_each_role_may_do_what_is_its_own(guarded: tuple[st.Store, RestServer]) -> None:
    service = guarded[1]
    reader, writer = as_role(service, Role.READ), as_role(service, Role.WRITE)
    assert reader.post("/v1/table/t/count_rows", {}).status == 200
    assert writer.post("/v1/table/t/delete", {"predicate": "id < 0"}).status == 200
    assert writer.post("/v1/vacuum", {}).code == (403, 15)
    admin = Rest(service)
    admin.headers = {"x-api-key": SECRETS[Role.ADMIN]}
    assert admin.post("/v1/vacuum", {}).status == 202
    for rest in (reader, writer, admin):
        rest.close()


def test_who_only_reads_spends_no_token(guarded: tuple[st.Store, RestServer]) -> None:
    """Else a writer's batch of the same token would be taken for applied, and its rows be lost."""
    db, service = guarded
    reader, before = as_role(service, Role.READ), db.seq
    assert reader.post("/v1/transaction/begin", {}, x_siltstone_token="etl/1").code == (403, 15)
    with st.connect(service.url, token=SECRETS[Role.READ]) as remote:
        for spent in (
            {"token": ("etl", 1)},
            {"token": ["etl", 1]},
            {"token": ("etl", 1), "claim": 3},
        ):
            with pytest.raises(st.AccessError, match="needs write"):
                remote.transaction(**spent)
    reader.close()
    assert db.seq == before
    assert db.status().open_transactions == 0
    with db.transaction(token=("etl", 1)) as tx:
        tx["t"].upsert([{"id": 77}])
    assert db["t"].get(77) is not None


def test_who_only_reads_spends_no_id_of_others(guarded: tuple[st.Store, RestServer]) -> None:
    """Ids can be guessed: who asks for the outcome of one that is still to come would end it."""
    db, service = guarded
    reader = as_role(service, Role.READ)
    with (
        st.connect(service.url, token=SECRETS[Role.WRITE]) as writer,
        st.connect(service.url, token=SECRETS[Role.READ]) as looker,
    ):
        tx = writer.transaction()
        tx["t"].upsert([{"id": 78}])
        mine = tx._home.reserved
        assert reader.post(f"/v1/transaction/{mine}/describe").json["status"] == "Running"
        assert looker.outcome(mine) == "in doubt"
        tx.commit()
        assert reader.post(f"/v1/transaction/{mine}/describe").json["status"] == "Succeeded"
        assert looker.outcome(mine) == "committed"
    reader.close()
    assert db["t"].get(78) is not None


def test_a_transaction_is_of_the_one_who_began_it(guarded: tuple[st.Store, RestServer]) -> None:
    service = guarded[1]
    writer, admin = as_role(service, Role.WRITE), as_role(service, Role.ADMIN)
    key = writer.post("/v1/transaction/begin").json["id"]
    assert admin.post("/v1/table/t/count_rows", {}, x_siltstone_txn=key).code == (404, 10)
    for verb in ("commit", "rollback", "describe"):
        assert admin.post(f"/v1/transaction/{key}/{verb}").code == (404, 10)
    assert writer.post(f"/v1/transaction/{key}/commit").status == 200
    for rest in (writer, admin):
        rest.close()


def test_no_secret_is_in_an_answer_or_in_a_log(
    guarded: tuple[st.Store, RestServer], caplog: pytest.LogCaptureFixture
) -> None:
    service = guarded[1]
    secret = new_token()
    with caplog.at_level(logging.DEBUG):
        for headers in ({"authorization": f"Bearer {secret}"}, {"x-api-key": secret}):
            rest = Rest(service)
            rest.headers = headers
            answer = rest.get("/v1/status")
            assert secret.encode() not in answer.body
            rest.close()
        reader = as_role(service, Role.READ)
        assert SECRETS[Role.READ].encode() not in reader.post("/v1/vacuum").body
        assert SECRETS[Role.READ].encode() not in reader.get("/v1/status").body
        reader.close()
    assert secret not in caplog.text
    assert not any(one in caplog.text for one in SECRETS.values())
    assert not any(one in repr(vars(service)) for one in SECRETS.values())


def test_a_foreign_host_or_origin_is_refused_where_no_token_is_asked_for(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop", allowed_hosts=["db.local"]) as (_, service, rest):
        assert rest.get("/v1/status", host="evil.example:2333").code == (403, 15)
        assert rest.get("/healthz", host="evil.example").code == (403, 15)
        assert rest.get("/v1/status", origin="http://evil.example").code == (403, 15)
        assert rest.get("/v1/status", origin="null").code == (403, 15)
        assert rest.get("/v1/status", origin=f"http://127.0.0.1:{service.port}").status == 200
        for host in ("localhost:1", "[::1]:2333", "127.0.0.1", "db.local:80"):
            assert rest.get("/v1/status", host=host).status == 200


def test_another_interface_needs_a_token(tmp_path: Path) -> None:
    with opened(tmp_path / "shop") as db:
        with pytest.raises(RequestError, match="give tokens"):
            db.serve("0.0.0.0", 0)
        with pytest.raises(RequestError, match="give tokens"):
            db.serve("::", 0)
        service = db.serve("0.0.0.0", 0, tokens=TOKENS)
        rest = as_role(service, Role.READ)
        assert rest.get("/v1/status", host="anything.example").status == 200
        rest.close()
    assert [is_loopback(host) for host in ("127.8.8.8", "::1", "localhost")] == [True] * 3
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example.org"))


def test_tokens_come_from_a_private_file_and_the_environment_and_are_kept_hashed(
    tmp_path: Path,
) -> None:
    secret, file = new_token(), tmp_path / "tokens"
    file.write_text(f"# ours\nbob read sha256:{digest_of(secret).hex()}\n\n")
    file.chmod(0o640)
    with pytest.raises(RequestError, match="open to others"):
        tokens_from(file, {})
    file.chmod(0o600)
    found = tokens_from(file, {"SILTSTONE_SERVER_TOKENS": f"eve admin {new_token()}"})
    assert [token.principal.name for token in found] == ["eve", "bob"]
    assert found[1].digest == digest_of(secret)
    with pytest.raises(RequestError, match="cannot be read"):
        tokens_from(tmp_path / "none", {})


@pytest.mark.parametrize("text", ["", "\n  \n", "# bob read, some day\n;"])
def test_a_file_or_a_variable_without_a_token_is_refused_and_never_an_open_server(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "tokens"
    file.write_text(text)
    file.chmod(0o600)
    for environment in ({}, {"SILTSTONE_SERVER_TOKENS": f"eve admin {new_token()}"}):
        with pytest.raises(RequestError, match=f"{file} has no token"):
            tokens_from(file, environment)
    if text:
        with pytest.raises(RequestError, match=r"\$SILTSTONE_SERVER_TOKENS has no token"):
            tokens_from(None, {"SILTSTONE_SERVER_TOKENS": text})
    assert tokens_from(None, {"SILTSTONE_SERVER_TOKENS": ""}) == ()


@pytest.mark.parametrize(
    "line", ["bob read short-secret", "bob chief " + "x" * 40, "just-a-secret", "a read b c"]
)
def test_a_line_that_is_no_token_is_named_by_its_number_alone(line: str) -> None:
    with pytest.raises(RequestError) as caught:
        tokens_of("# first\n" + line, "file")
    assert "line 2" in str(caught.value)
    assert line.rsplit(maxsplit=1)[-1] not in str(caught.value)


def test_tls_is_what_the_certificate_says(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", str(key), "-out", str(certificate), "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        capture_output=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("no openssl")
    with opened(tmp_path / "shop") as db:
        service = db.serve(port=0, certificate=certificate, key=key)
        assert service.url.startswith("https://")
        context = ssl.create_default_context(cafile=str(certificate))
        raw = socket.create_connection(("127.0.0.1", service.port), timeout=60)
        with context.wrap_socket(raw, server_hostname="127.0.0.1") as wire:
            wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            assert wire.recv(100).startswith(b"HTTP/1.1 200")
