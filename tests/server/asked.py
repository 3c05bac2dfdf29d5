"""Requests for every route of REST, in an order in which each of them is answered."""

from __future__ import annotations

import re

import pyarrow as pa

from siltstone.lance_namespace.operations import REFUSED
from siltstone.server.http.route import Route

ROWS = pa.table({"id": [1, 2], "v": [10, 20]})
VECTORS = pa.table({"id": [1], "e": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))})
NOT_OFFERED = {f"/v1/{each.path}": each.reason for each in REFUSED.values() if each.path}
"""The routes that refuse whatever they are asked, and why."""
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
    ("POST", "/v1/table/made/alter_columns",
     {"alterations": [{"path": "w", "rename": "x", "data_type": {"type": "string"}}]}),
    ("POST", "/v1/table/made/drop_columns", {"columns": ["x"]}),
    ("POST", "/v1/table/made/schema_metadata/update", {"owner": "us"}),
    ("POST", "/v1/table/made/update_field_metadata",
     {"updates": [{"path": "v", "metadata": {"a": "1", "b": None}, "replace": True}]}),
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
    ("GET", "/v1/log?limit=2", None),
    ("GET", "/v1/records?limit=2&before=9", None),
    ("GET", "/v1/jobs/{key}", None),
    ("GET", "/v1/jobs", None),
]  # fmt: skip
NOT_ASKED = {
    *("/metrics", "/v1/changes", "/v1/table/{id}/query", "/v1/table/{id}/scan"),  # no JSON
    *("/v1/diff", "/v1/sql", "/v1/follow"),  # as above
    "/v1/namespace/{id}/drop",  # is always refused
    *("/v1/table/{id}/version/create", "/v1/table/version/batch-create"),  # of staged files
}


def route_of(routes: list[Route], method: str, path: str) -> Route:
    """Return the route of a path; one with a word in its place goes before one with any."""
    found = [
        route
        for route in routes
        if route.method == method
        and re.fullmatch(re.sub(r"{\w+}", "[^/]+", route.path), path.replace("{key}", "key"))
    ]
    return min(found, key=lambda route: route.path.count("{"))
