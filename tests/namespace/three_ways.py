"""One request of the specification, asked in process, of a joined store, and over REST."""

from __future__ import annotations

import inspect
import json
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pyarrow as pa
from lance_namespace import errors as spec_errors

import siltstone as st
from siltstone.namespace import SiltstoneNamespace
from tests.server.rest import Rest, rest_of
from tests.server.stores import joined_to, opened

# Where REST has each operation; what stands behind it goes into the query, not into the body.
PATHS: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "list_namespaces": ("GET /v1/namespace/{id}/list", None),
    "describe_namespace": ("/v1/namespace/{id}/describe", ()),
    "namespace_exists": ("/v1/namespace/{id}/exists", ()),
    "create_namespace": ("/v1/namespace/{id}/create", ()),
    "drop_namespace": ("/v1/namespace/{id}/drop", ()),
    "list_tables": ("GET /v1/namespace/{id}/table/list", None),
    "list_all_tables": ("GET /v1/table", None),
    "describe_table": ("/v1/table/{id}/describe", ("with_table_uri", "load_detailed_metadata")),
    "table_exists": ("/v1/table/{id}/exists", ()),
    "declare_table": ("/v1/table/{id}/declare", ()),
    "drop_table": ("/v1/table/{id}/drop", ()),
    "deregister_table": ("/v1/table/{id}/deregister", ()),
    "rename_table": ("/v1/table/{id}/rename", ()),
    "list_table_branches": ("/v1/table/{id}/branches/list", ("page_token", "limit")),
    "list_table_versions": (
        "/v1/table/{id}/version/list",
        ("page_token", "limit", "descending", "branch"),
    ),
    "describe_table_version": ("/v1/table/{id}/version/describe", ()),
    "create_table_version": ("/v1/table/{id}/version/create", ()),
    "batch_delete_table_versions": ("/v1/table/{id}/version/delete", ()),
    "batch_create_table_versions": ("/v1/table/version/batch-create", ()),
    "batch_commit_tables": ("/v1/table/batch-commit", ()),
    "create_table": ("/v1/table/{id}/create", None),
    "insert_into_table": ("/v1/table/{id}/insert", None),
    "merge_insert_into_table": ("/v1/table/{id}/merge_insert", None),
    "update_table": ("/v1/table/{id}/update", ()),
    "delete_from_table": ("/v1/table/{id}/delete", ()),
    "restore_table": ("/v1/table/{id}/restore", ()),
    "query_table": ("/v1/table/{id}/query", ()),
    "count_table_rows": ("/v1/table/{id}/count_rows", ()),
    "explain_table_query_plan": ("/v1/table/{id}/explain_plan", ()),
    "analyze_table_query_plan": ("/v1/table/{id}/analyze_plan", ()),
    "get_table_stats": ("/v1/table/{id}/stats", ()),
    "alter_table_add_columns": ("/v1/table/{id}/add_columns", ()),
    "alter_table_alter_columns": ("/v1/table/{id}/alter_columns", ()),
    "alter_table_drop_columns": ("/v1/table/{id}/drop_columns", ()),
    "update_table_schema_metadata": ("/v1/table/{id}/schema_metadata/update", ()),
    "update_field_metadata": ("/v1/table/{id}/update_field_metadata", ()),
    "list_table_tags": ("/v1/table/{id}/tags/list", ("page_token", "limit")),
    "get_table_tag_version": ("/v1/table/{id}/tags/version", ()),
    "create_table_tag": ("/v1/table/{id}/tags/create", ()),
    "update_table_tag": ("/v1/table/{id}/tags/update", ()),
    "delete_table_tag": ("/v1/table/{id}/tags/delete", ()),
    "create_table_index": ("/v1/table/{id}/create_index", ()),
    "create_table_scalar_index": ("/v1/table/{id}/create_scalar_index", ()),
    "list_table_indices": ("/v1/table/{id}/index/list", ("page_token", "limit")),
    "describe_table_index_stats": ("/v1/table/{id}/index/{index_name}/stats", ()),
    "drop_table_index": ("/v1/table/{id}/index/{index_name}/drop", ()),
}
ROWS = pa.table({"id": [1, 2], "v": ["a", "b"]})
WHOLE = {"update_table_schema_metadata": "metadata"}
"""The member that is the whole body, and the whole answer, over REST."""
WAYS = ("in process", "joined", "REST")


@dataclass(frozen=True)
class Told:
    """What came of a request: an answer, or the code and the sentence of a refusal."""

    answer: object = None
    code: int | None = None
    sentence: str = ""


