"""LanceDB's remote client gets the five answers that it wants otherwise; paths take a slash."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.server.rest import refusals
from siltstone.server.rest.server import RestServer
from tests.server.rest import Rest, rest_of

Served = tuple[st.Store, RestServer, Rest]
REMOTE = {"x_lancedb_database": "dev"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with rest_of(tmp_path_factory.mktemp("flavours") / "shop") as found:
        vectors = pa.array([[0.0, 0.0], [3.0, 4.0]], pa.list_(pa.float32(), 2))
        rows = pa.table({"id": [1, 2], "f": [0.5, 1.5], "v": ["a", "b"], "e": vectors})
        found[0].create_table("t", rows.schema, primary_key="id")
        found[0]["t"].upsert(rows)
        body = {"tag": "kept", "version": found[0].seq}
        assert found[2].post("/v1/table/t/tags/create", body).status == 200
        yield found


def test_a_description_has_version_and_schema_by_the_names_of_lance(served: Served) -> None:
    rest = served[2]
    remote = rest.post("/v1/table/t/describe/", {}, **REMOTE).json
    kinds = {field["name"]: field["type"]["type"] for field in remote["schema"]["fields"]}
    assert kinds == {"id": "int64", "f": "double", "v": "string", "e": "fixed_size_list"}
    assert remote["version"] == served[0].seq
    detailed = rest.post("/v1/table/t/describe?load_detailed_metadata=true", {}).json
    other = {field["name"]: field["type"]["type"] for field in detailed["schema"]["fields"]}
    assert other == {"id": "int64", "f": "float64", "v": "utf8", "e": "fixed_size_list"}
    assert "schema" not in rest.post("/v1/table/t/describe", {}).json


def test_vector_and_columns_come_flat_and_the_vector_column_is_found(served: Served) -> None:
    rest = served[2]
    flat = {"vector": [3.0, 3.0], "columns": ["id"], "k": 1}
    nested = {
        "vector": {"single_vector": [3.0, 3.0]},
        "columns": {"column_names": ["id"]},
        "k": 1,
    }
    for path, query in (("query/", flat), ("query", nested)):
        assert rest.post(f"/v1/table/t/{path}", query).rows == [{"id": 2, "_distance": 1.0}]
    assert "nearest" in rest.post("/v1/table/t/explain_plan/", {**flat, "vector": [1, 1]}).json
    every = {"vector": [], "columns": ["id"], "k": 9}
    assert len(rest.post("/v1/table/t/query/", every).rows) == 2


def test_statistics_are_asked_for_without_a_body_or_its_type(served: Served) -> None:
    assert served[2].post("/v1/table/t/stats/", **REMOTE).json["num_rows"] == 2


def test_tags_are_a_bare_map_for_the_remote_client(served: Served) -> None:
    rest = served[2]
    seq = rest.post("/v1/table/t/tags/version", {"tag": "kept"}).json["version"]
    remote = rest.post("/v1/table/t/tags/list/", **REMOTE).json
    assert remote == {"kept": {"version": seq, "manifestSize": 0}}
    other = rest.post("/v1/table/t/tags/list").json
    assert other == {"tags": {"kept": {"version": seq, "manifestSize": 0}}}


def test_a_vector_column_that_is_not_there_is_no_failure_of_the_server(served: Served) -> None:
    rest = served[2]
    query = {"vector": [1.0, 2.0], "k": 1}
    assert rest.post("/v1/table/t/query/", {**query, "vector_column": "x"}).code == (404, 12)
    assert rest.post("/v1/table/t/query/", {**query, "vector_column": "v"}).code == (400, 13)
    assert rest.post("/v1/table/t/query/", {**query, "vector": [1.0]}).code == (400, 13)


def test_every_route_answers_the_same_with_and_without_a_slash(served: Served) -> None:
    _, service, rest = served
    for method, path in sorted(service.router.asked):
        if path.startswith("/v1/joined") or path in MOVING or "job" in path:
            continue
        # Of these each answer is another one; a table or a namespace is created once.
        if path in {
            "/v1/transaction/begin",
            "/v1/table/{id}/declare",
            *(f"/v1/namespace/{{id}}/{verb}" for verb in ("create", "drop")),
            *(f"/v1/{verb}" for verb in JOBS),
        }:
            continue
        asked = re.sub(r"{\w+}", "none", path)
        plain, slashed = (rest.ask(method, asked + end, x_request_id="same") for end in ("", "/"))
        assert (plain.status, plain.body) == (slashed.status, slashed.body), path
        assert plain.status not in {405, 500}, path


MOVING = {"/metrics", "/v1/status", "/v1/follow"}
"""What they say moves on by itself, or has no end."""
JOBS = ("checkpoint", "merge", "optimize", "vacuum")


def test_what_nobody_foresaw_is_a_flat_error_that_tells_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        answer = refusals.response_of(ValueError("a secret"), "r1")
    told = json.loads(bytes(answer.body))
    assert (answer.status_code, told["code"], told["instance"]) == (500, 18, "r1")
    assert "secret" not in told["error"]
    assert "r1" in caplog.text
