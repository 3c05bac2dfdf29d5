"""Operations on rows work in process as over REST: on own, joined and read-only stores.

Over 400 lines: each operation, good and bad, at the same doors.
"""

# pyright: reportArgumentType=false

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace import errors

import siltstone as st
from siltstone.api.store import Store
from siltstone.lance_namespace.limits import RowLimits
from siltstone.lance_namespace.operations import OPERATIONS, answer
from siltstone.lance_namespace.scope import LiveScope
from siltstone.lance_versions.turns import Turns
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.clients import ids, opened, rows
from tests.server.rest import stream_of
from tests.server.stores import joined_to

# The module says of none of its classes that others may import it.
m: Any = import_module("lance_namespace_urllib3_client.models")
KEYED, PLAIN = {"id": ["k"]}, {"id": ["p"]}


@pytest.fixture(params=["own", "joined"])
def ns(db: Store, request: pytest.FixtureRequest) -> Iterator[SiltstoneNamespace]:
    with ExitStack() as held:
        store = db if request.param == "own" else held.enter_context(joined_to(db))
        yield SiltstoneNamespace(store)


def create(ns: Any, request: dict[str, Any], table: pa.Table, **members: Any) -> Any:
    return ns.create_table({**request, **members}, stream_of(table))


@pytest.fixture
def tables(ns: SiltstoneNamespace) -> SiltstoneNamespace:
    """Two tables with three rows each: one with a key, one plain."""
    create(ns, KEYED, rows(0, 3), properties={"primary_key": "id"})
    create(ns, PLAIN, rows(0, 3))
    return ns


def found(ns: Any, request: dict[str, Any], **members: Any) -> list[dict[str, Any]]:
    answer = ns.query_table({**request, **members})
    return pa.ipc.open_file(answer.data).read_all().to_pylist()


def keys(ns: Any, request: dict[str, Any], **members: Any) -> list[int]:
    return sorted(row["id"] for row in found(ns, request, **members))


@pytest.mark.parametrize(
    ("stored", "sent"),
    [
        (
            pa.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us", "UTC")),
            pa.array([1_577_836_800_000_000], pa.timestamp("us")),
        ),
        (
            pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16))),
            pa.array([b"0" * 16], pa.binary(16)),
        ),
        (pa.array(["one"]), pa.array(["one"], pa.string_view())),
        (pa.array([7], pa.int64()), pa.array([7], pa.int8())),
    ],
    ids=["time without a zone", "uuid as bytes", "view", "narrow"],
)
def test_a_merge_matches_keys_as_the_table_has_them(
    db: Store, stored: pa.Array, sent: pa.Array
) -> None:
    """The types of a client need not be those of the table: pandas has times without a zone."""
    ns: Any = SiltstoneNamespace(db)
    first = pa.table({"k": stored, "a": [1], "b": [2]})
    source = stream_of(pa.table({"k": sent, "a": [100]}))
    update, insert = {"when_matched_update_all": True}, {"when_not_matched_insert_all": True}
    sync = {**update, **insert, "when_not_matched_by_source_delete": True}
    for number, (actions, counts, after) in enumerate(
        [
            (update | insert, (1, 0, 0), [100, 2]),
            (insert, (0, 0, 0), [1, 2]),
            (update, (1, 0, 0), [100, 2]),
            (sync, (1, 0, 0), [100, 2]),
        ]
    ):
        name = f"merged{number}"
        table = db.create_table(name, first.schema, primary_key="k")
        table.upsert(first)
        done = ns.merge_insert_into_table({"id": [name], "on": ["k"], **actions}, source)
        assert (done.num_updated_rows, done.num_inserted_rows, done.num_deleted_rows) == counts
        assert [[row["a"], row["b"]] for row in table.to_arrow().to_pylist()] == [after]
    twice = pa.table({"k": pa.concat_arrays([sent, sent]), "a": [1, 2]})
    with pytest.raises(errors.InvalidInputError, match="the same key"):
        ns.merge_insert_into_table({"id": [name], "on": ["k"], **update}, stream_of(twice))


