"""A query answers what was asked: columns, filter, bounds and limit; what it cannot do, it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.server.rest.limits import Limits
from tests.server.rest import Rest, rest_of

VECTOR = pa.list_(pa.float32(), 2)
ROWS = pa.table(
    {
        "id": [1, 2, 3, 4],
        "v": [10, 20, None, 40],
        "e": pa.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], None], VECTOR),
        "s": pa.array(
            [{"e": [5.0, 0.0]}, {"e": [3.0, 0.0]}, None, {"e": None}],
            pa.struct([("e", VECTOR)]),
        ),
    }
)
ALL = (1 << 63) - 1


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    with rest_of(tmp_path_factory.mktemp("queries") / "shop") as (db, _, client):
        db.create_table("keyed", ROWS.schema, primary_key="id").upsert(ROWS)
        db.create_table("plain", ROWS.schema).append(ROWS)
        db.create_table("one", {"id": "int64", "s": ROWS.schema.field("s").type})
        db["one"].append(ROWS.select(["id", "s"]))
        yield client


@pytest.fixture(params=["keyed", "plain"])
def table(request: pytest.FixtureRequest) -> str:
    return request.param


def rows_of(rest: Rest, table: str, **query: Any) -> list[dict[str, Any]]:
    return rest.post(f"/v1/table/{table}/query", query).rows


COMPUTED: list[object] = [
    {"x": "id + 1", "v": "v"},
    {"column_aliases": {"x": "id + 1", "v": "v"}},
]


@pytest.mark.parametrize("columns", COMPUTED)
def test_columns_are_computed_under_their_new_names(
    rest: Rest, table: str, columns: object
) -> None:
    found = rows_of(rest, table, columns=columns, filter="v > 10")
    assert sorted(found, key=str) == [{"x": 3, "v": 20}, {"x": 5, "v": 40}]


def test_a_computed_column_may_be_a_constant_a_field_or_the_distance(
    rest: Rest, table: str
) -> None:
    assert rows_of(rest, table, columns={"one": "1"}) == [{"one": 1}] * 4
    fields = rows_of(rest, table, columns={"f": "s.e", "old": "e"}, filter="id = 1")
    assert fields == [{"f": [5.0, 0.0], "old": [0.0, 0.0]}]
    far = rows_of(rest, table, columns={"d": "_distance * 2", "id": "id"}, vector=[2.0, 0.0], k=2)
    assert far == [
        {"d": 0.0, "id": 3, "_distance": 0.0},
        {"d": 2.0, "id": 2, "_distance": 1.0},
    ]
    named = rows_of(rest, table, columns=["_distance", "id"], vector=[2.0, 0.0], k=1)
    assert named == [{"_distance": 0.0, "id": 3}]


def test_columns_in_no_form_that_is_known_are_refused(rest: Rest, table: str) -> None:
    wrong: list[tuple[object, tuple[int, int]]] = [
        ({"column_names": ["id"], "column_aliases": {"x": "id"}}, (400, 13)),
        ({"column_names": {"x": "id"}}, (400, 13)),
        ({"other": ["id"]}, (400, 13)),
        ({"x": "nothing + 1"}, (400, 13)),
        ({"x": "sum(id)"}, (400, 13)),
        (["_distance"], (400, 20)),
    ]
    for columns, code in wrong:
        answer = rest.post(f"/v1/table/{table}/query", {"columns": columns})
        assert answer.code == code, columns
    assert len(rows_of(rest, table, columns={"column_names": None})) == 4


def test_a_limit_that_stands_for_all_rows_gives_all(rest: Rest, table: str) -> None:
    assert len(rows_of(rest, table, k=ALL)) == 4
    assert len(rows_of(rest, table, k=ALL, offset=3)) == 1
    assert [row["id"] for row in rows_of(rest, table, k=ALL, vector=[0.0, 0.0])] == [1, 2, 3]
    beyond = rest.post(f"/v1/table/{table}/query", {"k": ALL + 1})
    assert beyond.code == (400, 13)


def test_without_prefilter_the_nearest_rows_are_filtered(rest: Rest, table: str) -> None:
    query = {"vector": [0.0, 0.0], "k": 2, "filter": "v >= 20", "columns": ["id"]}
    before = rows_of(rest, table, **query, prefilter=True)
    assert [row["id"] for row in before] == [2]  # 3 has no v, and 4 no vector
    after = rows_of(rest, table, **{**query, "k": 1}, prefilter=False)
    assert after == []
    assert [row["id"] for row in rows_of(rest, table, **query, prefilter=False)] == [2]
    assert len(rows_of(rest, table, filter="id > 1", prefilter=False, k=2)) == 2


def test_the_bounds_of_the_distance_take_in_the_lower_one_alone(rest: Rest, table: str) -> None:
    query = {"vector": [0.0, 0.0], "k": 9, "columns": ["id"]}
    found = rows_of(rest, table, **query, lower_bound=1.0, upper_bound=4.0)
    assert found == [{"id": 2, "_distance": 1.0}]
    assert [row["id"] for row in rows_of(rest, table, **query, lower_bound=1.0)] == [2, 3]
    assert [row["id"] for row in rows_of(rest, table, **query, upper_bound=1.0)] == [1]
    alone = rest.post(f"/v1/table/{table}/query", {"lower_bound": 1.0})
    assert alone.code == (400, 13)


def test_a_vector_within_a_struct_is_not_searched(rest: Rest, table: str) -> None:
    query = {"vector": [0.0, 0.0], "k": 9, "columns": ["id"]}
    for name, code in (("s.e", (406, 0)), ("s.x", (404, 12)), ("s", (400, 13)), ("v.e", (404, 12))):
        answer = rest.post(f"/v1/table/{table}/query", {**query, "vector_column": name})
        assert answer.code == code, name
    inner = rest.post(f"/v1/table/{table}/query", {**query, "vector_column": "s.e"})
    assert "'s.e' is within column 's'" in inner.json["error"]
    assert rest.post("/v1/table/one/query", query).code == (400, 13)


def test_what_a_query_cannot_do_is_refused_by_name(rest: Rest, table: str) -> None:
    by = {"column_name": "id"}
    for query in (
        {"order_by": [{"column_name": "v"}]},
        {"order_by": [by, {"column_name": "v", "ascending": False}]},
        {"order_by": [by], "vector": [0.0, 0.0]},
    ):
        answer = rest.post(f"/v1/table/{table}/query", query)
        assert answer.code == (406, 0)
        assert "order_by" in answer.json["error"]
    for wrong in ("id", ["id"], [{"column": "id"}], [{"column_name": ""}]):
        assert rest.post(f"/v1/table/{table}/query", {"order_by": wrong}).code == (400, 13)


def test_rows_come_in_the_order_of_their_keys(rest: Rest) -> None:
    by = [{"column_name": "id", "ascending": True, "nulls_first": False}]
    down = [{"column_name": "id", "ascending": False}]
    query = {"columns": ["id"], "filter": "id < 4"}
    assert rows_of(rest, "keyed", **query, order_by=by) == [{"id": n} for n in (1, 2, 3)]
    page = {**query, "order_by": down, "k": 2, "offset": 1}
    assert rows_of(rest, "keyed", **page) == [{"id": 2}, {"id": 1}]
    told = rest.post("/v1/table/keyed/explain_plan", page)
    assert "order: id, descending" in str(told.json)


MATCH = {"terms": "a", "column": "v"}
WRONG_WORDS: list[tuple[dict[str, Any], tuple[int, int], str]] = [
    ({"structured_query": {"query": {"boolean": {"must": []}}}}, (406, 0),
     "full_text_query.structured_query.query.boolean is not offered"),
    ({"query": {"boost": {"positive": {"match": MATCH}}}}, (406, 0),
     "full_text_query.query.boost is not offered"),
    ({"query": {"multi_match": {"match_queries": [MATCH, {"terms": "b", "column": "w"}]}}},
     (406, 0), "different terms"),
    ({"query": {"phrase": {**MATCH, "slop": 1}}}, (400, 13), "slop"),
    ({"query": {"match": {**MATCH, "max_expansions": 9}}}, (400, 13), "max_expansions"),
    ({"query": {"match": {**MATCH, "prefix_length": 1}}}, (400, 13), "prefix_length"),
    ({"query": {"match": {**MATCH, "boost": -1}}}, (400, 13), "boost must be a number above 0"),
    ({"query": {"match": {**MATCH, "slop": 1}}}, (400, 13), "slop"),
    ({"query": {"match": MATCH, "phrase": MATCH}}, (400, 13), "it has match and phrase"),
    ({"query": {}}, (400, 13), "it has none of them"),
    ({}, (400, 13), "it has none of them"),
    ({"string_query": {"query": "a"}, "query": {"match": MATCH}}, (400, 13), "string_query and"),
    ({"query": "a"}, (400, 13), "full_text_query.query"),
    ({"query": {"multi_match": {}}}, (400, 13), "match_queries, or a query"),
    ({"query": {"multi_match": {"match_queries": []}}}, (400, 13), "names a column"),
    ({"query": {"multi_match": {"match_queries": [MATCH], "query": "a"}}}, (400, 13), "both"),
    ({"query": {"multi_match": {"match_queries": [MATCH, MATCH]}}}, (400, 13), "named twice"),
    ({"query": {"multi_match": {"query": "a", "columns": ["v"], "boost": [1, 2]}}}, (400, 13),
     "2 numbers for 1 columns"),
]  # fmt: skip


def test_words_that_a_query_cannot_look_for_are_refused_by_name(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop") as (db, _, rest):
        made = db.create_table("t", {"id": "int64", "v": "string", "w": "string"}, "id")
        made.upsert({"id": 1, "v": "a river", "w": "b"})
        made.create_index("v", kind="fts")
        for asked, code, said in WRONG_WORDS:
            answer = rest.post("/v1/table/t/query", {"full_text_query": asked})
            assert answer.code == code, asked
            assert said in answer.json["error"], asked
        river = {"full_text_query": {"string_query": {"query": "river"}}}
        for also, said in (
            ({"distance_type": "l2"}, "distance_type is of a search by a vector"),
            ({"lower_bound": 1.0}, "lower_bound is of a search by a vector"),
            ({"nprobes": 3}, "nprobes is of a search by a vector"),
            ({"k": 10_001}, "at most 10000"),
            ({"k": 10_000, "offset": 1}, "at most 10000"),
            ({"k": 0}, "k must be an integer from 1"),
        ):
            answer = rest.post("/v1/table/t/query", {**river, **also})
            assert answer.code == (400, 13), also
            assert said in answer.json["error"], also
        assert [row["id"] for row in rows_of(rest, "t", **river)] == [1]
        assert rows_of(rest, "t", **river, filter="id > 1", prefilter=False) == []
        assert rows_of(rest, "t", **river, columns={"x": "_score > 0"})[0]["x"] is True
        told = rest.post("/v1/table/t/explain_plan", {"query": river}).json
        assert "words: 'river'" in told


def test_several_vectors_have_their_rows_one_behind_the_other(rest: Rest, table: str) -> None:
    query = {"k": 1, "columns": ["id"]}
    found = rows_of(rest, table, vector=[[2.0, 0.0], [0.0, 0.0]], **query)
    assert found == [
        {"query_index": 0, "id": 3, "_distance": 0.0},
        {"query_index": 1, "id": 1, "_distance": 0.0},
    ]
    for vector in ([[0.0, 0.0], 1.0], [[0.0, 0.0], []], [[0.0, 0.0], [1.0]], [[0.0, 0.0]] * 1_001):
        answer = rest.post(f"/v1/table/{table}/query", {"vector": vector, **query})
        assert answer.code == (400, 13)
    many = rest.post(f"/v1/table/{table}/query", {"vector": [[0.0, 0.0]] * 101, "k": 9_999})
    assert many.code == (400, 13)
    aliased = {"vector": [[2.0, 0.0], [0.0, 0.0]], "k": 1, "columns": {"query_index": "id"}}
    answer = rest.post(f"/v1/table/{table}/query", aliased)
    assert answer.code == (400, 13)
    assert "query_index" in answer.json["error"]


def test_an_update_takes_a_list_of_numbers_as_a_vector(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop") as (db, _, rest):
        for name, key in (("keyed", "id"), ("plain", None)):
            made = db.create_table(name, ROWS.schema, primary_key=key)
            (made.upsert if key else made.append)(ROWS)
            update = f"/v1/table/{name}/update"
            assert rest.post(update, {"updates": [["e", "[7, -1.5e0]"]]}).json["updated_rows"] == 4
            assert rows_of(rest, name, filter="id = 4", columns=["e"]) == [{"e": [7.0, -1.5]}]
            for text in ("[1.0]", "[1.0, 'a']", "[1.0, 2.0"):
                answer = rest.post(update, {"updates": [["e", text]]})
                assert answer.code == (400, 13), text
            assert rest.post(update, {"updates": [["v", "[1.0, 2.0]"]]}).code == (400, 13)


def test_the_nearest_rows_are_no_more_bytes_than_a_statement_may_hold(tmp_path: Path) -> None:
    limits = Limits(collected_bytes_max=2_000)
    with rest_of(tmp_path / "shop", limits=limits) as (db, _, rest):
        rows = pa.table({"t": ["x" * 100] * 50, "e": pa.array([[0.0, 0.0]] * 50, VECTOR)})
        db.create_table("t", rows.schema).append(rows)
        query = {"vector": [0.0, 0.0], "k": 40}
        answer = rest.post("/v1/table/t/query", query)
        assert answer.code == (400, 13)
        assert "2000 bytes" in answer.json["error"]
        assert "k = 40 rows like these take about 4" in answer.json["error"]  # 4,640 or so
        assert len(rows_of(rest, "t", **{**query, "k": 5})) == 5


def test_a_plan_names_the_columns_that_the_query_makes(rest: Rest, table: str) -> None:
    query = {"columns": {"x": "id + 1"}, "vector": [0.0, 0.0]}
    told = rest.post(f"/v1/table/{table}/explain_plan", {"query": query}).json
    assert "columns: x, _distance" in told


NUMBERS = pa.schema(
    [
        ("id", pa.int64()),
        ("f", pa.list_(pa.float32(), 3)),
        ("h", pa.list_(pa.float16(), 3)),
        ("d", pa.list_(pa.float64(), 3)),
        ("b", pa.list_(pa.uint8(), 3)),
        ("i", pa.list_(pa.int32(), 3)),
        ("s", pa.struct([("f", pa.list_(pa.float32(), 3)), ("b", pa.list_(pa.uint8(), 3))])),
    ]
)


def numbers_of(n: int) -> dict[str, Any]:
    floats = [float(np.float16(np.sin(n + at))) for at in range(3)]
    whole = [n % 7, (3 * n) % 256, n % 5]
    row = {"id": n, "f": floats, "h": floats, "d": floats, "b": whole, "i": whole}
    return {**row, "s": {"f": floats, "b": whole}}


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[st.Store, Rest]]:
    """Rows in base under an index, in history, and in a memtable; of some an old version, too."""
    with rest_of(tmp_path_factory.mktemp("numbers") / "shop") as (db, _, client):
        table = db.create_table("n", NUMBERS, primary_key="id")
        for first, step in ((0, 1), (1, 3), (2, 5)):
            rows = [numbers_of(n) for n in range(first, 300, step)]
            table.upsert(pa.Table.from_pylist(rows, NUMBERS))
            db.checkpoint()
            if step == 1:
                db.merge()
                table.create_index("f", kind="vector")
        table.upsert(pa.Table.from_pylist([numbers_of(n) for n in range(0, 300, 50)], NUMBERS))
        table.delete([10, 20])
        nulls: dict[str, Any] = {"f": [float("nan")] * 3, "h": None, "d": [None, 0.0, 1.0]}
        table.upsert(pa.Table.from_pylist([{"id": 900, **nulls}], NUMBERS))
        yield db, client


def test_rows_that_are_equally_far_come_by_their_keys_also_if_these_are_uuids(
    tmp_path: Path,
) -> None:
    keys = [UUID(int=n) for n in (2**127, 3, 2**64, 5)]
    rows = pa.table({"id": pa.array(keys, pa.uuid()), "e": pa.array([[1.0, 0.0]] * 4, VECTOR)})
    with rest_of(tmp_path / "shop") as (db, _, client):
        db.create_table("u", rows.schema, primary_key="id").upsert(rows)
        for k in (3, 20_000):
            found = rows_of(client, "u", vector=[0.0, 0.0], k=k)
            assert [row["id"] for row in found] == sorted(keys)[:k]


ASKED: list[tuple[str, str]] = [
    *((column, metric) for column in "fhd" for metric in ("l2", "cosine", "dot")),
    ("b", "hamming"),
]


@pytest.mark.parametrize(("column", "metric"), ASKED)
def test_a_query_gives_what_a_search_of_the_table_gives(
    numbers: tuple[st.Store, Rest], column: str, metric: Any
) -> None:
    db, rest = numbers
    vector = [3, 200, 1] if column == "b" else [0.3, -0.7, 0.1]
    query: dict[str, Any] = {"vector": vector, "vector_column": column, "distance_type": metric}
    for k, filter_ in ((1, None), (12, None), (40, "id % 3 = 0"), (400, None)):
        asked = {**query, "k": k, "columns": ["id"], "filter": filter_}
        found = (
            db["n"]
            .search(vector, k, column=column, metric=metric, filter=filter_, columns=["id"])
            .to_pylist()
        )
        assert rows_of(rest, "n", **asked) == found
        beyond = rows_of(rest, "n", **{**asked, "k": 20_000})  # each row is compared
        assert beyond[:k] == found
        assert (
            rows_of(rest, "n", **{**asked, "k": 20_000, "offset": 5})[: max(k - 5, 0)] == found[5:]
        )


def test_the_bounds_of_a_search_are_the_same_for_more_rows(
    numbers: tuple[st.Store, Rest],
) -> None:
    _, rest = numbers
    query: dict[str, Any] = {"vector": [0.3, -0.7, 0.1], "vector_column": "f", "columns": ["id"]}
    for bounds in (
        {"lower_bound": 0.5},
        {"upper_bound": 0.5},
        {"lower_bound": 0.2, "upper_bound": 1.0},
    ):
        searched = rows_of(rest, "n", **query, **bounds, k=9_000)
        assert searched == rows_of(rest, "n", **query, **bounds, k=20_000)
        assert all(bounds.get("lower_bound", 0) <= row["_distance"] for row in searched)
        assert all(row["_distance"] < bounds.get("upper_bound", 99) for row in searched)


def test_a_vector_that_has_no_distance_is_refused(numbers: tuple[st.Store, Rest]) -> None:
    _, rest = numbers
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"vector": [1e300, 0, 0], "vector_column": "f"}, "finite numbers"),
        ({"vector": [0, 0, 0], "vector_column": "f", "distance_type": "cosine"}, "zeros"),
        ({"vector": [0.5, 0, 0], "vector_column": "b", "distance_type": "hamming"}, "0 to 255"),
        ({"vector": [1, 0, 0], "vector_column": "f", "distance_type": "hamming"}, "the metric l2"),
        ({"vector": [1, 0, 0], "vector_column": "b", "distance_type": "l2"}, "metric hamming"),
        ({"vector": [1, 0, 0], "vector_column": "i"}, "fixed-size lists of floats or of uint8"),
        ({"vector": [1, 0, 0], "vector_column": "f", "lower_bound": 2, "upper_bound": 1}, "empty"),
        ({"vector": [1, 0, 0], "vector_column": "f", "k": 0}, "k must be an integer from 1"),
        ({"vector": [1, 0, 0], "vector_column": "f", "k": 2_000_000}, "k is at most 1000000"),
    ]
    for query, said in wrong:
        answer = rest.post("/v1/table/n/query", query)
        assert answer.code == (400, 13), query
        assert said in answer.json["error"]


def test_a_plan_says_whether_an_index_is_asked(numbers: tuple[st.Store, Rest]) -> None:
    _, rest = numbers
    query: dict[str, Any] = {"vector": [1, 0, 0], "vector_column": "f"}
    for more, said in (
        ({"nprobes": 7}, "merged rows by an index of l2, if there is one, others compared"),
        ({"nprobes": 7}, "nprobes 7, refine by Lance"),
        ({"bypass_vector_index": True}, "each row is compared"),
        ({"k": 20_000}, "each row is compared"),
    ):
        told = rest.post("/v1/table/n/explain_plan", {"query": {**query, **more}}).json
        assert said in told


def test_a_search_in_a_serializable_transaction_conflicts_with_a_write(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop") as (db, _, rest):
        db.create_table("t", NUMBERS, primary_key="id").upsert(numbers_of(1))
        db.create_table("other", {"id": "int64"}, primary_key="id")
        begun = rest.post("/v1/transaction/begin", {"isolation": "serializable"}).json["id"]
        query = {"vector": [0, 0, 0], "vector_column": "f"}
        assert len(rest.post("/v1/table/t/query", query, x_siltstone_txn=begun).rows) == 1
        inserted = pa.table({"id": pa.array([1], pa.int64())})
        answer = rest.post("/v1/table/other/insert", inserted, x_siltstone_txn=begun)
        assert answer.status == 200, answer.body
        db["t"].upsert(numbers_of(2))
        assert rest.post(f"/v1/transaction/{begun}/commit", {}).status == 409
