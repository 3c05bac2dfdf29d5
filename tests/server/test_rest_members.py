"""No member of a request is passed over in silence: a route reads it, or refuses it by its name.

`members.kinds` says of each member which it is. Here the specification's own models, the document
of the routes, and the handlers are compared with it.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pydantic
import pytest
from lance_namespace_urllib3_client import models

import siltstone as st
from siltstone.lance_namespace.rows.members import NOT_OFFERED, AnyMembers, RequestPart, kinds
from siltstone.server.http.route import JSON, Route
from siltstone.server.rest.server import RestServer
from tests.server.rest import Rest, rest_of

SOURCE = Path(inspect.getfile(st)).parent
SPECIFIED: dict[str, str] = {
    "table/{id}/add_columns": "AlterTableAddColumnsRequest",
    "table/{id}/alter_columns": "AlterTableAlterColumnsRequest",
    "table/{id}/drop_columns": "AlterTableDropColumnsRequest",
    "table/{id}/analyze_plan": "AnalyzeTableQueryPlanRequest",
    "table/{id}/explain_plan": "ExplainTableQueryPlanRequest",
    "table/{id}/query": "QueryTableRequest",
    "table/{id}/count_rows": "CountTableRowsRequest",
    "table/{id}/create": "CreateTableRequest",
    "table/{id}/create_index": "CreateTableIndexRequest",
    "table/{id}/create_scalar_index": "CreateTableIndexRequest",
    "table/{id}/index/list": "ListTableIndicesRequest",
    "table/{id}/index/{name}/stats": "DescribeTableIndexStatsRequest",
    "table/{id}/index/{name}/drop": "DropTableIndexRequest",
    "table/{id}/tags/create": "CreateTableTagRequest",
    "table/{id}/tags/update": "UpdateTableTagRequest",
    "table/{id}/tags/delete": "DeleteTableTagRequest",
    "table/{id}/tags/version": "GetTableTagVersionRequest",
    "table/{id}/tags/list": "ListTableTagsRequest",
    "table/{id}/version/create": "CreateTableVersionRequest",
    "table/{id}/version/describe": "DescribeTableVersionRequest",
    "table/{id}/version/list": "ListTableVersionsRequest",
    "table/{id}/version/delete": "BatchDeleteTableVersionsRequest",
    "table/version/batch-create": "BatchCreateTableVersionsRequest",
    "table/batch-commit": "BatchCommitTablesRequest",
    "table/{id}/declare": "DeclareTableRequest",
    "table/{id}/deregister": "DeregisterTableRequest",
    "table/{id}/describe": "DescribeTableRequest",
    "table/{id}/drop": "DropTableRequest",
    "table/{id}/exists": "TableExistsRequest",
    "table/{id}/stats": "GetTableStatsRequest",
    "table/{id}/insert": "InsertIntoTableRequest",
    "table/{id}/merge_insert": "MergeInsertIntoTableRequest",
    "table/{id}/update": "UpdateTableRequest",
    "table/{id}/delete": "DeleteFromTableRequest",
    "table/{id}/rename": "RenameTableRequest",
    "table/{id}/restore": "RestoreTableRequest",
    "table/{id}/branches/list": "ListTableBranchesRequest",
    "transaction/{id}/describe": "DescribeTransactionRequest",
    "transaction/{id}/alter": "AlterTransactionRequest",
    "namespace/{id}/describe": "DescribeNamespaceRequest",
    "namespace/{id}/exists": "NamespaceExistsRequest",
    "namespace/{id}/create": "CreateNamespaceRequest",
    "namespace/{id}/drop": "DropNamespaceRequest",
    "namespace/{id}/list": "ListNamespacesRequest",
    "namespace/{id}/table/list": "ListTablesRequest",
}
IN_HEADERS_AND_PATH = {"identity", "context", "id"}
"""Of a request without a JSON body these have no other place."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RestServer, Rest]]:
    with rest_of(tmp_path_factory.mktemp("members") / "shop") as (_, service, rest):
        yield service, rest


def offered(service: RestServer) -> list[Route]:
    """The routes that take JSON and do something."""
    return [r for r in service.routes if r.takes == JSON and r.request is not AnyMembers]


def parts_of(request: type[msgspec.Struct]) -> set[type[msgspec.Struct]]:
    """The types of a body: its own and those inside of it."""
    found: set[type[msgspec.Struct]] = {request}
    left = [field.type for field in msgspec.structs.fields(request)]
    while left:
        kind = left.pop()
        if inspect.isclass(kind) and issubclass(kind, msgspec.Struct) and kind not in found:
            found.add(kind)
            left += [field.type for field in msgspec.structs.fields(kind)]
        left += get_args(kind)
    return found


def names_of(model: str) -> set[str]:
    kind: type[pydantic.BaseModel] = getattr(models, model)
    return {field.alias or name for name, field in kind.model_fields.items()}