def test_rows_are_written_and_read(tables: SiltstoneNamespace) -> None:
    for table in (KEYED, PLAIN):
        made = tables.insert_into_table(table, stream_of(rows(3, 5)))
        assert made.num_inserted_rows == 2
        merged = tables.merge_insert_into_table(
            {**table, "on": ["id"], "when_matched_update_all": True}, stream_of(rows(4, 9, "new"))
        )
        assert (merged.num_updated_rows, merged.num_inserted_rows) == (1, 0)
        changed = tables.update_table({**table, "predicate": "id = 0", "updates": [["v", "'z'"]]})
        assert changed.updated_rows == 1
        tables.delete_from_table({**table, "predicate": "id = 1"})
        assert tables.count_table_rows({**table, "predicate": "id > 1"}).count == 3
        wanted = {"columns": {"column_aliases": {"n": "id + 1"}}, "filter": "v = 'new'"}
        assert found(tables, table, **wanted) == [{"n": 5}]
        assert tables.get_table_stats(table).num_rows == 4


def test_requests_are_models_or_dicts(tables: SiltstoneNamespace) -> None:
    vector = m.QueryTableRequestVector(single_vector=[])
    asked = m.QueryTableRequest(id=["p"], k=2, vector=vector, filter="id > 0")
    answer = tables.query_table(asked)
    assert pa.ipc.open_file(answer.data).read_all().num_rows == 2
    assert tables.count_table_rows(m.CountTableRowsRequest(id=["p"])).count == 3
    plan = tables.explain_table_query_plan({"id": ["p"], "query": {"filter": "id > 0"}})
    assert "filter: id > 0" in plan
    assert "answered with: 2 rows" in tables.analyze_table_query_plan(asked)


@pytest.mark.parametrize("request_", [KEYED, PLAIN], ids=["keyed", "plain"])
def test_a_version_from_before_a_rename_is_that_of_the_table_not_of_the_name(
    tables: SiltstoneNamespace, db: Store, request_: dict[str, Any]
) -> None:
    create(tables, {"id": ["other"]}, rows(50, 51), properties={"primary_key": "id"})
    version = tables.insert_into_table(request_, stream_of(rows(3, 5))).version
    db.rename_table("other", "moved")
    db.rename_table(request_["id"][0], "other")
    renamed = {"id": ["other"]}
    tables.delete_from_table({**renamed, "predicate": "id > 0"})
    assert keys(tables, renamed, version=version) == [0, 1, 2, 3, 4]
    assert tables.count_table_rows({**renamed, "version": version}).count == 5
    assert "Scan other" in tables.explain_table_query_plan({**renamed, "version": version})
    tables.restore_table({**renamed, "version": version})
    assert keys(tables, renamed) == [0, 1, 2, 3, 4]


def test_versions_are_tagged_and_restored(tables: SiltstoneNamespace) -> None:
    version = tables.insert_into_table(PLAIN, stream_of(rows(3, 4))).version
    tables.create_table_tag({**PLAIN, "tag": "whole", "version": version})
    tables.delete_from_table({**PLAIN, "predicate": "true"})
    tagged = tables.get_table_tag_version({**PLAIN, "tag": "whole"}).version
    assert (tagged, keys(tables, PLAIN, version=tagged)) == (version, [0, 1, 2, 3])
    tables.restore_table({**PLAIN, "version": tagged})
    assert keys(tables, PLAIN) == [0, 1, 2, 3]
    assert list(tables.list_table_tags(PLAIN).tags) == ["whole"]
    assert tables.list_table_tags(KEYED).tags == {}


def test_columns_are_added_renamed_and_dropped(db: Store, tables: SiltstoneNamespace) -> None:
    for name in ("k", "p"):
        table = {"id": [name]}
        new = [{"name": "n", "expression": "id * 2"}]
        tables.alter_table_add_columns({**table, "new_columns": new})
        tables.alter_table_alter_columns({**table, "alterations": [{"path": "n", "rename": "m"}]})
        tables.alter_table_drop_columns({**table, "columns": ["v"]})
        assert db[name].schema.names == ["id", "m"]
        assert found(tables, table, filter="id = 2") == [{"id": 2, "m": 4}]