class ThreeWays:
    """Three stores with the same tables, each asked in its own way."""

    def __init__(self, stores: list[st.Store], spaces: list[Any], rest: Rest) -> None:
        self.stores, self._spaces, self._rest = stores, spaces, rest

    def asked(
        self, operation: str, request: dict[str, Any], rows: bytes | None = None
    ) -> list[Told]:
        """Return what came of a request, in the order of `WAYS`."""
        found = [_called(space, operation, dict(request), rows) for space in self._spaces]
        found.append(self._over_rest(operation, request, rows))
        return [_normal(told, db) for told, db in zip(found, self.stores, strict=True)]

    def _over_rest(self, operation: str, request: dict[str, Any], rows: bytes | None) -> Told:
        path, queried = PATHS[operation]
        method, _, path = ("POST " + path if path[0] == "/" else path).rpartition(" ")
        given = {k: v for k, v in request.items() if v is not None}
        ids = given.pop("id", [])
        path = path.replace("{id}", quote("$".join(ids) or "$", safe="$"))
        if "{index_name}" in path:
            path = path.replace("{index_name}", quote(str(given.pop("index_name", "")), safe=""))
        query = given if queried is None else {k: given.pop(k) for k in queried if k in given}
        if query:
            path += "?" + urlencode({name: _text(value) for name, value in query.items()})
        if operation in WHOLE:  # what else is asked for stands beside the map, or it is left out
            given = given.pop(WHOLE[operation], {}) | given
        body = rows if queried is None else json.dumps(given)
        answer = self._rest.ask(
            method.strip() or "POST", path, None if method[:3] == "GET" else body
        )
        if answer.status >= 300:
            return Told(None, answer.json["code"], answer.json["error"])
        if operation in WHOLE:
            return Told({WHOLE[operation]: answer.json})
        is_arrow = "arrow" in answer.headers.get("content-type", "")
        return Told(answer.rows if is_arrow else json.loads(answer.body or b"{}"))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(str, value))
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _called(space: Any, operation: str, request: dict[str, Any], rows: bytes | None) -> Told:
    """Call the method; its class may have fewer members than what it is made of, which is told."""
    method = getattr(space, operation)
    more = [rows or b""] if len(inspect.signature(method).parameters) > 1 else []
    asked, found = space.answers, list[Any]()
    space.answers = lambda *given: found.append(asked(*given)) or dict(found[0])
    try:
        method(request, *more)
    except spec_errors.LanceNamespaceError as error:
        return Told(None, int(error.code), str(error))
    finally:
        space.answers = asked
    return Told(found[0])


def _normal(told: Told, db: st.Store) -> Told:
    """Leave out what is of one store alone: where it lies, and when it was written."""
    root = str(db.path)
    return Told(_plain(told.answer, root), told.code, told.sentence.replace(root, "ROOT"))


_OF_ONE = (
    *("transaction_id", "timestamp_millis", "e_tag", "total_bytes", "size_bytes"),
    *("manifest_size", "manifestSize"),
)
_SHORT = {"count": int, "plan": str}


def _plain(value: Any, root: str) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(each, root) for each in value]
    if not isinstance(value, dict):
        return _text_of(value, root) if isinstance(value, str) else value
    if set(value) == {"data"}:  # in process rows are a member of the answer
        return _plain(pa.ipc.open_file(value["data"]).read_all().to_pylist(), root)
    for name, kind in _SHORT.items():  # REST sends these as they are
        if set(value) == {name} and isinstance(value[name], kind):
            return _plain(value[name], root)
    kept = {name: each for name, each in value.items() if name not in _OF_ONE}
    return {name: _plain(each, root) for name, each in kept.items()}


def _text_of(value: str, root: str) -> str:
    """Leave out the random part of a manifest's name."""
    text = value.replace(root, "ROOT").replace(root.removeprefix("/"), "ROOT")
    return text.partition("/_siltstone/")[0] if text.endswith(".manifest") else text


def filled(db: st.Store) -> None:
    """Make the tables that requests are about."""
    db.create_table("k", {"id": "int64", "v": "string"}, primary_key="id").upsert(ROWS)
    db.create_table("a.b.t", {"id": "int64", "v": "float64"}, primary_key="id")
    plain = db.create_table("p", {"id": "int64", "v": "string"})
    plain.append(ROWS)
    plain.append(ROWS)
    db.checkpoint()


@contextmanager
def three_ways(path: Path) -> Generator[ThreeWays]:
    """Yield three stores: of this process, joined, and behind REST."""
    with ExitStack() as held:
        first = held.enter_context(opened(path / "one"))
        second = held.enter_context(opened(path / "two"))
        joined = held.enter_context(joined_to(second))
        third, _, rest = held.enter_context(rest_of(path / "three"))
        stores = [first, second, third]
        for db in stores:
            filled(db)
        yield ThreeWays(stores, [SiltstoneNamespace(first), SiltstoneNamespace(joined)], rest)
