"""Requests generated from /openapi.json are answered as it says, and never with a 5xx."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from siltstone.lance_namespace.specification.bodies import AnswerBody
from siltstone.server.http.route import Route
from siltstone.server.rest.tokens import tokens_of
from tests.server.asked import ASKED, NOT_ASKED, NOT_OFFERED, route_of
from tests.server.rest import rest_of

Described = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Described, Any, Any]]:
    """The operations of the document, the whole document, and the routes of the server."""
    with rest_of(tmp_path_factory.mktemp("schema") / "shop") as (_, service, rest):
        document = rest.get("/openapi.json").json
        found = {
            (method.upper(), path): operation
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        }
        yield found, document, service.routes


def test_the_document_names_the_routes_that_exist_and_no_others(described: Any) -> None:
    found, _, routes = described
    assert set(found) == {(route.method, route.path) for route in routes}


def test_every_operation_has_its_role_and_the_schemas_of_its_request_and_answer(
    described: Any,
) -> None:
    found, document, routes = described
    for route in routes:
        operation = found[route.method, route.path]
        assert operation["x-siltstone-role"] == route.role.name.lower()
        answers = operation["responses"]
        (done,) = answers.keys() - {"default"}
        kinds = [
            *answers[done].get("content", {}).values(),
            *answers["default"]["content"].values(),
        ]
        if route.method == "POST":
            kinds += operation["requestBody"]["content"].values()
        assert all(_means_something(kind["schema"], document) for kind in kinds), route.path
        if route.path not in NOT_OFFERED:
            is_empty = route.path.endswith("/exists")
            assert is_empty or answers[done]["content"], route.path


def _means_something(schema: dict[str, Any], document: Any) -> bool:
    name = schema.get("$ref", "").rpartition("/")[2]
    found = document["components"]["schemas"][name] if name else schema
    return bool(found.get("type") or found.get("anyOf"))


def _schemas_in(found: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all parts of a document, and where they stand."""
    yield path, found
    parts: Iterable[tuple[object, object]] = ()
    if isinstance(found, dict):
        parts = found.items()
    elif isinstance(found, list):
        parts = enumerate(found)
    for name, each in parts:
        yield from _schemas_in(each, f"{path}/{name}")


def test_generators_of_clients_can_read_every_schema(described: Any) -> None:
    """They read no `true` as a schema, and no list without `items`."""
    _, document, _ = described
    for path, schema in _schemas_in(document):
        if isinstance(schema, dict) and schema.get("type") == "array":
            assert isinstance(schema.get("items"), dict), path
        if path.endswith(("/items", "/anyOf", "/oneOf")):
            assert not isinstance(schema, bool), path


def test_requests_as_described_are_answered_as_described(tmp_path: Path) -> None:
    jsonschema_rs = pytest.importorskip("jsonschema_rs")
    with rest_of(tmp_path / "shop") as (db, service, rest):
        db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        db.create_table("plain", {"id": "int64"}).append([{"id": 1}])
        keys, asked, document = {"key": ""}, set[str](), rest.get("/openapi.json").json
        for method, path, body in ASKED:
            route = route_of(service.routes, method, path.partition("?")[0])
            asked.add(route.path)
            if isinstance(body, dict):
                msgspec.convert(body, route.request)
            answer = rest.ask(method, path.format(**keys), body)
            assert answer.status in {200, 202}, (path, answer.body)
            if route.answer is None:
                assert answer.body == b"", path
                continue
            msgspec.json.decode(answer.body, type=route.answer)
            schema = schema_of_answer(document, route)
            jsonschema_rs.validator_for(schema).validate(answer.json)
            if isinstance(answer.json, dict) and isinstance(answer.json.get("id"), str):
                keys["key"] = answer.json["id"]
        offered = {route.path for route in service.routes} - NOT_OFFERED.keys()
        assert asked == offered - NOT_ASKED


def schema_of_answer(document: Any, route: Route) -> dict[str, Any]:
    """The schema of a route's answer, with all that it refers to."""
    answers = document["paths"][route.path][route.method.lower()]["responses"]
    (done,) = answers.keys() - {"default"}
    schema = answers[done]["content"]["application/json"]["schema"]
    return {**schema, "components": document["components"]}


def test_no_answer_is_described_wider_than_it_is(described: Any) -> None:
    """What an answer leaves out is not null, and it has no member of which nothing is said."""
    _, document, routes = described
    answers = {route.answer for route in routes if isinstance(route.answer, type)}
    for kind in (each for each in answers if issubclass(each, AnswerBody)):
        schema = document["components"]["schemas"][kind.__name__]
        assert schema["additionalProperties"] is False, kind
        for name, member in schema["properties"].items():
            is_optional = name not in schema["required"]
            assert not (is_optional and {"type": "null"} in member.get("anyOf", [])), (kind, name)
            assert member != {}, (kind, name)


SECRETS = {role: f"{role}-{'x' * 30}" for role in ("read", "write", "admin")}
TOKENS = "; ".join(f"{role[0]} {role} {secret}" for role, secret in SECRETS.items())


WITHOUT_JSON = "(/table/[^/]+/(create|insert|merge_insert)|/v1/follow)$"
"""Routes that take rows, and the one whose answer never ends."""
EXAMPLES = {"nothing": "4", **dict.fromkeys(SECRETS, "2")}


@pytest.mark.parametrize("shown", ["nothing", "no token", "an unknown token", *SECRETS])
def test_no_generated_request_gets_an_answer_that_is_not_described(
    tmp_path: Path, shown: str
) -> None:
    """Of a server without tokens (`nothing`), and of one with tokens, by what a client shows."""
    pytest.importorskip("schemathesis")
    checks = "not_a_server_error,response_schema_conformance,content_type_conformance"
    options = {} if shown == "nothing" else {"tokens": tokens_of(TOKENS, "test")}
    with rest_of(tmp_path / "shop", **options) as (db, service, rest):
        db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        known = {"authorization": f"Bearer {SECRETS['read']}"}
        document = tmp_path / "openapi.json"
        document.write_bytes(rest.get("/openapi.json", **known).body)
        headers = {"an unknown token": f"Authorization: Bearer {'y' * 30}"} | {
            role: f"Authorization: Bearer {secret}" for role, secret in SECRETS.items()
        }
        given = ["--header", headers[shown]] if shown in headers else []
        found = subprocess.run(
            [Path(sys.executable).parent / "schemathesis", "run", document, "--url", service.url,
             "--checks", checks, "--max-examples", EXAMPLES.get(shown, "1"),
             "--phases", "fuzzing", "--seed", "1",
             "--exclude-path-regex", WITHOUT_JSON, *given],
            capture_output=True, text=True, timeout=110, check=False, cwd=tmp_path,
            env={**os.environ, "NO_COLOR": "1"},
        )  # fmt: skip
        assert found.returncode == 0, found.stdout[-4000:]
