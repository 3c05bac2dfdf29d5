"""OpenAPI: the document of all routes, made of the table of routes itself."""

from __future__ import annotations

import re
from collections.abc import Iterable

from siltstone.server.http.route import ARROW, NOTHING, Role, Route

_GIVES = {
    "json": ("application/json", {}),
    "file": ("application/vnd.apache.arrow.file", {"type": "string", "format": "binary"}),
    "stream": ("application/vnd.apache.arrow.stream", {"type": "string", "format": "binary"}),
    "text": ("text/plain; version=0.0.4; charset=utf-8", {"type": "string"}),
}
_HEADERS = {
    "x-siltstone-txn": "Run inside this transaction.",
    "x-siltstone-snapshot": "Read as of seq:N, record:N, at:<time with its zone> or tag:<name>.",
    "x-siltstone-token": "<app>/<batch>: apply the statement once.",
}
_ERROR: dict[str, object] = {
    "type": "object",
    "required": ["error", "code"],
    "properties": {
        "error": {"type": "string"},
        "code": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
    },
}


def document(routes: Iterable[Route], version: str) -> dict[str, object]:
    """Return the OpenAPI 3.1 document."""
    paths: dict[str, dict[str, object]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "siltstone", "version": version},
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _operation(route: Route) -> dict[str, object]:
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
        "responses": _responses(route),
        "x-siltstone-role": route.role.name.lower(),
    }
    if route.takes != NOTHING:
        found["requestBody"] = {"required": False, "content": _taken(route)}
    if route.role is not Role.NOBODY:
        found["security"] = [{}, {"bearer": []}, {"key": []}]
    return found


def _operation_id(route: Route) -> str:
    words = re.sub(r"[{}]", "", route.path).removeprefix("/v1").strip("/")
    return re.sub(r"[^a-z0-9]+", "_", words.lower())


def _taken(route: Route) -> dict[str, object]:
    if route.takes == ARROW:
        binary = {"type": "string", "format": "binary"}
        return {"application/vnd.apache.arrow.stream": {"schema": binary}}
    return {"application/json": {"schema": {"type": "object"}}}


def _responses(route: Route) -> dict[str, object]:
    media, schema = _GIVES[route.gives]
    answer: dict[str, object] = {"description": "Done.", "content": {media: {"schema": schema}}}
    if route.path == "/v1/changes":
        answer["content"] = {
            media: {"schema": schema},
            "application/x-ndjson": {"schema": {"type": "string"}},
        }
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    is_job = route.path in {"/v1/checkpoint", "/v1/merge", "/v1/optimize", "/v1/vacuum"}
    return {
        "202" if is_job else "200": answer,
        "default": {"description": "Refused; nothing was changed.", "content": error},
    }
