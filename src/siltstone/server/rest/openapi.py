"""OpenAPI: the document of all routes, made of the table of routes and the types that it names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast, get_origin

import msgspec

from siltstone.lance_namespace.specification.bodies import AnswerBody
from siltstone.operations import Role
from siltstone.server.http.replies import JSON_TYPE
from siltstone.server.http.route import ARROW, JSON, Route
from siltstone.server.rest.schemas import ErrorAnswer
from siltstone.server.rest.wire import EVENTS_TYPE, FILE_TYPE, NDJSON_TYPE, STREAM_TYPE, TEXT_TYPE

_HEADERS = {
    "x-siltstone-txn": "Run inside this transaction.",
    "x-siltstone-snapshot": "Read as of seq:N, record:N, at:<time with its zone> or tag:<name>.",
    "x-siltstone-token": "<app>/<batch>: apply the statement once.",
}
_SCHEMAS = "#/components/schemas/{name}"
_BINARY: dict[str, object] = {"type": "string", "format": "binary"}
_GIVES: dict[str, tuple[str, dict[str, object]]] = {
    "file": (FILE_TYPE, _BINARY),
    "stream": (STREAM_TYPE, _BINARY),
    "events": (EVENTS_TYPE, {"type": "string"}),
    "text": (TEXT_TYPE, {"type": "string"}),
}
_LINES = frozenset(("/v1/changes", "/v1/diff", "/v1/sql"))
_JOBS = frozenset(("/v1/checkpoint", "/v1/merge", "/v1/optimize", "/v1/vacuum"))


def document(routes: Sequence[Route], version: str) -> dict[str, object]:
    """Return the OpenAPI 3.1 document."""
    types = [
        *(found for route in routes for found in (route.request, route.answer)),
        ErrorAnswer,
    ]
    found, components = msgspec.json.schema_components(types, ref_template=_SCHEMAS)
    for kind in _all_below(AnswerBody):
        if kind.__name__ in components:
            _forbid_nulls(components[kind.__name__])
    _say_items(components)
    schemas = iter(found)
    paths: dict[str, dict[str, object]] = {}
    for route in routes:
        described = _operation(route, next(schemas), next(schemas))
        paths.setdefault(route.path, {})[route.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": "siltstone", "version": version},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _all_below(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from _all_below(each)


def _forbid_nulls(schema: dict[str, Any]) -> None:
    """Let no member of an answer be null that is left out where it has nothing to say."""
    for name, member in schema.get("properties", {}).items():
        if "default" in member:
            kinds = [each for each in member["anyOf"] if each != {"type": "null"}]
            schema["properties"][name] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def _say_items(schema: object) -> None:
    """Let every list say what is in it, be it anything: generators of clients stop without."""
    if isinstance(schema, list):
        parts: Iterable[object] = cast("list[object]", schema)
    elif isinstance(schema, dict):
        members = cast("dict[str, object]", schema)
        if members.get("type") == "array":
            members.setdefault("items", {})
        parts = members.values()
    else:
        return
    for part in parts:
        _say_items(part)


def _operation(route: Route, request: object, answer: object) -> dict[str, object]:
    names = re.findall(r"{(\w+)}", route.path)
    text = {"type": "string"}
    parameters: list[object] = [
        {"name": name, "in": "path", "required": True, "schema": text} for name in names
    ]
    optional = (*(("delimiter",) if "id" in names else ()), *route.query)
    parameters += [{"name": name, "in": "query", "schema": text} for name in optional]
    if route.path.startswith("/v1/"):
        parameters += [
            {"name": name, "in": "header", "description": words, "schema": text}
            for name, words in _HEADERS.items()
        ]
    found: dict[str, object] = {
        "summary": route.summary,
        "operationId": _operation_id(route),
        "parameters": parameters,
        "responses": _responses(route, answer),
        "x-siltstone-role": route.role.name.lower(),
    }
    if route.takes == ARROW:
        found["requestBody"] = {"required": True, "content": {STREAM_TYPE: {"schema": _BINARY}}}
    elif route.takes == JSON:
        content = {JSON_TYPE: {"schema": request}}
        found["requestBody"] = {"required": _must_be(route.request), "content": content}
    if route.role is not Role.NOBODY:
        found["security"] = [{}, {"bearer": []}, {"key": []}]
    return found


def _must_be(request: Any) -> bool:
    """Say whether there is no request without a body: one that is a map has no members."""
    is_map = get_origin(request) is dict
    return is_map or any(field.required for field in msgspec.structs.fields(request))


def _responses(route: Route, answer: object) -> dict[str, object]:
    content: dict[str, object] = {}
    if route.gives in _GIVES:
        media, schema = _GIVES[route.gives]
        content[media] = {"schema": schema}
    elif route.answer is not None:
        content[JSON_TYPE] = {"schema": answer}
    if route.path in _LINES:
        content[NDJSON_TYPE] = {"schema": {"type": "string"}}
    done: dict[str, object] = {"description": "Done."}
    error = {JSON_TYPE: {"schema": {"$ref": _SCHEMAS.format(name="ErrorAnswer")}}}
    return {
        "202" if route.path in _JOBS else "200": {**done, "content": content} if content else done,
        "default": {"description": "Refused; nothing was changed.", "content": error},
    }


def _operation_id(route: Route) -> str:
    words = re.sub(r"[{}]", "", route.path).removeprefix("/v1").strip("/")
    return re.sub(r"[^a-z0-9]+", "_", words.lower())