def test_every_member_of_the_specification_is_known_to_its_route(served: Any) -> None:
    routes = {route.path.removeprefix("/v1/"): route for route in served[0].routes}
    for path, model in SPECIFIED.items():
        route = routes[path]
        known = set(route.query)
        if route.request is None:
            known |= IN_HEADERS_AND_PATH
        else:
            known |= {field.encode_name for field in msgspec.structs.fields(route.request)}
        # Of an index it stands in the path alone, as `name`.
        assert names_of(model) <= known, path


def test_every_body_refuses_members_that_it_does_not_have(served: Any) -> None:
    service, rest = served
    for route in offered(service):
        for part in parts_of(route.request):
            assert issubclass(part, RequestPart), part
            assert part.__struct_config__.forbid_unknown_fields, part
        path = route.path.replace("{id}", "none").replace("{name}", "none")
        answer = rest.post(path, {"no_such_member": 1})
        assert answer.status == 400, path
        assert "no_such_member" in answer.json["error"] or "required" in answer.json["error"], path


def test_every_query_refuses_parameters_that_its_route_does_not_read(served: Any) -> None:
    service, rest = served
    for route in service.routes:
        path = route.path.replace("{id}", "none").replace("{name}", "none")
        answer = rest.ask(route.method, f"{path}?no_such_parameter=1")
        assert answer.code == (400, 13), path
        assert "no_such_parameter" in answer.json["error"], path


def test_every_member_that_is_not_offered_is_refused_by_its_name(served: Any) -> None:
    service, rest = served
    for route in offered(service):
        fields = msgspec.structs.fields(route.request)
        whole = {f.encode_name: _value(f.type) for f in fields if f.required}
        for field in fields:
            if kinds(route.request)[field.name] != NOT_OFFERED:
                continue
            path = route.path.replace("{id}", "none").replace("{name}", "none")
            answer = rest.post(path, {**whole, field.encode_name: True})
            assert answer.code == (406, 0), (path, field.encode_name, answer.body)
            assert field.encode_name in answer.json["error"], path


def _value(kind: Any) -> object:
    """Return some value of a member that must be there."""
    schema = msgspec.json.schema(kind)
    if schema.get("type") == "array" and "$ref" in schema["items"]:
        return _VALUES[schema["items"]["$ref"].rpartition("/")[2]]
    kinds_of = {"string": "a", "integer": 1, "array": ["a"], "object": {}}
    return [["a", "b"]] if "prefixItems" in json.dumps(schema) else kinds_of[schema["type"]]


_VALUES: dict[str, list[dict[str, Any]]] = {
    "NewColumn": [{"name": "a"}],
    "ColumnAlteration": [{"path": "a"}],
    "TransactionAction": [{}],
    "VersionRange": [{}],
    "CreateVersionRequest": [{"version": 1, "manifest_path": "a"}],
    "TableOperation": [{}],
}


def words_of(path: Path) -> Iterator[str]:
    """Yield the attributes that a module reads, and its constants."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_every_other_member_is_read_by_some_handler(served: Any) -> None:
    sources = {*SOURCE.glob("server/rest/*.py"), *SOURCE.glob("lance_namespace/**/*.py")}
    types = {"schemas.py", "bodies.py", "members.py", "row_operations.py"}
    read = {word for path in sources if path.name not in types for word in words_of(path)}
    for route in offered(served[0]):
        for part in parts_of(route.request):
            wanted = {name for name, kind in kinds(part).items() if kind is None}
            assert wanted <= read, route.path


def test_an_operation_of_apply_has_the_members_that_it_reads(served: Any) -> None:
    rest = served[1]
    for operation in (
        {"op": "truncate", "table": "t", "filter": "id = 1"},
        {"op": "delete_where", "table": "t", "filter": "true", "keys": [1]},
        {"op": "upsert", "table": "t", "rows": [], "key": 1},
    ):
        answer = rest.post("/v1/transaction/apply", {"ops": [operation]})
        assert answer.code == (400, 13)
        assert any(name in answer.json["error"] for name in ("filter", "keys", "key"))


def test_an_index_refuses_what_it_would_not_be_built_with(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop") as (db, _, rest):
        db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        for words, code in (
            ({"index_type": "BTREE", "num_partitions": 4}, (400, 13)),
            ({"index_type": "IVF_PQ", "stem": True}, (400, 13)),
            ({"index_type": "FTS", "max_token_length": 41}, (400, 13)),
            ({"index_type": "FTS", "custom_stop_words": ["a"]}, (406, 0)),
            ({"index_type": "BTREE", "replace": True}, (406, 0)),
        ):
            answer = rest.post("/v1/table/t/create_index", {"column": "v", **words})
            assert answer.code == code, words
            assert next(name for name in words if name != "index_type") in answer.json["error"]
        assert db["t"].indexes() == [] or len(db["t"].indexes()) <= 1


def test_properties_that_no_table_has_are_refused_by_their_names(served: Any) -> None:
    import pyarrow as pa

    rest = served[1]
    rows = pa.table({"id": [1]})
    made = rest.post('/v1/table/x/create?properties={"owner":"me"}', rows)
    assert made.code == (406, 0)
    assert "owner" in made.json["error"]
    stored = rest.post('/v1/table/x/create?storage_options={"a":"b"}', rows)
    assert stored.code == (406, 0)