def test_indexes_of_a_keyed_table_are_listed(db: Store, tables: SiltstoneNamespace) -> None:
    db.checkpoint()
    db.merge()
    tables.create_table_scalar_index({**KEYED, "column": "v", "index_type": "BTREE"})
    (index,) = tables.list_table_indices(KEYED).indexes
    assert (index.index_name, index.num_indexed_rows) == ("v", 3)
    named = {**KEYED, "index_name": "v"}
    assert tables.describe_table_index_stats(named).num_unindexed_rows == 0
    tables.drop_table_index(named)
    assert tables.list_table_indices(KEYED).indexes == []
    with pytest.raises(errors.TableIndexNotFoundError):
        tables.drop_table_index(named)


def test_the_nearest_rows_come_with_their_distance(ns: SiltstoneNamespace) -> None:
    vectors = pa.array([[0.0, 1.0], [0.0, 5.0]], pa.list_(pa.float32(), 2))
    create(ns, PLAIN, pa.table({"id": [0, 1], "e": vectors}))
    wanted = {"vector": {"single_vector": [0.0, 4.0]}, "k": 1, "columns": {"column_names": ["id"]}}
    assert found(ns, PLAIN, **wanted) == [{"id": 1, "_distance": 1.0}]


NEAREST: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"vector": [1.0]}, errors.InvalidInputError, "vectors of 2 numbers; the query has 1"),
    ({"vector": [float("nan"), 0.0]}, errors.InvalidInputError, "no NaN"),
    ({"vector": [1.0, 0.0], "k": 0}, errors.InvalidInputError, "k must be an integer from 1"),
    ({"vector": [1.0, 0.0], "k": 2_000_000}, errors.InvalidInputError, "k is at most 1000000"),
    ({"vector": [1.0, 0.0], "vector_column": "w"}, errors.TableColumnNotFoundError, "no column"),
    (
        {"vector": [1.0, 0.0], "vector_column": "id"},
        errors.InvalidInputError,
        "a search needs fixed-size lists",
    ),
    ({"vector": [1.0, 0.0], "distance_type": "far"}, errors.InvalidInputError, "distance_type is"),
]


@pytest.mark.parametrize(("query", "kind", "said"), NEAREST)
def test_a_wrong_search_is_one_clear_error(
    ns: SiltstoneNamespace, query: dict[str, Any], kind: type[Exception], said: str
) -> None:
    vectors = pa.array([[0.0, 1.0], [0.0, 5.0]], pa.list_(pa.float32(), 2))
    create(ns, PLAIN, pa.table({"id": [0, 1], "e": vectors}))
    with pytest.raises(kind, match=said):
        found(ns, PLAIN, **query)


# transactions and snapshots


def test_statements_of_a_transaction_see_each_other_and_are_committed_together(
    db: Store, tables: SiltstoneNamespace
) -> None:
    before = db.seq
    with tables.transaction() as tx:
        create(tx, {"id": ["new"]}, rows(0, 2))
        assert tx.insert_into_table(KEYED, stream_of(rows(3, 4))).version == 0
        tx.delete_from_table({**PLAIN, "predicate": "id = 0"})
        tx.alter_table_drop_columns({**PLAIN, "columns": ["v"]})
        assert found(tx, PLAIN, filter="id = 1") == [{"id": 1}]
        assert tx.count_table_rows(KEYED).count == 4
        assert tx.get_table_stats({"id": ["new"]}).num_rows == 2
        assert tables.count_table_rows(KEYED).count == 3
        assert db.tables() == ["k", "p"]
    assert db.seq == before + 1
    assert (keys(tables, KEYED), keys(tables, PLAIN)) == ([0, 1, 2, 3], [1, 2])
    assert db["new"].count() == 2


