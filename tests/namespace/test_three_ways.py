"""Every operation of the specification is answered alike in process, joined, and over REST."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.namespace.three_ways import PATHS, ROWS, WHOLE, ThreeWays, Told, three_ways
from tests.server.rest import stream_of

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
TAKES_ROWS = ("create_table", "insert_into_table", "merge_insert_into_table")
RIGHT: dict[str, dict[str, Any]] = {
    "rename_table": {"new_table_name": "q"},
    "create_table_version": {"version": 9, "manifest_path": "x"},
    "batch_delete_table_versions": {"ranges": [{"start_version": 1, "end_version": 2}]},
    "merge_insert_into_table": {"on": ["id"]},
    "update_table": {"updates": [["v", "'x'"]]},
    "delete_from_table": {"predicate": "id = 1"},
    "restore_table": {"version": 1},
    "alter_table_add_columns": {"new_columns": [{"name": "n", "expression": "id + 1"}]},
    "alter_table_alter_columns": {"alterations": [{"path": "v", "rename": "w"}]},
    "alter_table_drop_columns": {"columns": ["v"]},
    "update_table_schema_metadata": {"metadata": {"owner": "us"}},
    "update_field_metadata": {"updates": [{"path": "v", "metadata": {"unit": "m"}}]},
    "get_table_tag_version": {"tag": "x"},
    "create_table_tag": {"tag": "x", "version": 1},
    "update_table_tag": {"tag": "x", "version": 1},
    "delete_table_tag": {"tag": "x"},
    "create_table_index": {"column": "id", "index_type": "BTREE"},
    "create_table_scalar_index": {"column": "v", "index_type": "BITMAP"},
    "describe_table_index_stats": {"index_name": "nothing"},
    "drop_table_index": {"index_name": "nothing"},
    "batch_create_table_versions": {"entries": [{"id": ["p"], "version": 9, "manifest_path": "x"}]},
    "batch_commit_tables": {"operations": [{"declare_table": {"id": ["p"]}}]},
}
"""What each operation needs beside an id: also of these many are refused, or change nothing."""
OF_SPACES = (
    *("list_namespaces", "list_tables", "describe_namespace", "namespace_exists"),
    *("create_namespace", "drop_namespace"),
)
OF_ALL = ("list_all_tables", "batch_create_table_versions", "batch_commit_tables")


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeWays]:
    with three_ways(tmp_path_factory.mktemp("ways")) as found:
        yield found


@pytest.fixture
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeWays]:
    with three_ways(tmp_path_factory.mktemp("ways")) as found:
        yield found


def right(operation: str) -> dict[str, Any]:
    """Return a request that is well formed."""
    if operation in OF_ALL:
        return RIGHT.get(operation, {})
    return {"id": ["a"] if operation in OF_SPACES else ["p"]} | RIGHT.get(operation, {})


def rows_for(operation: str) -> bytes | None:
    return stream_of(ROWS) if operation in TAKES_ROWS else None


def alike(ways: ThreeWays, operation: str, request: dict[str, Any]) -> Told:
    here, joined, there = ways.asked(operation, request, rows_for(operation))
    assert (here, joined) == (there, there)
    return there


def refused(ways: ThreeWays, operation: str, request: dict[str, Any]) -> Told:
    seqs = [db.seq for db in ways.stores]
    told = alike(ways, operation, request)
    assert told.code is not None
    assert "\n" not in told.sentence
    assert [db.seq for db in ways.stores] == seqs
    return told


@pytest.mark.parametrize("operation", sorted(PATHS.keys() - WHOLE.keys()))
def test_an_unknown_member_is_refused_by_its_name(ways: ThreeWays, operation: str) -> None:
    told = refused(ways, operation, right(operation) | {"nonsense": 1})
    assert told.code == 13
    assert "nonsense" in told.sentence


IN_THE_PATH = ("describe_table_index_stats", "drop_table_index")
"""What has a member in the path of REST, which is always there."""


@pytest.mark.parametrize("operation", sorted(RIGHT.keys() - {*IN_THE_PATH, *WHOLE}))
def test_a_missing_member_is_refused_by_its_name(ways: ThreeWays, operation: str) -> None:
    name = next(iter(RIGHT[operation]))
    told = refused(ways, operation, {k: v for k, v in right(operation).items() if k != name})
    assert told.code == 13
    assert name in told.sentence


WRONG: dict[str, dict[str, Any]] = {
    "list_namespaces": {"limit": "x"},
    "list_tables": {"limit": -1},
    "list_all_tables": {"limit": "x"},
    "describe_namespace": {"context": 5},
    "namespace_exists": {"context": "text"},
    "create_namespace": {"properties": {"a": 5}},
    "drop_namespace": {"behavior": 7},
    "describe_table": {"version": "new"},
    "table_exists": {"version": -1},
    "declare_table": {"location": 5},
    "drop_table": {"context": []},
    "deregister_table": {"context": []},
    "rename_table": {"new_table_name": 5},
    "list_table_branches": {"limit": "x"},
    "list_table_versions": {"descending": "perhaps"},
    "describe_table_version": {"version": [1]},
    "create_table_version": {"version": "2"},
    "batch_delete_table_versions": {"ranges": [{"start_version": "a"}]},
    "batch_create_table_versions": {"entries": [5]},
    "batch_commit_tables": {"operations": "all of them"},
    "create_table": {"mode": "sometimes"},
    "insert_into_table": {"mode": "sometimes"},
    "merge_insert_into_table": {"when_matched_update_all": "perhaps"},
    "update_table": {"updates": [["v"]]},
    "delete_from_table": {"predicate": 5},
    "restore_table": {"version": None},
    "query_table": {"filter": 5},
    "count_table_rows": {"predicate": 5},
    "explain_table_query_plan": {"k": "x"},
    "analyze_table_query_plan": {"k": -1},
    "get_table_stats": {"context": []},
    "alter_table_add_columns": {"new_columns": [{"name": ""}]},
    "alter_table_alter_columns": {"alterations": []},
    "alter_table_drop_columns": {"columns": [5]},
    "update_field_metadata": {"updates": [{"path": "v", "metadata": "x"}]},
    "list_table_tags": {"limit": "x"},
    "get_table_tag_version": {"tag": 5},
    "create_table_tag": {"version": -1},
    "update_table_tag": {"version": "x"},
    "delete_table_tag": {"tag": ""},
    "create_table_index": {"num_partitions": "x"},
    "create_table_scalar_index": {"stem": "x"},
    "list_table_indices": {"limit": "x"},
    "describe_table_index_stats": {"context": []},
    "drop_table_index": {"context": []},
}


@pytest.mark.parametrize("operation", sorted(PATHS.keys() - WHOLE.keys()))
def test_a_member_of_another_type_is_refused(ways: ThreeWays, operation: str) -> None:
    told = refused(ways, operation, right(operation) | WRONG[operation])
    assert told.code == 13
    assert next(iter(WRONG[operation])) in told.sentence


OF_IDS = sorted(PATHS.keys() - set(OF_ALL))


@pytest.mark.parametrize("operation", OF_IDS)
@pytest.mark.parametrize(
    "id_", [["x" * 129], [*"abcdefghijklmnopqrstuvwxyz"], ["a", "b.c", "t"]], ids=len
)
def test_an_id_that_is_too_long_or_too_deep_is_refused(
    ways: ThreeWays, operation: str, id_: list[str]
) -> None:
    assert refused(ways, operation, right(operation) | {"id": id_}).code in {1, 4, 13}


OF_NEW = ("create_namespace", "create_table", "declare_table")


@pytest.mark.parametrize("operation", sorted({*OF_IDS} - {*OF_NEW}))
def test_what_is_not_there_is_not_found(ways: ThreeWays, operation: str) -> None:
    told = refused(ways, operation, right(operation) | {"id": ["none"]})
    assert told.code in {1, 4}
    assert "not found" in told.sentence
    assert "'none'" in told.sentence


GONE: list[tuple[str, dict[str, Any], int]] = [
    ("describe_table_version", {"id": ["p"], "version": 77}, 11),
    ("table_exists", {"id": ["p"], "version": 77}, 11),
    ("query_table", {"id": ["k"], "version": 99_999}, 11),
    ("get_table_tag_version", {"id": ["p"], "tag": "gone"}, 8),
    ("drop_table_index", {"id": ["k"], "index_name": "gone"}, 6),
    ("alter_table_drop_columns", {"id": ["p"], "columns": ["gone"]}, 12),
]


@pytest.mark.parametrize(("operation", "request_", "code"), GONE)
def test_every_sentence_about_what_is_not_there_says_not_found(
    ways: ThreeWays, operation: str, request_: dict[str, Any], code: int
) -> None:
    told = refused(ways, operation, request_)
    assert told.code == code
    assert "not found" in told.sentence


def test_a_namespace_in_one_that_is_not_there_is_not_found(ways: ThreeWays) -> None:
    assert refused(ways, "create_namespace", {"id": ["none", "n"]}).code == 1


@pytest.mark.parametrize("operation", sorted({*OF_IDS} - {*OF_SPACES, *TAKES_ROWS, *WHOLE}))
def test_another_branch_than_main_is_refused(ways: ThreeWays, operation: str) -> None:
    assert refused(ways, operation, right(operation) | {"branch": "dev"}).code == 0


READS: list[tuple[str, dict[str, Any]]] = [
    ("list_namespaces", {"id": []}),
    ("list_namespaces", {"id": ["a"]}),
    ("list_tables", {"id": []}),
    ("list_tables", {"id": ["a", "b"]}),
    ("list_tables", {"id": [], "limit": 1}),
    ("list_tables", {"id": [], "limit": 0}),
    ("list_all_tables", {}),
    ("list_all_tables", {"limit": 0}),
    ("list_all_tables", {"limit": 2}),
    ("list_all_tables", {"include_declared": False}),
    ("describe_namespace", {"id": ["a"]}),
    ("namespace_exists", {"id": []}),
    ("describe_table", {"id": ["p"]}),
    ("describe_table", {"id": ["p"], "load_detailed_metadata": True}),
    ("describe_table", {"id": ["p"], "vend_credentials": True}),
    ("describe_table", {"id": ["k"], "with_table_uri": True, "load_detailed_metadata": True}),
    ("describe_table", {"id": ["p"], "version": 99_999}),
    ("table_exists", {"id": ["p"]}),
    ("table_exists", {"id": ["p"], "version": 99_999}),
    ("table_exists", {"id": ["a", "b", "t"], "version": 99_999}),
    ("list_table_branches", {"id": ["p"]}),
    ("list_table_versions", {"id": ["p"]}),
    ("list_table_versions", {"id": ["p"], "descending": True, "limit": 1}),
    ("describe_table_version", {"id": ["p"]}),
    ("describe_table_version", {"id": ["p"], "version": 1}),
    ("query_table", {"id": ["k"], "k": 10}),
    ("query_table", {"id": ["p"], "k": 10, "filter": "id = 1", "columns": ["v"]}),
    ("count_table_rows", {"id": ["p"]}),
    ("count_table_rows", {"id": ["p"], "predicate": "id = 1"}),
    ("explain_table_query_plan", {"id": ["k"], "query": {"k": 1}}),
    ("analyze_table_query_plan", {"id": ["k"], "query": {"k": 1}}),
    ("get_table_stats", {"id": ["p"]}),
    ("list_table_tags", {"id": ["p"]}),
    ("list_table_indices", {"id": ["k"]}),
]


@pytest.mark.parametrize(("operation", "request_"), READS)
def test_a_read_is_answered_alike(
    ways: ThreeWays, operation: str, request_: dict[str, Any]
) -> None:
    alike(ways, operation, request_)


WRITES: list[tuple[str, dict[str, Any]]] = [
    ("create_namespace", {"id": ["n"], "properties": {"owner": "me"}}),
    ("create_namespace", {"id": ["n"]}),
    ("create_namespace", {"id": ["n"], "mode": "exist_ok"}),
    ("declare_table", {"id": ["n", "d"]}),
    ("describe_table", {"id": ["n", "d"]}),
    ("drop_namespace", {"id": ["n"]}),
    ("drop_namespace", {"id": ["n"], "behavior": "cascade"}),
    ("drop_namespace", {"id": ["n"]}),
    ("create_table", {"id": ["c"], "properties": {"primary_key": "id"}}),
    ("create_table", {"id": ["c"]}),
    ("insert_into_table", {"id": ["p"]}),
    ("insert_into_table", {"id": ["p"], "mode": "overwrite"}),
    ("merge_insert_into_table", {"id": ["p"], "on": ["id"], "when_matched_update_all": True}),
    ("update_table", {"id": ["p"], "updates": [["v", "'x'"]], "predicate": "id = 1"}),
    ("delete_from_table", {"id": ["p"], "predicate": "id = 1"}),
    ("restore_table", {"id": ["p"], "version": 1}),
    ("create_table_tag", {"id": ["p"], "tag": "x", "version": 1}),
    ("create_table_tag", {"id": ["p"], "tag": "y", "version": 2}),
    ("list_table_tags", {"id": ["p"]}),
    ("list_table_tags", {"id": ["p"], "limit": 1}),
    ("get_table_tag_version", {"id": ["p"], "tag": "x"}),
    ("update_table_tag", {"id": ["p"], "tag": "x", "version": 2}),
    ("delete_table_tag", {"id": ["p"], "tag": "x"}),
    ("create_table_index", {"id": ["k"], "column": "id", "index_type": "BTREE", "name": "i"}),
    ("create_table_scalar_index", {"id": ["k"], "column": "v", "index_type": "BITMAP"}),
    ("list_table_indices", {"id": ["k"]}),
    ("list_table_indices", {"id": ["k"], "limit": 1}),
    ("describe_table_index_stats", {"id": ["k"], "index_name": "i"}),
    ("drop_table_index", {"id": ["k"], "index_name": "i"}),
    ("alter_table_add_columns", {"id": ["p"], "new_columns": [{"name": "n", "expression": "id"}]}),
    ("alter_table_alter_columns", {"id": ["p"], "alterations": [{"path": "n", "rename": "m"}]}),
    ("alter_table_alter_columns", {"id": ["p"], "alterations": [{"path": "m", "nullable": True}]}),
    ("alter_table_alter_columns", {"id": ["k"], "alterations": [{"path": "id", "nullable": True}]}),
    ("alter_table_alter_columns", {"id": ["k"], "alterations": [{"path": "v", "nullable": True}]}),
    ("alter_table_alter_columns", {"id": ["k"], "alterations": [{"path": "v", "nullable": 1}]}),
    ("alter_table_alter_columns", {"id": ["k"], "alterations": [{"path": "v"}]}),
    ("alter_table_drop_columns", {"id": ["p"], "columns": ["m"]}),
    ("update_table_schema_metadata", {"id": ["p"], "metadata": {"a": "1", "b": "ß"}}),
    ("update_table_schema_metadata", {"id": ["k"], "metadata": {"a": "1"}}),
    ("update_table_schema_metadata", {"id": ["k"], "metadata": {"pandas": "1"}}),
    ("update_table_schema_metadata", {"id": ["k"], "metadata": {"a": "x" * 70_000}}),
    ("update_table_schema_metadata", {"id": ["k"], "metadata": {"": "x"}}),
    *(
        ("update_field_metadata", {"id": [name], "updates": [update]})
        for name in ("p", "k")
        for update in [
            {"path": "v", "metadata": {"a": "1", "b": "2"}},
            {"path": "v", "metadata": {"a": None}},
            {"path": "v", "metadata": {"c": "3"}, "replace": True},
            {"path": "none", "metadata": {"c": "3"}},
            {"path": "v.w", "metadata": {"c": "3"}},
        ]
    ),
    ("describe_table", {"id": ["p"], "load_detailed_metadata": True}),
    ("describe_table", {"id": ["k"], "load_detailed_metadata": True}),
    ("batch_delete_table_versions", {"id": ["p"], "ranges": [{"end_version": 2}]}),
    ("list_table_versions", {"id": ["p"]}),
    ("batch_commit_tables", {"operations": [{"declare_table": {"id": ["one"]}}]}),
    ("rename_table", {"id": ["p"], "new_table_name": "q", "new_namespace_id": ["zz"]}),
    ("rename_table", {"id": ["k"], "new_table_name": ""}),
    ("rename_table", {"id": ["k"], "new_table_name": "q"}),
    ("drop_table", {"id": ["q"]}),
    ("drop_table", {"id": ["q"]}),
    ("deregister_table", {"id": ["one"]}),
]


def test_writes_are_answered_alike_one_after_the_other(fresh: ThreeWays) -> None:
    for operation, request in WRITES:
        told = fresh.asked(operation, request, rows_for(operation))
        assert told == [told[2]] * 3, (operation, request)
    assert len({str(db.tables()) for db in fresh.stores}) == 1


def test_a_table_that_is_dropped_between_two_pages_hides_no_other(fresh: ThreeWays) -> None:
    for db in fresh.stores:
        for name in "defghi":
            db.create_table(f"n.{name}", {"id": "int64"})
    page = {"id": ["n"], "limit": 3}
    first = alike(fresh, "list_tables", page).answer
    assert isinstance(first, dict)
    assert first["tables"] == ["d", "e", "f"]
    for db in fresh.stores:
        db.drop_table("n.d")
    rest = alike(fresh, "list_tables", page | {"page_token": first["page_token"]}).answer
    assert rest == {"tables": ["g", "h", "i"]}


def test_rows_that_are_no_rows_are_refused_alike(ways: ThreeWays) -> None:
    for operation in TAKES_ROWS:
        told = ways.asked(operation, right(operation) | {"id": ["c2"]}, b"no stream")
        assert told == [told[2]] * 3
        assert told[2].code is not None


def test_a_column_without_values_is_alike(ways: ThreeWays) -> None:
    rows = pa.table({"x": pa.nulls(2)})
    told = ways.asked("insert_into_table", {"id": ["p"]}, stream_of(rows))
    assert told == [told[2]] * 3


def test_the_newest_version_is_named_when_it_cannot_be_deleted(ways: ThreeWays) -> None:
    request = {"id": ["p"], "ranges": [{"start_version": 1}]}
    told = refused(ways, "batch_delete_table_versions", request)
    assert "version 2 of 'p' is the newest" in told.sentence


def test_a_page_of_all_tables_is_asked_for_by_the_class_of_the_specification(
    ways: ThreeWays,
) -> None:
    told = ways.asked("list_all_tables", {"id": []})
    assert told == [told[2]] * 3
    assert told[2].code is None


def test_a_keyed_table_has_the_versions_that_are_listed(fresh: ThreeWays) -> None:
    for db in fresh.stores:
        db.merge()
    listed = alike(fresh, "list_table_versions", {"id": ["k"]}).answer
    assert isinstance(listed, dict)
    for version in listed["versions"]:
        request = {"id": ["k"], "version": version["version"]}
        assert alike(fresh, "table_exists", request).code is None
        assert alike(fresh, "describe_table", request).code is None


@pytest.mark.parametrize("limit", ["null", "1e1", "1.0", "-0", "01x"])
def test_a_number_in_an_address_is_written_in_digits(ways: ThreeWays, limit: str) -> None:
    told = ways.asked("list_tables", {"id": [], "limit": limit})
    assert told == [told[2]] * 3
    assert told[2].code == 13


def test_looking_whether_a_table_exists_makes_no_file(fresh: ThreeWays) -> None:
    before = [sorted(db.path.rglob("*")) for db in fresh.stores]
    alike(fresh, "table_exists", {"id": ["a", "b", "t"]})
    alike(fresh, "list_all_tables", {"include_declared": False})
    alike(fresh, "list_tables", {"id": ["a", "b"], "include_declared": False})
    assert [sorted(db.path.rglob("*")) for db in fresh.stores] == before
