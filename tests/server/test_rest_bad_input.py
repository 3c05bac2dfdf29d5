"""What is wrong is refused with the specification's code, in one sentence; nothing changed."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.lance_namespace.specification.members import AnyMembers
from siltstone.server.rest.server import RestServer
from siltstone.server.rest.wire import VERSIONS
from tests.server.rest import Rest, rest_of, stream_of

Served = tuple[st.Store, RestServer, Rest]
ROWS = pa.table({"id": [1, 2], "v": ["a", "b"]})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with rest_of(tmp_path_factory.mktemp("bad") / "shop") as found:
        db = found[0]
        db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        db["t"].upsert(ROWS)
        db.create_table("p", {"id": "int64", "v": "string"})
        db["p"].append(ROWS)
        db.create_table("vectors", {"id": "int64", "e": pa.list_(pa.float32(), 2)})
        db.create_table("near", {"id": "int64", "e": pa.list_(pa.float32(), 2)}, primary_key="id")
        db.create_table("team.blue.t", {"id": "int64"})
        yield found


@pytest.fixture(autouse=True)
def _unchanged(served: Served) -> Iterator[None]:
    db = served[0]
    before, tables = db.seq, db.tables()
    yield
    assert (db.seq, db.tables()) == (before, tables)


HEADERS = ("x-siltstone-txn", "x-siltstone-snapshot", "x-siltstone-token", "x-siltstone-keyed")
STATEMENTS: list[tuple[str, object]] = [
    ("table/p/insert", ROWS),
    ("table/p/count_rows", {}),
    ("table/p/delete", {"predicate": "id = 1"}),
    ("transaction/apply", {"ops": [{"table": "t", "op": "upsert", "rows": [{"id": 9}]}]}),
    ("transaction/begin", {}),
]


def _asked(served: Served, path: str, body: object, *headers: tuple[str, str]) -> tuple[int, str]:
    """Send headers as they stand, also twice; return the status and the error."""
    connection = http.client.HTTPConnection("127.0.0.1", served[1].port, timeout=60)
    with closing(connection):
        sent = stream_of(body) if isinstance(body, pa.Table) else json.dumps(body).encode()
        connection.putrequest("POST", f"/v1/{path}")
        for name, value in (*headers, ("content-length", str(len(sent)))):
            connection.putheader(name, value)
        connection.endheaders(sent)
        response = connection.getresponse()
        return response.status, json.loads(response.read()).get("error", "")


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize(("path", "body"), STATEMENTS)
def test_a_header_of_ours_that_says_nothing_or_says_it_twice_is_refused(
    served: Served, header: str, path: str, body: object
) -> None:
    for value in ("", " "):
        told = _asked(served, path, body, (header, value))
        assert told == (400, f"the header {header} is empty: leave it out, or say what it is")
    told = _asked(served, path, body, (header, "a/1"), (header.upper(), "a/1"))
    assert told == (400, f"the header {header} is given twice")
    assert served[1].sessions.count == 0


@pytest.mark.parametrize("header", ["x-siltstone-tx", "X-Siltstone-Seq", "x-siltstone-"])
def test_a_header_that_is_none_of_ours_is_refused_by_its_name(served: Served, header: str) -> None:
    status, error = _asked(served, "table/p/insert", ROWS, (header, "1"))
    assert status == 400
    assert error == f"there is no header {header.lower()}; ours are {', '.join(HEADERS)}"


IN_JSON: list[tuple[str, object, tuple[int, int]]] = [
    ("table/none/describe", {}, (404, 4)),
    ("table/none/query", {"k": 1}, (404, 4)),
    ("table/none/drop", None, (404, 4)),
    ("table/none/exists", None, (404, 4)),
    ("table/a$t/describe", {}, (404, 4)),
    ("namespace/a/describe", {}, (404, 1)),
    ("namespace/a/exists", {}, (404, 1)),
    ("namespace/$/drop", {}, (400, 13)),
    ("namespace/$/create", {}, (409, 2)),
    ("table/$/describe", {}, (404, 4)),
    ("table/t/describe", {"id": ["p"]}, (400, 13)),
    ("table/t/describe", {"id": "t"}, (400, 13)),
    ("table/t/query", {"version": 99}, (404, 11)),
    ("table/t/restore", {"version": 99}, (404, 11)),
    ("table/p/restore", {"version": 99}, (404, 11)),
    ("table/p/restore", {}, (400, 13)),
    ("table/p/restore", {"version": 1, "branch": "b"}, (406, 0)),
    ("table/p/query", {"version": 99}, (404, 11)),
    ("table/t/query", {"version": "new"}, (400, 13)),
    ("table/t/query", {"filter": "id >"}, (400, 13)),
    ("table/t/query", {"filter": "id = (select 1)"}, (400, 13)),
    ("table/t/query", {"filter": "nothing = 1"}, (400, 13)),
    ("table/t/query", {"filter": 5}, (400, 13)),
    ("table/t/query", {"columns": ["nothing"]}, (400, 20)),
    ("table/t/query", {"columns": "id"}, (400, 13)),
    ("table/t/query", {"k": -1}, (400, 13)),
    ("table/t/query", {"k": 1, "vector": [1.0]}, (400, 13)),
    ("table/t/query", {"k": 1, "full_text_query": {"query": "x"}}, (400, 13)),
    ("table/t/query", {"k": 1, "full_text_query": {"string_query": {"query": "x"}}}, (400, 13)),
    ("table/t/query", {"k": 1, "full_text_query": {"query": {"boolean": {"must": []}}}}, (406, 0)),
    ("table/vectors/query", {"k": 1, "vector": [1.0]}, (400, 13)),
    ("table/vectors/query", {"k": 1, "vector": [1.0, 2.0], "distance_type": "far"}, (400, 13)),
    ("table/vectors/query", {"k": 1, "vector": [1.0, 2.0], "vector_column": "x"}, (404, 12)),
    ("table/t/count_rows", {"predicate": "id >"}, (400, 13)),
    ("table/t/update", {"updates": [["nothing", "1"]]}, (404, 12)),
    ("table/t/update", {"updates": [["id", "1"]]}, (400, 13)),
    ("table/t/update", {"updates": [["v", "1 +"]]}, (400, 13)),
    ("table/t/update", {"updates": []}, (400, 13)),
    ("table/t/update", {"updates": [["v", "'a'"], ["v", "'b'"]]}, (400, 13)),
    ("table/t/update", {"predicate": "v >", "updates": [["v", "'a'"]]}, (400, 13)),
    ("table/t/update", {"updates": [["v", "'a'"]], "predicate": "id = 1", "only_if": "id = 2"},
     (400, 13)),
    ("table/near/create_index", {"column": "e", "index_type": "IVF_FLAT",
                                    "distance_type": "l2", "metric_type": "dot"}, (400, 13)),
    ("table/t/rename", {"new_table_name": "x", "new_namespace_id": ["a"], "new_namespace": ["b"]},
     (400, 13)),
    ("table/t/delete", {}, (400, 13)),
    ("table/t/delete", {"predicate": "drop table t"}, (400, 13)),
    ("table/t/rename", {"new_table_name": "p"}, (409, 5)),
    ("table/t/rename", {"new_table_name": "../p"}, (400, 13)),
    ("table/t/rename", {}, (400, 13)),
    ("table/t/add_columns", {"new_columns": []}, (400, 13)),
    ("table/t/add_columns", {"new_columns": [{"name": "n", "expression": "NULL"}]}, (400, 13)),
    ("table/t/add_columns", {"new_columns": [{"name": "v", "expression": "1"}]}, (400, 20)),
    ("table/t/drop_columns", {"columns": ["id"]}, (400, 13)),
    ("table/t/drop_columns", {"columns": ["nothing"]}, (404, 12)),
    ("table/t/alter_columns", {"alterations": [{"path": "v", "data_type": "x"}]}, (400, 13)),
    ("table/t/alter_columns", {"alterations": [{"path": "id", "nullable": True}]}, (400, 13)),
    ("table/t/tags/version", {"tag": "none"}, (404, 8)),
    ("table/t/tags/create", {"tag": "x", "version": 99}, (404, 11)),
    ("table/t/tags/update", {"tag": "none", "version": 1}, (404, 8)),
    ("table/t/tags/delete", {"tag": "none"}, (404, 8)),
    ("table/t/register", {"location": "../../etc"}, (406, 0)),
    ("table/batch-commit", {"operations": []}, (400, 13)),
    ("transaction/none/commit", None, (404, 10)),
    ("transaction/none/rollback", None, (404, 10)),
    ("transaction/none/describe", None, (404, 10)),
    ("transaction/none/alter", {"actions": []}, (400, 13)),
    ("transaction/begin", {"isolation": "none"}, (400, 13)),
    ("transaction/begin", {"durability": 3}, (400, 13)),
    ("transaction/apply", {}, (400, 13)),
    ("transaction/apply", {"ops": []}, (400, 13)),
    ("transaction/apply", {"ops": [{"table": "t", "op": "explode"}]}, (400, 13)),
    ("transaction/apply", {"ops": [{"op": "upsert"}]}, (400, 13)),
    ("transaction/apply", {"ops": [{"table": "t", "op": "upsert", "rows": [{"x": 1}]}]}, (400, 20)),
    ("transaction/apply", {"ops": [{"table": "t", "op": "insert", "rows": [{"id": 1}]}]},
     (400, 13)),
    ("transaction/apply", {"ops": [{"table": "t", "op": "insert", "rows": [{"id": 7}]},
                                   {"table": "none", "op": "append", "rows": []}]}, (404, 4)),
    ("vacuum", {"dry_run": "no"}, (400, 13)),
    ("merge", {"table": 5}, (400, 13)),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "code"), IN_JSON)
def test_what_is_wrong_has_the_code_of_the_specification(
    served: Served, path: str, body: object, code: tuple[int, int]
) -> None:
    rest = served[2]
    assert rest.post(f"/v1/{path}", body).code == code


@pytest.mark.parametrize("body", [b"{", b"[]", b"5", b"\xff\xfe", b'{"a":' * 5_000])
def test_a_body_that_is_no_object_of_json_is_refused(served: Served, body: bytes) -> None:
    assert served[2].post("/v1/table/t/query", body).code == (400, 13)


def test_a_body_that_is_null_is_refused_by_every_route_that_takes_json(served: Served) -> None:
    _, service, rest = served
    asked = [r for r in service.routes if r.takes == "json" and r.path != VERSIONS]
    assert len(asked) > 50
    for route in asked:
        path = route.path.replace("{id}", "t").replace("{name}", "i")
        for body in (b"null", b" null\n"):
            assert rest.post(path, body).code == (400, 13), path


@pytest.mark.parametrize("body", [b'{"body": null}', b"[]", b"[{}]", b"7", b"0", b'""', b"true"])
def test_every_route_that_takes_a_body_refuses_one_that_says_nothing_it_knows(
    served: Served, body: bytes
) -> None:
    _, service, rest = served
    for route in service.routes:
        if route.takes == "nothing":
            continue
        path = route.path.replace("{id}", "t").replace("{name}", "i")
        answer = rest.post(path, body)
        is_refused_anyway = route.request is AnyMembers and body[:1] == b"{"
        assert answer.code == ((406, 0) if is_refused_anyway else (400, 13)), path


def _bodies() -> dict[str, bytes]:
    whole = stream_of(ROWS)
    lying = bytearray(whole)
    at = whole.index((16).to_bytes(8, "little"), 200)
    lying[at : at + 8] = (1 << 40).to_bytes(8, "little")
    flipped = bytearray(whole)
    flipped[-100:-60] = b"\xff" * 40
    return {
        "nothing": b"",
        "text": b"id,v\n1,a\n",
        "cut in the head": whole[:20],
        "cut in the rows": whole[:-40],
        "a length that lies": bytes(lying),
        "offsets outside": bytes(flipped),
        "zeros": bytes(1_000),
        "a large length": b"\xff\xff\xff\xff\xff\xff\xff\x7f" + bytes(100),
    }


@pytest.mark.parametrize("name", sorted(_bodies()))
@pytest.mark.parametrize("verb", ["t/insert", "p/insert", "t/merge_insert?on=id", "new/create"])
def test_a_body_that_is_no_arrow_stream_is_refused(served: Served, verb: str, name: str) -> None:
    assert served[2].post(f"/v1/table/{verb}", _bodies()[name]).code == (400, 13)


def test_rows_that_do_not_fit_are_refused(served: Served) -> None:
    rest = served[2]
    other = pa.table({"id": [1], "w": ["a"]})
    wrong = pa.table({"id": ["x"], "v": ["a"]})
    for rows in (other, wrong):
        assert rest.post("/v1/table/p/insert", rows).code == (400, 20)
        assert rest.post("/v1/table/t/insert", rows).code == (400, 20)
    assert rest.post("/v1/table/t/insert", ROWS).code == (400, 13)  # the keys live already
    merge = "/v1/table/{}/merge_insert?when_matched_update_all=true&on={}"
    assert rest.post(merge.format("t", "v"), ROWS).code == (400, 13)
    assert rest.post(merge.format("p", "nothing"), ROWS).code == (404, 12)
    assert rest.post(merge.format("p", "v"), pa.table({"id": [1]})).code == (400, 20)
    same = pa.table({"id": [5, 6, 7], "v": ["a", "a", None]})
    assert rest.post(merge.format("p", "v"), same).code == (400, 13)
    assert rest.post("/v1/table/t/merge_insert", ROWS).code == (400, 13)
    twice = pa.table({"id": [5, 5], "v": ["a", "b"]})
    assert rest.post(merge.format("t", "id"), twice).code == (400, 13)
    assert rest.post("/v1/table/t/insert?mode=explode", ROWS).code == (400, 13)
    assert rest.post("/v1/table/t/create", ROWS).code == (409, 5)
    assert rest.post("/v1/table/x/create?mode=explode", ROWS).code == (400, 13)
    assert rest.post("/v1/table/x/create?primary_key=nothing", ROWS).code[0] == 400


BAD_NAMES = (
    *("..", ".hidden", "_x", "a%2Fb", "a%20b", "x" * 300, "%2e%2e%2fetc", "a%0Ab", "na%C3%AFve"),
    *("$t", "a$$t", "a$b.c", "%24$t", "a%24.b$t", "$".join("a" * 1_000)),
)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_an_id_that_no_table_has_is_refused_in_words(served: Served, name: str) -> None:
    rest = served[2]
    assert rest.post(f"/v1/table/{name}/create", ROWS).code == (400, 13)
    assert rest.post(f"/v1/table/{name}/declare", {}).code == (400, 13)
    for verb in ("describe", "count_rows", "drop", "version/list", "index/list"):
        assert rest.post(f"/v1/table/{name}/{verb}", {}).code in {(400, 13), (404, 4)}, verb
    for verb in ("create", "drop", "describe"):
        assert rest.post(f"/v1/namespace/{name}/{verb}", {}).code in {(400, 13), (404, 1)}, verb


LONG: list[tuple[str, object]] = [
    ("query", {"columns": [f"c{number}" for number in range(10_000)]}),
    ("query", {"columns": {f"c{number}": "nothing" for number in range(10_000)}}),
    ("query", {"filter": "(" * 5_000 + "id = 1" + ")" * 5_000}),
    ("query", {"filter": " OR ".join(["nothing = 1"] * 10_000)}),
    ("query", {"filter": f"{'x' * 10_000} = 1"}),
    ("update", {"updates": [[f"c{number}", "1"] for number in range(10_000)]}),
    ("drop_columns", {"columns": [f"c{number}" for number in range(10_000)]}),
    ("add_columns", {"new_columns": [{"name": "x" * 10_000, "expression": "1"}]}),
    ("add_columns", {"new_columns": [
        {"name": f"c{number}", "expression": "1"} for number in range(5_000)]}),
    ("alter_columns", {"alterations": [{"path": "v", "rename": "x" * 10_000}]}),
    ("rename", {"new_table_name": "t", "new_namespace_id": ["a"] * 1_000}),
    ("query", {"k": 1, "vector": [1.0] * 10_000}),
    ("create_index", {"column": "x" * 10_000, "index_type": "BTREE"}),
    ("tags/create", {"tag": "x" * 10_000, "version": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("verb", "body"), LONG)
def test_what_is_too_long_is_refused_in_one_sentence(
    served: Served, verb: str, body: object
) -> None:
    answer = served[2].post(f"/v1/table/t/{verb}", body)
    assert answer.code[0] in {400, 404}
    assert len(answer.json["error"]) <= 2_000


def test_a_body_with_ten_thousand_columns_is_refused(served: Served) -> None:
    rest = served[2]
    wide = pa.table({f"c{number}": [number] for number in range(10_000)})
    for verb in ("new/create", "t/insert", "p/insert?mode=overwrite", "t/merge_insert?on=id"):
        answer = rest.post(f"/v1/table/{verb}", wide)
        assert answer.code == (400, 13)
        assert answer.json["error"] == "a body has at most 4000 columns"


def test_a_client_of_an_older_version_is_answered_or_told_what_it_may_say(served: Served) -> None:
    """It leaves out members that came later, and names its version in a header."""
    rest, old = served[2], {"x_lance_api_version": "0.1", "user_agent": "lancedb/0.1"}
    for verb in ("describe", "exists", "count_rows", "version/list", "tags/list", "stats"):
        for body in (None, {}, {"id": ["p"]}):
            assert rest.post(f"/v1/table/p/{verb}", body, **old).status == 200, (verb, body)
    for query in ({}, {"k": 1}, {"columns": ["id"]}, {"filter": "id = 1", "vector": []}):
        assert rest.post("/v1/table/p/query", query, **old).status == 200, query
    asked = rest.post("/v1/table/p/count_rows?api_version=0.1&detailed=true", {}, **old)
    assert asked.code == (400, 13)
    assert asked.json["error"] == (
        "/v1/table/{id}/count_rows reads ['delimiter'] of a query, not ['api_version', 'detailed']"
    )
    newer = rest.post("/v1/table/p/count_rows", {"predicate": "true", "consistency": "strong"})
    assert newer.code == (400, 13)
    assert "consistency" in newer.json["error"]


MISTYPED: list[tuple[str, object, str]] = [
    ("table/vectors/update", {"updates": [["e_", "1"]]}, "no column 'e_'; did you mean 'e'?"),
    ("table/t/drop_columns", {"columns": ["ID"]}, "no column 'ID'; did you mean 'id'?"),
    ("table/t/create_index", {"column": "ids", "index_type": "BTREE"}, "did you mean 'id'?"),
    ("table/vectors/query", {"vector": [1.0, 2.0], "vector_column": "ee"}, "did you mean 'e'?"),
    ("table/vector/describe", {}, "no table 'vector'; did you mean 'vectors'?"),
    ("table/t/tags/version", {"tag": "none"}, "no tag 'none'; there are no tags"),
    ("table/t/index/none/stats", {}, "no index 'none'; there are no indexes"),
    ("namespace/team$blu/describe", {}, "no namespace 'team.blu'; did you mean 'team.blue'"),
    ("namespace/team$bleu$x/create", {}, "no namespace 'team.bleu'; did you mean 'team.blue'"),
    ("namespace/team$blues/drop", {}, "no namespace 'team.blues'; did you mean 'team.blue'"),
]


@pytest.mark.parametrize(("path", "body", "words"), MISTYPED)
def test_a_mistyped_name_is_answered_with_the_one_that_is_like_it(
    served: Served, path: str, body: object, words: str
) -> None:
    answer = served[2].post(f"/v1/{path}", body)
    assert answer.code[0] == 404
    assert words in answer.json["error"]


def test_headers_that_are_wrong_are_refused(served: Served) -> None:
    rest = served[2]
    count = "/v1/table/t/count_rows"
    assert rest.post(count, {}, x_siltstone_txn="t1-nobody").code == (404, 10)
    assert rest.post(count, {}, x_siltstone_snapshot="seq:99").code == (404, 11)
    assert rest.post(count, {}, x_siltstone_snapshot="record:99").code == (404, 11)
    assert rest.post(count, {}, x_siltstone_snapshot="tag:none").code == (400, 13)
    assert rest.post(count, {}, x_siltstone_snapshot="at:yesterday").code == (400, 13)
    assert rest.post(count, {}, x_siltstone_snapshot="now").code == (400, 13)
    delete = {"predicate": "true"}
    past = rest.post("/v1/table/t/delete", delete, x_siltstone_snapshot="seq:1")
    assert past.code == (403, 15)
    token = rest.post("/v1/table/t/delete", delete, x_siltstone_token="app")
    assert token.code == (400, 13)
    assert rest.get("/v1/changes?since=x").code == (400, 13)
    assert rest.get("/v1/changes?since=99").code == (404, 11)
    assert rest.get("/v1/changes?tables=none").code == (404, 4)
    assert rest.get("/v1/changes?tables=p").code == (400, 13)
    assert rest.get("/v1/changes?format=xml").code == (400, 13)
    assert rest.get("/v1/table?limit=-1").code == (400, 13)
    assert rest.get("/v1/jobs/none").code == (404, 13)
