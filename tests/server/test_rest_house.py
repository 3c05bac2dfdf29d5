"""The server says how it is, answers wrong addresses flatly, and stops without losing a word."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.errors import RequestError, UnavailableError
from siltstone.process.latency import BOUNDS_S
from siltstone.server.rest.routes import NOT_OFFERED
from siltstone.server.rest.server import RestServer
from tests.server.rest import Rest, rest_of
from tests.server.stores import opened

Served = tuple[st.Store, RestServer, Rest]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with rest_of(tmp_path_factory.mktemp("house") / "shop") as found:
        yield found


def test_it_is_healthy_and_ready_and_tells_its_status(served: Served) -> None:
    db, _, rest = served
    assert rest.get("/healthz").json == {"status": "ok"}
    assert rest.get("/readyz").json == {"status": "ready"}
    status = rest.get("/v1/status")
    assert status.json["visible_seq"] == db.seq == status.seq
    assert status.json["server"]["transactions"] == 0


def test_its_metrics_are_lines_of_name_and_number(served: Served) -> None:
    rest = served[2]
    rest.get("/healthz")
    answer = rest.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    lines = [line for line in answer.body.decode().splitlines() if not line.startswith("#")]
    values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}
    assert values["siltstone_visible_seq"] == 0
    assert any(name.startswith("siltstone_requests_total{") for name in values)


def test_it_describes_every_route_that_it_has(served: Served) -> None:
    _, service, rest = served
    document = rest.get("/openapi.json").json
    described = {
        (method.upper(), path) for path, verbs in document["paths"].items() for method in verbs
    }
    assert described == {(route.method, route.path) for route in service.routes}
    ids = [verb["operationId"] for verbs in document["paths"].values() for verb in verbs.values()]
    assert len(set(ids)) == len(ids)


def test_wrong_addresses_and_methods_are_flat_errors(served: Served) -> None:
    rest = served[2]
    assert rest.get("/nowhere").code == (404, 0)
    assert rest.get("/v1/table/a/b/c/d").code == (404, 0)
    assert rest.get("/v1/table/t/describe").code == (405, 0)
    assert rest.ask("DELETE", "/v1/status").code == (405, 0)
    assert rest.post("/v1/table/t/register", {}).code == (406, 0)


def test_what_is_not_offered_says_why_and_is_on_the_page(served: Served) -> None:
    _, _, rest = served
    page = (Path(__file__).parents[2] / "docs" / "server.md").read_text()
    for path, why in NOT_OFFERED.items():
        refused = rest.post(path.replace("{id}", "t"), {})
        assert (refused.code, refused.json["error"]) == ((406, 0), why)
        assert f"| `{path}` | {why} |\n" in page


def test_a_slash_at_the_end_changes_nothing(served: Served) -> None:
    rest = served[2]
    assert rest.get("/v1/table/").json == rest.get("/v1/table").json == {"tables": []}
    assert rest.post("/v1/table/t/describe/").code == (404, 4)


def test_a_request_keeps_its_id_if_it_may_stand_in_a_log(served: Served) -> None:
    rest = served[2]
    assert rest.get("/healthz", x_request_id="abc-1").headers["x-request-id"] == "abc-1"
    bad = rest.get("/nowhere", x_request_id="a b<script>")
    assert bad.json["instance"] not in {"", "a b<script>"}


def test_what_is_no_http_is_refused_in_the_same_form(served: Served) -> None:
    service = served[1]
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    connection.connect()
    connection.sock.sendall(b"\x16\x03\x01 hello\r\n\r\n")
    response = http.client.HTTPResponse(connection.sock)
    response.begin()
    assert response.status == 400
    assert b'"code":13' in response.read()
    response.close()
    connection.close()


def test_a_head_that_never_ends_is_cut_off(served: Served) -> None:
    service = served[1]
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    connection.putrequest("GET", "/healthz")
    for number in range(40):
        connection.putheader(f"x-{number}", "y" * 4000)
    connection.endheaders()
    response = connection.getresponse()
    assert response.status == 400
    response.close()
    connection.close()


def test_a_second_server_of_one_store_and_an_address_in_use_are_refused(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop") as (db, service, _):
        with pytest.raises(RequestError, match="served already"):
            db.serve(port=0)
        with (
            opened(tmp_path / "other") as other,
            pytest.raises(UnavailableError, match="cannot listen"),
        ):
            other.serve(port=service.port)


def test_closing_the_store_answers_what_is_inside_and_rolls_back_what_is_open(
    tmp_path: Path,
) -> None:
    with opened(tmp_path / "shop") as db:
        service = db.serve(port=0)
        assert isinstance(service, RestServer)
        rest = Rest(service)
        db.create_table("t", {"id": "int64"}, primary_key="id")
        key = rest.post("/v1/transaction/begin").json["id"]
        apply = {"table": "t", "op": "upsert", "rows": [{"id": 1}]}
        assert rest.post("/v1/transaction/apply", {"ops": [apply]}).status == 200
        gone = rest.post("/v1/table/t/delete", {"predicate": "true"}, x_siltstone_txn=key)
        assert gone.status == 200
        rest.close()
        service.close()
        assert db["t"].count() == 1
        assert db.status().open_transactions == 0


def test_the_command_serves_until_sigterm_and_keeps_what_it_answered(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    with opened(path) as db:
        db.create_table("t", {"id": "int64"}, primary_key="id")
    command = [sys.executable, "-m", "siltstone", "serve", "--db", str(path), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().strip().rpartition(":")[2])
        rest = Rest(_At(port))  # type: ignore[arg-type]
        apply = {"table": "t", "op": "upsert", "rows": [{"id": 1}]}
        seq = rest.post("/v1/transaction/apply", {"ops": [apply]}).seq
        second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert second.returncode == 6, second.stderr
        rest.close()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    finally:
        process.kill()
        process.wait()
    with opened(path) as db:
        assert db["t"].get(1) == {"id": 1}
        assert db.seq == seq


class _At:
    def __init__(self, port: int) -> None:
        self.port = port


def test_a_hundred_requests_at_once_are_all_answered(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop") as (db, service, _):
        db.create_table("t", {"id": "int64"}, primary_key="id")

        def write(number: int) -> None:
            rest = Rest(service)
            for batch in range(5):
                row = {"id": number * 5 + batch}
                apply = {"table": "t", "op": "insert", "rows": [row]}
                assert rest.post("/v1/transaction/apply", {"ops": [apply]}).status == 200
            rest.close()

        threads = [threading.Thread(target=write, args=(n,)) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert db["t"].count() == 100


def test_a_server_without_the_store_it_names_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "siltstone", "serve", "--db", str(tmp_path / "none")]
    found = subprocess.run(command, capture_output=True, timeout=60, check=False, env=os.environ)
    assert found.returncode == 3
    assert not (tmp_path / "none").exists()


def test_its_metrics_have_histograms_of_commits_and_reads_and_count_conflicts(
    tmp_path: Path,
) -> None:
    with rest_of(tmp_path / "shop") as (db, service, rest):
        before = samples(rest)
        assert before["siltstone_commit_seconds_count"] == before["siltstone_conflicts_total"] == 0
        db.create_table("t", {"id": "int64"}, primary_key="id").upsert({"id": 1})
        apply = {"table": "t", "op": "upsert", "rows": [{"id": 1}]}
        assert rest.post("/v1/transaction/apply", {"ops": [apply]}).status == 200
        for number in range(3):
            assert rest.post("/v1/table/t/count_rows", {}).json == 1, number
        with st.connect(service.url) as remote:
            remote["t"].upsert({"id": 1})
            assert remote["t"].get(1) == {"id": 1}
            assert remote["t"].scan().read_all().num_rows == 1
        with db.transaction() as tx:
            tx["t"].delete(1)
            db["t"].upsert({"id": 1})
            with pytest.raises(st.ConflictError):
                tx.commit()
        found = samples(rest)
    assert found["siltstone_commit_seconds_count"] == found["siltstone_commits_total"] == 5
    assert found["siltstone_read_seconds_count"] == 5
    assert found["siltstone_conflicts_total"] == 1
    for name in ("siltstone_commit_seconds", "siltstone_read_seconds"):
        counts = [value for key, value in found.items() if key.startswith(f"{name}_bucket")]
        assert len(counts) == len(BOUNDS_S) + 1  # bounded, whatever clients do
        assert counts == sorted(counts)
        assert counts[-1] == found[f"{name}_count"]
        assert found[f"{name}_sum"] > 0


def samples(rest: Rest) -> dict[str, float]:
    lines = rest.get("/metrics").body.decode().splitlines()
    pairs = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in pairs}
