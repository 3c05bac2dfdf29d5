"""Requests generated from /openapi.json are answered as it says, and never with a 5xx."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from siltstone.server.http.route import Route
from siltstone.server.rest.routes import NOT_OFFERED
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


ROWS = pa.table({"id": [1, 2], "v": [10, 20]})
VECTORS = pa.table({"id": [1], "e": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))})
ASKED: list[tuple[str, str, object]] = [
    ("GET", "/healthz", None),
    ("GET", "/readyz", None),
    ("GET", "/openapi.json", None),
    ("GET", "/v1/status", None),
    ("POST", "/v1/table/made/create?primary_key=id", ROWS),
    ("POST", "/v1/table/vectors/create?primary_key=id", VECTORS),
    ("POST", "/v1/table/made/insert?mode=overwrite", ROWS),
    ("POST", "/v1/table/made/merge_insert?on=id&when_matched_update_all=true", ROWS),
    ("POST", "/v1/table/made/count_rows", {"predicate": "id > 1", "version": None}),
    ("POST", "/v1/table/made/explain_plan", {"query": {"filter": "id > 1", "k": 1}}),
    ("POST", "/v1/table/made/analyze_plan", {"filter": "id > 1", "columns": ["id"]}),
    ("POST", "/v1/table/made/update", {"updates": [["v", "v + 1"]], "predicate": "id = 1"}),
    ("POST", "/v1/table/made/delete", {"predicate": "id = 2"}),
    ("POST", "/v1/table/made/add_columns", {"new_columns": [{"name": "w", "expression": "1"}]}),
    ("POST", "/v1/table/made/alter_columns", {"alterations": [{"path": "w", "rename": "x"}]}),
    ("POST", "/v1/table/made/drop_columns", {"columns": ["x"]}),
    ("POST", "/v1/table/made/tags/create", {"tag": "a", "version": 8}),
    ("POST", "/v1/table/made/tags/update", {"tag": "a", "version": 9}),
    ("POST", "/v1/table/made/tags/version", {"tag": "a"}),
    ("POST", "/v1/table/made/tags/list", {}),
    ("POST", "/v1/table/made/restore", {"version": 9}),
    ("POST", "/v1/table/made/tags/delete", {"tag": "a"}),
    ("POST", "/v1/table/made/create_index", {"column": "v", "index_type": "btree", "name": None}),
    ("POST", "/v1/table/made/create_scalar_index", {"column": "id", "index_type": "BITMAP"}),
    ("POST", "/v1/table/vectors/create_index",
     {"column": "e", "index_type": "IVF_FLAT", "distance_type": "cosine", "num_partitions": 1}),
    ("POST", "/v1/table/made/index/list", {}),
    ("POST", "/v1/table/vectors/index/list", {}),
    ("POST", "/v1/table/made/index/v/stats", {}),
    ("POST", "/v1/table/made/index/v/drop", {}),
    ("POST", "/v1/table/made/describe", {"load_detailed_metadata": True, "with_table_uri": True}),
    ("POST", "/v1/table/vectors/describe", {"load_detailed_metadata": True}),
    ("POST", "/v1/table/made/exists", {"id": ["made"]}),
    ("POST", "/v1/table/made/stats", None),
    ("POST", "/v1/table/made/rename", {"new_table_name": "ns.other"}),
    ("GET", "/v1/table?limit=1", None),
    ("GET", "/v1/namespace/$/list", None),
    ("GET", "/v1/namespace/ns/table/list", None),
    ("POST", "/v1/namespace/ns/describe", {"id": ["ns"]}),
    ("POST", "/v1/namespace/ns/exists", {}),
    ("POST", "/v1/namespace/ns/create", {"mode": "exist_ok", "properties": {"a": "b"}}),
    ("POST", "/v1/transaction/begin", {"isolation": "serializable", "durability": None}),
    ("POST", "/v1/transaction/{key}/describe", {}),
    ("POST", "/v1/transaction/{key}/commit", None),
    ("POST", "/v1/transaction/{key}/describe", {}),
    ("POST", "/v1/transaction/begin", None),
    ("POST", "/v1/transaction/{key}/rollback", None),
    ("POST", "/v1/transaction/begin", None),
    ("POST", "/v1/transaction/{key}/alter",
     {"actions": [{"set_status_action": {"status": "Succeeded"}}]}),
    ("POST", "/v1/transaction/apply", {"ops": [
        {"table": "t", "op": "upsert", "rows": [{"id": 7, "v": 7}]},
        {"table": "t", "op": "update", "key": 7, "set": {"v": 8}},
        {"table": "t", "op": "delete", "keys": [7]},
        {"table": "t", "op": "delete_where", "filter": "id > 100"},
        {"table": "t", "op": "truncate"}]}),
    ("POST", "/v1/table/p/declare", {}),
    ("POST", "/v1/table/p/branches/list", {}),
    ("POST", "/v1/table/plain/describe", {"version": None}),
    ("POST", "/v1/table/plain/version/list?descending=true&limit=1", {}),
    ("POST", "/v1/table/plain/version/describe", {"version": None}),
    ("POST", "/v1/table/plain/version/delete", {"ranges": [{"end_version": 1}]}),
    ("POST", "/v1/table/batch-commit", {"operations": [
        {"declare_table": {"id": ["q"]}}, {"deregister_table": {"id": ["p"]}}]}),
    ("POST", "/v1/table/plain/deregister", {}),
    ("POST", "/v1/table/vectors/drop", {}),
    ("POST", "/v1/checkpoint", {}),
    ("POST", "/v1/merge", {"table": "t"}),
    ("POST", "/v1/optimize", {"table": None}),
    ("POST", "/v1/vacuum", {"dry_run": True}),
    ("GET", "/v1/jobs/{key}", None),
    ("GET", "/v1/jobs", None),
]  # fmt: skip
NOT_ASKED = {
    *("/metrics", "/v1/changes", "/v1/table/{id}/query", "/v1/table/{id}/scan"),  # no JSON
    "/v1/namespace/{id}/drop",  # is always refused
    *("/v1/table/{id}/version/create", "/v1/table/version/batch-create"),  # of staged files
}


def test_requests_as_described_are_answered_as_described(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop") as (db, service, rest):
        db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        db.create_table("plain", {"id": "int64"}).append([{"id": 1}])
        keys, asked = {"key": ""}, set[str]()
        for method, path, body in ASKED:
            route = _route_of(service.routes, method, path.partition("?")[0])
            asked.add(route.path)
            if isinstance(body, dict):
                msgspec.convert(body, route.request)
            answer = rest.ask(method, path.format(**keys), body)
            assert answer.status in {200, 202}, (path, answer.body)
            if route.answer is None:
                assert answer.body == b"", path
                continue
            msgspec.json.decode(answer.body, type=route.answer)
            if isinstance(answer.json, dict) and isinstance(answer.json.get("id"), str):
                keys["key"] = answer.json["id"]
        offered = {route.path for route in service.routes} - NOT_OFFERED.keys()
        assert asked == offered - NOT_ASKED


def _route_of(routes: list[Route], method: str, path: str) -> Route:
    """Return the route of a path; one with a word in its place goes before one with any."""
    found = [
        route
        for route in routes
        if route.method == method
        and re.fullmatch(re.sub(r"{\w+}", "[^/]+", route.path), path.replace("{key}", "key"))
    ]
    return min(found, key=lambda route: route.path.count("{"))


def test_no_generated_request_gets_an_answer_that_is_not_described(tmp_path: Path) -> None:
    pytest.importorskip("schemathesis")
    checks = "not_a_server_error,response_schema_conformance,content_type_conformance"
    with rest_of(tmp_path / "shop") as (db, service, _):
        db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        found = subprocess.run(
            [Path(sys.executable).parent / "schemathesis", "run", f"{service.url}/openapi.json",
             "--checks", checks, "--max-examples", "4", "--phases", "fuzzing", "--seed", "1",
             "--exclude-path-regex", "/table/[^/]+/(create|insert|merge_insert)$"],
            capture_output=True, text=True, timeout=110, check=False, cwd=tmp_path,
            env={**os.environ, "NO_COLOR": "1"},
        )  # fmt: skip
        assert found.returncode == 0, found.stdout[-4000:]