def test_a_transaction_that_is_rolled_back_leaves_nothing(
    db: Store, tables: SiltstoneNamespace
) -> None:
    before = db.seq
    tx = tables.transaction()
    tx.insert_into_table(PLAIN, stream_of(rows(3, 9)))
    tx.create_table_tag({**PLAIN, "tag": "a", "version": 1})
    assert list(tx.list_table_tags(PLAIN).tags) == ["a"]
    tx.rollback()
    assert (db.seq, keys(tables, PLAIN)) == (before, [0, 1, 2])
    assert tables.list_table_tags(PLAIN).tags == {}
    with pytest.raises(errors.LanceNamespaceError):
        tx.count_table_rows(PLAIN)


def test_a_snapshot_is_read_and_not_written(db: Store, tables: SiltstoneNamespace) -> None:
    with tables.at() as past:
        tables.delete_from_table({**KEYED, "predicate": "true"})
        tables.alter_table_drop_columns({**PLAIN, "columns": ["v"]})
        before = db.seq
        assert keys(past, KEYED) == [0, 1, 2]
        assert found(past, PLAIN, filter="id = 1") == [{"id": 1, "v": "x"}]
        assert past.get_table_stats(KEYED).num_rows == 3
        with pytest.raises(errors.PermissionDeniedError, match="is read, not written"):
            past.insert_into_table(PLAIN, stream_of(rows(3, 4)))
        with pytest.raises(errors.PermissionDeniedError):
            past.create_table_tag({**PLAIN, "tag": "a", "version": 1})
        assert db.seq == before


def test_an_index_is_no_part_of_a_transaction_or_snapshot(tables: SiltstoneNamespace) -> None:
    asked = {**KEYED, "column": "v", "index_type": "BTREE"}
    with tables.at() as past, tables.transaction() as tx:
        for inside in (past, tx):
            with pytest.raises(errors.InvalidInputError, match="no part of a transaction"):
                inside.create_table_index(asked)
            with pytest.raises(errors.InvalidInputError, match="no part of a transaction"):
                inside.drop_table_index({**KEYED, "index_name": "v"})
    assert tables.list_table_indices(KEYED).indexes == []


def test_a_transaction_has_no_id_of_the_specification(ns: SiltstoneNamespace) -> None:
    for operation in (ns.describe_transaction, ns.alter_transaction):
        with pytest.raises(errors.UnsupportedOperationError, match="begins a transaction"):
            operation({"id": ["1"]})


def test_a_read_only_store_answers_and_changes_nothing(
    db: Store, tables: SiltstoneNamespace
) -> None:
    tables.create_table_tag({**PLAIN, "tag": "a", "version": 1})
    before = db.seq
    with st.connect(db.path, read_only=True) as beside:
        other = SiltstoneNamespace(beside)
        assert (keys(other, KEYED), other.count_table_rows(PLAIN).count) == ([0, 1, 2], 3)
        assert list(other.list_table_tags(PLAIN).tags) == ["a"]
        assert other.get_table_stats(KEYED).num_rows == 3
        for name, (request, data) in WRITES.items():
            if name != "drop_table_index":  # there is none
                with pytest.raises(errors.PermissionDeniedError):
                    getattr(other, name)(request, *data)
    assert db.seq == before


