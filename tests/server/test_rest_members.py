"""No member of a request is passed over in silence: a route reads it, or refuses it by its name.

`members.kinds` says of each member which it is. Here the specification's own models, the document
of the routes, and the handlers are compared with it.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec
import pyarrow as pa
import pydantic
import pytest
from lance_namespace_urllib3_client import models

from siltstone.errors import SiltstoneError
from siltstone.lance_namespace.operations import OPERATIONS
from siltstone.lance_namespace.specification import bodies, members
from siltstone.lance_namespace.specification.bodies import TableOperation
from siltstone.lance_namespace.specification.members import (
    HINT,
    NOT_OFFERED,
    AnyMembers,
    RequestPart,
    kinds,
)
from siltstone.server.http.replies import Pieces, Reply
from siltstone.server.http.route import ARROW, JSON, Route
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.server import RestServer
from siltstone.server.rest.tokens import LOCAL
from tests.server.asked import ASKED, VECTORS, route_of
from tests.server.rest import Rest, rest_of, stream_of

SPECIFIED: dict[str, str] = {
    "table/{id}/add_columns": "AlterTableAddColumnsRequest",
    "table/{id}/alter_columns": "AlterTableAlterColumnsRequest",
    "table/{id}/drop_columns": "AlterTableDropColumnsRequest",
    "table/{id}/update_field_metadata": "UpdateFieldMetadataRequest",
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
    """The routes that take JSON with members and do something."""
    return [r for r in service.routes if r.takes == JSON and has_members(r)]


def has_members(route: Route) -> bool:
    """Say whether a body has members of its own: it is not refused as it is, and no map."""
    return route.request is not AnyMembers and get_origin(route.request) is not dict


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
    is_of_pairs = schema.get("items", {}).get("type") == "array"
    return [["a", "b"]] if is_of_pairs else kinds_of[schema["type"]]


_VALUES: dict[str, list[dict[str, Any]]] = {
    "NewColumn": [{"name": "a"}],
    "ColumnAlteration": [{"path": "a"}],
    "FieldMetadata": [{"path": "a", "metadata": {}}],
    "TransactionAction": [{}],
    "VersionRange": [{}],
    "CreateVersionRequest": [{"version": 1, "manifest_path": "a"}],
    "TableOperation": [{}],
}


# what the handlers read


class Reads:
    """What one handler read: members of typed requests, and names in a query."""

    def __init__(self) -> None:
        self.members: set[tuple[type[msgspec.Struct], str]] = set()
        self.query: set[str] = set()

    def add(self, other: Reads) -> None:
        self.members |= other.members
        self.query |= other.query


class Noted(dict[str, Any]):
    """A mapping that says which of its names were asked for."""

    def __init__(self, given: dict[str, Any], note: Callable[[str], object]) -> None:
        super().__init__(given)
        self._note = note

    def __getitem__(self, name: str) -> Any:
        self._note(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self._note(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._note(name)
        return super().get(name, default)

    def items(self) -> Any:
        for name in self:
            self._note(name)
        return super().items()


def part_in(kind: Any) -> type[msgspec.Struct] | None:
    """The type of an object inside of a member's type, in a list or alone."""
    if inspect.isclass(kind) and issubclass(kind, msgspec.Struct):
        return kind
    return next((found for each in get_args(kind) if (found := part_in(each)) is not None), None)