def test_two_that_set_one_tag_are_not_both_first(db: Store, tables: SiltstoneNamespace) -> None:
    wins = list[int]()

    def set_all(number: int) -> None:
        mine = SiltstoneNamespace(db)
        for tag in "abcdefgh":
            start.wait(30)
            try:
                mine.create_table_tag({**PLAIN, "tag": tag, "version": 1})
            except errors.TableTagAlreadyExistsError:
                continue
            wins.append(number)

    start = threading.Barrier(2)
    threads = [threading.Thread(target=set_all, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wins) == len("abcdefgh")
    assert len(tables.list_table_tags(PLAIN).tags) == len("abcdefgh")


# wrong requests

DATA = (stream_of(rows(5, 6)),)
WRITES: dict[str, tuple[dict[str, Any], tuple[bytes, ...]]] = {
    "create_table": ({"id": ["new"]}, DATA),
    "insert_into_table": (PLAIN, DATA),
    "merge_insert_into_table": (
        {**PLAIN, "on": ["id"], "when_not_matched_insert_all": True},
        DATA,
    ),
    "update_table": ({**PLAIN, "updates": [["v", "'z'"]]}, ()),
    "delete_from_table": ({**PLAIN, "predicate": "true"}, ()),
    "restore_table": ({**PLAIN, "version": 1}, ()),
    "alter_table_add_columns": (
        {**PLAIN, "new_columns": [{"name": "n", "expression": "id"}]},
        (),
    ),
    "alter_table_alter_columns": ({**PLAIN, "alterations": [{"path": "v", "rename": "w"}]}, ()),
    "alter_table_drop_columns": ({**PLAIN, "columns": ["v"]}, ()),
    "create_table_tag": ({**PLAIN, "tag": "b", "version": 1}, ()),
    "update_table_tag": ({**PLAIN, "tag": "a", "version": 1}, ()),
    "delete_table_tag": ({**PLAIN, "tag": "a"}, ()),
    "create_table_index": ({**KEYED, "column": "v", "index_type": "BTREE"}, ()),
    "create_table_scalar_index": ({**KEYED, "column": "v", "index_type": "BTREE"}, ()),
    "drop_table_index": ({**KEYED, "index_name": "v"}, ()),
}
READS: dict[str, dict[str, Any]] = {
    "query_table": PLAIN,
    "count_table_rows": PLAIN,
    "get_table_stats": PLAIN,
    "explain_table_query_plan": PLAIN,
    "analyze_table_query_plan": PLAIN,
    "list_table_tags": PLAIN,
    "get_table_tag_version": {**PLAIN, "tag": "a"},
    "list_table_indices": KEYED,
    "describe_table_index_stats": {**KEYED, "index_name": "v"},
}
INVALID, MISSING = errors.InvalidInputError, errors.TableNotFoundError
NO_COLUMN, SCHEMA = errors.TableColumnNotFoundError, errors.TableSchemaValidationError
NOT_OFFERED = errors.UnsupportedOperationError
NO_VERSION = errors.TableVersionNotFoundError
NO_TAG, TAG_EXISTS = errors.TableTagNotFoundError, errors.TableTagAlreadyExistsError
UNLIKE = (stream_of(pa.table({"other": [1]})),)
CUT = (DATA[0][: len(DATA[0]) // 2],)
BAD: list[tuple[str, dict[Any, Any], tuple[Any, ...], type[Exception]]] = [
    ("create_table", {**PLAIN}, DATA, errors.TableAlreadyExistsError),
    ("create_table", {"id": ["new"], "mode": "perhaps"}, DATA, INVALID),
    ("create_table", {"id": ["new"]}, (b"",), INVALID),
    ("create_table", {"id": ["new"]}, (None,), INVALID),
    ("create_table", {"id": ["new"]}, (rows(0, 1),), INVALID),
    ("create_table", {"id": ["new"]}, (b"no arrow at all",), INVALID),
    ("create_table", {"id": ["new"], "properties": {"owner": "me"}}, DATA, NOT_OFFERED),
    ("create_table", {"id": ["new"], "storage_options": {"a": "b"}}, DATA, NOT_OFFERED),
    ("create_table", {"id": ["new"], "properties": {"primary_key": "x"}}, DATA, SCHEMA),
    ("create_table", {"id": ["a.b", "c"]}, DATA, INVALID),
    ("insert_into_table", PLAIN, CUT, INVALID),
    ("insert_into_table", PLAIN, UNLIKE, SCHEMA),
    ("insert_into_table", {**PLAIN, "mode": "perhaps"}, DATA, INVALID),
    ("insert_into_table", {**PLAIN, "branch": "dev"}, DATA, NOT_OFFERED),
    ("insert_into_table", KEYED, (stream_of(rows(0, 1)),), INVALID),
    ("insert_into_table", {**KEYED, "mode": "overwrite"}, UNLIKE, SCHEMA),
    ("merge_insert_into_table", PLAIN, DATA, INVALID),
    ("merge_insert_into_table", {**PLAIN, "on": ["nowhere"]}, DATA, NO_COLUMN),
    ("merge_insert_into_table", {**PLAIN, "on": "id"}, DATA, INVALID),
    ("merge_insert_into_table", {**PLAIN, "on": ["id"], "timeout": "1s"}, DATA, NOT_OFFERED),
    ("update_table", {**PLAIN, "updates": [["nowhere", "1"]]}, (), NO_COLUMN),
    ("update_table", {**PLAIN, "updates": [["v", "1"], ["v", "2"]]}, (), INVALID),
    ("update_table", {**PLAIN, "updates": "v = 1"}, (), INVALID),
    ("update_table", {**KEYED, "updates": [["id", "1"]]}, (), INVALID),
    ("update_table", {**PLAIN, "updates": [["v", "'a'"]], "predicate": "id >"}, (), INVALID),
    ("delete_from_table", {**PLAIN, "predicate": "nowhere = 1"}, (), INVALID),
    ("delete_from_table", {**PLAIN, "predicate": 7}, (), INVALID),
    ("delete_from_table", PLAIN, (), INVALID),
    ("restore_table", {**PLAIN, "version": 77}, (), NO_VERSION),
    ("restore_table", {**PLAIN, "version": "1"}, (), INVALID),
    ("restore_table", {**PLAIN, "version": -1}, (), INVALID),
    ("alter_table_add_columns", {**PLAIN, "new_columns": []}, (), INVALID),
    ("alter_table_add_columns", {**PLAIN, "new_columns": [{"name": "n"}]}, (), INVALID),
    ("alter_table_drop_columns", {**PLAIN, "columns": ["v", "nowhere"]}, (), NO_COLUMN),
    (
        "alter_table_alter_columns",
        {**PLAIN, "alterations": [{"path": "v", "nullable": 1}]},
        (),
        INVALID,
    ),
    (
        "create_table_tag",
        {**PLAIN, "tag": "a", "version": 1},
        (),
        TAG_EXISTS,
    ),
    ("create_table_tag", {**PLAIN, "tag": "x" * 129, "version": 1}, (), INVALID),
    ("create_table_tag", {**PLAIN, "tag": 7, "version": 1}, (), INVALID),
    (
        "create_table_tag",
        {**PLAIN, "tag": "b", "version": 77},
        (),
        NO_VERSION,
    ),
    ("update_table_tag", {**PLAIN, "tag": "b", "version": 1}, (), NO_TAG),
    ("delete_table_tag", {**PLAIN, "tag": "b"}, (), NO_TAG),
    ("get_table_tag_version", {**PLAIN, "tag": "b"}, (), NO_TAG),
    ("list_table_versions", {**PLAIN, "page_token": "../.."}, (), INVALID),
    ("create_table_index", {**KEYED, "column": "nowhere", "index_type": "BTREE"}, (), NO_COLUMN),
    ("create_table_index", {**KEYED, "column": "v", "index_type": "magic"}, (), NOT_OFFERED),
    ("create_table_index", {**PLAIN, "column": "nowhere", "index_type": "BTREE"}, (), NO_COLUMN),
    ("drop_table_index", KEYED, (), INVALID),
    ("query_table", {**PLAIN, "filter": "id >"}, (), INVALID),
    ("query_table", {**PLAIN, "columns": ["nowhere"]}, (), SCHEMA),
    ("query_table", {**PLAIN, "columns": "id"}, (), INVALID),
    ("query_table", {**PLAIN, "k": -1}, (), INVALID),
    ("query_table", {**PLAIN, "vector": "near"}, (), INVALID),
    ("query_table", {**PLAIN, "order_by": ["id"]}, (), INVALID),
    ("query_table", {**PLAIN, "order_by": [{"column_name": "id"}]}, (), NOT_OFFERED),
    ("query_table", {**PLAIN, "version": 77}, (), NO_VERSION),
    ("query_table", {**PLAIN, 1: 2}, (), INVALID),
    ("count_table_rows", {**PLAIN, "predicate": object()}, (), INVALID),
    ("explain_table_query_plan", {**PLAIN, "query": {"id": ["k"]}}, (), INVALID),
    ("list_tables", {"id": 7}, (), INVALID),
    ("describe_table", {"id": [["p"]]}, (), INVALID),
]


@pytest.mark.parametrize(
    "wrong", BAD, ids=[f"{number}-{each[0]}" for number, each in enumerate(BAD)]
)
def test_a_wrong_request_is_refused_and_changes_nothing(
    db: Store, tables: SiltstoneNamespace, wrong: tuple[str, Any, tuple[Any, ...], type[Exception]]
) -> None:
    name, request, data, kind = wrong
    tables.create_table_tag({**PLAIN, "tag": "a", "version": 1})
    before = db.seq
    _refused(kind, lambda: getattr(tables, name)(request, *data))
    assert (db.seq, db.tables()) == (before, ["k", "p"])
    assert (keys(tables, KEYED), keys(tables, PLAIN)) == ([0, 1, 2], [0, 1, 2])


def _refused(kind: type[Exception], ask: Callable[[], object]) -> None:
    with pytest.raises(errors.LanceNamespaceError) as caught:
        ask()
    assert type(caught.value) is kind, repr(caught.value)
    assert "\n" not in str(caught.value)


def test_these_are_all_operations_on_rows() -> None:
    about_rows = {name for name, each in OPERATIONS.items() if "rows." in each.run.__module__}
    assert about_rows <= WRITES.keys() | READS.keys() <= OPERATIONS.keys()


def test_every_operation_refuses_what_is_no_request_of_it(
    db: Store, tables: SiltstoneNamespace
) -> None:
    before = db.seq
    for name, (request, data) in (WRITES | {name: (r, ()) for name, r in READS.items()}).items():
        operation = getattr(tables, name)
        for wrong in (None, 7, [], "p"):
            _refused(INVALID, lambda: operation(wrong, *data))  # noqa: B023 - called at once
        for member in ("no_such_member", "identity"):
            kind = INVALID if member == "no_such_member" else NOT_OFFERED
            _refused(kind, lambda: operation({**request, member: {"a": "b"}}, *data))  # noqa: B023
        for space in ("p", 7, [7], [""], ["p" * 200]):
            _refused(INVALID, lambda: operation({**request, "id": space}, *data))  # noqa: B023
        if name != "create_table":
            _refused(MISSING, lambda: operation({**request, "id": ["nobody"]}, *data))  # noqa: B023
        _refused(MISSING, lambda: operation({**request, "id": []}, *data))  # noqa: B023
    assert db.seq == before


def test_an_answer_that_holds_too_much_is_refused(db: Store) -> None:
    db.create_table("p", rows(0, 1).schema).append(rows(0, 10_000))
    scope = LiveScope(db, Turns())
    scope.limits = RowLimits(collected_bytes_max=10_000, collected_rows_max=1_000)
    with pytest.raises(st.SiltstoneError, match="more than 10000 bytes"):
        answer(scope, "query_table", PLAIN)
    with pytest.raises(st.SiltstoneError, match="holds more than 1000 rows"):
        answer(scope, "update_table", {**PLAIN, "updates": [["v", "'z'"]]})
    assert answer(scope, "count_table_rows", PLAIN) == {"count": 10_000}


def test_other_clients_see_the_rows(tmp_path: Path, tables: SiltstoneNamespace) -> None:
    tables.insert_into_table(PLAIN, stream_of(rows(3, 4)))
    assert ids(opened(tables, "p")) == [0, 1, 2, 3]
    assert [v.version for v in tables.list_table_versions(PLAIN).versions] == [1, 2]


# statements that are refused half-way

TWICE = pa.table({"id": [7, 7], "v": ["a", "b"]})
ALL = {"when_matched_update_all": True, "when_not_matched_insert_all": True}
NEW_COLUMN = {"name": "n", "expression": "id"}
HALF: dict[str, tuple[str, dict[str, Any], tuple[bytes, ...]]] = {
    "a key twice in a new table": (
        "create_table",
        {"id": ["new"], "properties": {"primary_key": "id"}},
        (stream_of(TWICE),),
    ),
    "a key twice in a table made anew": (
        "create_table",
        {**KEYED, "mode": "overwrite", "properties": {"primary_key": "id"}},
        (stream_of(TWICE),),
    ),
    "a key twice in rows that replace all": (
        "insert_into_table",
        {**KEYED, "mode": "overwrite"},
        (stream_of(TWICE),),
    ),
    "other columns in rows that replace all": (
        "insert_into_table",
        {**KEYED, "mode": "overwrite"},
        UNLIKE,
    ),
    "a column that is there already": (
        "alter_table_add_columns",
        {**KEYED, "new_columns": [NEW_COLUMN, {"name": "v", "expression": "id"}]},
        (),
    ),
    "a value that is no number": (
        "alter_table_add_columns",
        {**PLAIN, "new_columns": [NEW_COLUMN, {"name": "m", "expression": "cast(v as int)"}]},
        (),
    ),
    "no expression": (
        "alter_table_add_columns",
        {**PLAIN, "new_columns": [NEW_COLUMN, {"name": "m"}]},
        (),
    ),
    "a merge whose new rows lack a column": (
        "merge_insert_into_table",
        {**KEYED, "on": ["id"], **ALL, "when_not_matched_by_source_delete": True},
        (stream_of(pa.table({"id": [0, 9], "other": ["a", "b"]})),),
    ),
    "a merge whose filter is wrong": (
        "merge_insert_into_table",
        {
            **KEYED,
            "on": ["id"],
            **ALL,
            "when_not_matched_by_source_delete": True,
            "when_not_matched_by_source_delete_filt": "nowhere = 1",
        },
        (stream_of(rows(2, 6, "new")),),
    ),
    "a second name that is taken": (
        "alter_table_alter_columns",
        {**PLAIN, "alterations": [{"path": "v", "rename": "w"}, {"path": "id", "rename": "w"}]},
        (),
    ),
    "a second column of the key": (
        "alter_table_drop_columns",
        {**KEYED, "columns": ["v", "id"]},
        (),
    ),
}


@pytest.mark.parametrize("what", HALF)
def test_a_statement_that_is_refused_half_way_leaves_no_half_in_its_transaction(
    db: Store, tables: SiltstoneNamespace, what: str
) -> None:
    name, request, data = HALF[what]
    with tables.transaction() as tx:
        for table in (KEYED, PLAIN):
            tx.insert_into_table(table, stream_of(rows(3, 4)))
        with pytest.raises(errors.LanceNamespaceError):
            getattr(tx, name)(request, *data)
        for table in (KEYED, PLAIN):
            tx.insert_into_table(table, stream_of(rows(4, 5)))
    assert db.tables() == ["k", "p"]
    for table in (KEYED, PLAIN):
        everything = sorted(found(tables, table), key=lambda row: row["id"])
        assert everything == rows(0, 5).to_pylist()
    assert db.verify().is_sound


def test_rows_of_an_older_schema_are_not_restored_half_way(
    db: Store, tables: SiltstoneNamespace
) -> None:
    version = db.seq
    tables.alter_table_drop_columns({**KEYED, "columns": ["v"]})
    with tables.transaction() as tx:
        with pytest.raises(errors.TableSchemaValidationError):
            tx.restore_table({**KEYED, "version": version})
        tx.insert_into_table(PLAIN, stream_of(rows(3, 4)))
    assert keys(tables, KEYED) == [0, 1, 2]