class Recorder:
    """Runs handlers with requests that note what is read of them."""

    def __init__(self, routes: list[Route], monkeypatch: pytest.MonkeyPatch) -> None:
        self.routes, self.now = routes, Reads()
        self.read: dict[tuple[str, str], Reads] = {}

        def attribute(part: Any, name: str) -> Any:
            found = object.__getattribute__(part, name)
            if name in type(part).__struct_fields__:
                self.now.members.add((type(part), name))
            return found

        monkeypatch.setattr(RequestPart, "__getattribute__", attribute)

    def ask(self, method: str, address: str, body: object) -> Any:
        """Run the handler of one request; what it refuses it has read before."""
        path, _, query = address.partition("?")
        route = route_of(self.routes, method, path)
        fit = re.fullmatch(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", route.path), path)
        assert fit is not None
        self.now = Reads()
        given = Noted(dict(parse_qsl(query)), self.now.query.add)
        content = stream_of(body) if isinstance(body, pa.Table) else json.dumps(body or {}).encode()
        call = RestCall(fit.groupdict(), given, {}, content, LOCAL, route.request)
        try:
            reply = route.handler(call)
        except SiltstoneError:
            reply = Reply(b"")
        if isinstance(reply.body, Pieces):
            list(reply.body.chunks)
            reply.body.close()
        self.read.setdefault((method, route.path), Reads()).add(self.now)
        return reply.body


NEAREST = {
    "vector": [1.0, 2.0],
    "vector_column": "e",
    "distance_type": "l2",
    "lower_bound": 0.0,
    "upper_bound": 9.0,
    "filter": "id > 0",
    "prefilter": False,
}
IN_PARTS = {"vector": {"single_vector": [1.0, 2.0]}}
ORDERED = {"order_by": [{"column_name": "id", "ascending": True}]}
WORD = {"terms": "a", "column": "e", "boost": 1.0, "fuzziness": 1, "operator": "And"}
TEXTS: list[dict[str, Any]] = [
    {"string_query": {"query": "a", "columns": ["e"]}},
    {"structured_query": {"query": {"match": WORD}}},
    {"query": {"phrase": {"terms": "a", "column": "e"}}},
    {"query": {"multi_match": {"match_queries": [WORD]}}},
    {"query": {"multi_match": {"query": "a", "columns": ["e"], "boost": [1.0]}}},
]
WORDS = [{"full_text_query": each} for each in TEXTS]
STAGED = {"version": 2, "manifest_path": "x", "manifest_size": 1}
ALSO_ASKED: list[tuple[str, str, object]] = [
    *(
        ("POST", f"/v1/table/near/{verb}", body)
        for verb in ("query", "scan", "explain_plan", "analyze_plan")
        for body in (NEAREST, IN_PARTS, ORDERED, *WORDS)
    ),
    *(
        ("POST", f"/v1/table/near/{verb}", {"query": body})
        for verb in ("explain_plan", "analyze_plan")
        for body in (NEAREST, IN_PARTS, ORDERED, *WORDS)
    ),
    ("GET", "/metrics", None),
    ("GET", "/v1/changes?tables=t", None),
    ("GET", "/v1/follow?tables=t&since=99999", None),  # refused: else it would not end
    ("GET", "/v1/diff?a=1&tables=t", None),
    ("POST", "/v1/sql", {"sql": "select ?", "parameters": [1]}),
    ("POST", "/v1/table/plain/version/create", {"id": ["plain"], **STAGED}),
    ("POST", "/v1/table/version/batch-create", {"entries": [{"id": ["plain"], **STAGED}]}),
    *(
        ("POST", "/v1/table/batch-commit", {"operations": [operation]})
        for operation in (
            {"declare_table": {"id": ["d"]}},
            {"create_table_version": {"id": ["plain"], **STAGED}},
            {"delete_table_versions": {"id": ["plain"], "ranges": [{"end_version": 1}]}},
            {"deregister_table": {"id": ["d"]}},
        )
    ),
    *(
        ("POST", "/v1/transaction/apply", {"ops": [{"op": op, "table": "t", "rows": [{"id": 1}]}]})
        for op in ("upsert", "insert", "update_many", "append", "overwrite")
    ),
    (
        "POST",
        "/v1/transaction/apply",
        {"ops": [{"op": "update_where", "table": "t", "filter": "id = 1", "values": {}}]},
    ),
    ("POST", "/v1/table/t/tags/list?limit=1", {"page_token": "0"}),
    ("POST", "/v1/namespace/gone/drop", {"mode": "skip", "behavior": "restrict"}),
]


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """Every route was asked."""
    with rest_of(tmp_path / "shop") as (db, service, _):
        db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        db.create_table("plain", {"id": "int64"}).append([{"id": 1}])
        db.create_table("near", data=VECTORS, primary_key="id")
        recorder = Recorder(service.routes, monkeypatch)
        key = ""
        for method, path, body in (*ALSO_ASKED, *ASKED):
            found = recorder.ask(method, path.format(key=key), body)
            key = found.id if isinstance(getattr(found, "id", None), str) else key
        yield recorder


def test_every_declared_member_is_read_by_the_handler_of_its_own_route(recorder: Recorder) -> None:
    for route in recorder.routes:
        if not has_members(route):
            continue
        read = recorder.read[route.method, route.path]
        hints = {name for name, kind in _kinds_of(route).items() if kind == HINT}
        operation = SPECIFIED_BY.get(f"{route.method} {route.path}")
        if operation is not None:  # each parameter is a member, or stands for one
            assert set(route.query) - NO_MEMBERS <= names_in(operation.request), route.path
        else:
            assert set(route.query) - hints <= read.query | {"branch"}, route.path
        if route.request is None:
            continue
        for part in parts_of(route.request):
            declared = {name for name, kind in kinds(part).items() if kind is None}
            declared -= {"branch"}  # `RestCall.check` refuses another one, see the next test
            unread = declared - {name for kind, name in read.members if kind is part}
            assert not unread, (route.path, part)


SPECIFIED_BY = {operation.where: operation for operation in OPERATIONS.values()}
NO_MEMBERS = {"delimiter", "primary_key"}


def names_in(request: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(request)}


def _kinds_of(route: Route) -> dict[str, str | None]:
    has_none = route.request is None or not has_members(route)
    return {} if has_none else kinds(route.request)


def test_every_route_refuses_a_branch_wherever_it_may_be_named(served: Any) -> None:
    service, rest = served
    for route in service.routes:
        path = route.path.replace("{id}", "none").replace("{name}", "none")
        if "branch" in route.query:
            query = "branch=b&on=id" if "on" in route.query else "branch=b"
            rows = pa.table({"id": [1]}) if route.takes == ARROW else None
            assert rest.post(f"{path}?{query}", rows).code == (406, 0), path
        if "branch" in _kinds_of(route):
            fields = msgspec.structs.fields(route.request)
            whole = {f.encode_name: _value(f.type) for f in fields if f.required}
            answer = rest.post(path, {**whole, "branch": "b"})
            assert answer.code == (406, 0), path
            assert "'b'" in answer.json["error"], path
    inner = {"branch": "b", "id": ["t"], "ranges": [{}], **STAGED}
    asked: list[tuple[str, dict[str, Any]]] = [
        ("none/explain_plan", {"query": {"branch": "b"}}),
        ("version/batch-create", {"entries": [{"branch": "b", "id": ["t"], **STAGED}]}),
    ]
    for field in msgspec.structs.fields(TableOperation):
        part = part_in(field.type)
        assert part is not None
        known = {f.encode_name for f in msgspec.structs.fields(part)}
        operation = {name: value for name, value in inner.items() if name in known}
        asked.append(("batch-commit", {"operations": [{field.name: operation}]}))
    for path, body in asked:
        answer = rest.post(f"/v1/table/{path}", body)
        assert answer.code == (406, 0), (path, body, answer.body)


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
    rest = served[1]
    rows = pa.table({"id": [1]})
    made = rest.post('/v1/table/x/create?properties={"owner":"me"}', rows)
    assert made.code == (406, 0)
    assert "owner" in made.json["error"]
    stored = rest.post('/v1/table/x/create?storage_options={"a":"b"}', rows)
    assert stored.code == (406, 0)


def test_the_members_of_a_request_are_looked_up_once_for_its_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each look reads and compiles the hints of the class; a query has thirty members."""
    looks: list[type] = []
    fields = members.fields

    def counted(of: type | msgspec.Struct) -> object:
        looks.append(of if isinstance(of, type) else type(of))
        return fields(of)

    monkeypatch.setattr(members, "fields", counted)
    members.not_offered(bodies.QueryRequest(filter="id = 1", k=1))
    looks.clear()
    assert members.not_offered(bodies.QueryRequest(filter="id = 2", k=1)) is None
    assert members.not_offered(bodies.QueryRequest(identity={"a": 1})) == "identity"
    assert looks == []
