"""Metadata of a table and of its columns: kept with the definition, shown with the schema."""

# pyright: reportArgumentType=false

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace import errors

import siltstone as st
from siltstone.api.store import Store
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.clients import opened
from tests.server.rest import stream_of
from tests.server.stores import joined_to
from tests.server.stores import opened as open_store

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
METADATA_BYTES_MAX = 65_536
BOTH = pytest.mark.parametrize("name", ["k", "p"])


def filled(db: Store) -> SiltstoneNamespace:
    """Make a keyed and a plain table with rows in each."""
    ns, rows = SiltstoneNamespace(db), pa.table({"id": [1, 2], "v": ["a", "b"]}, SCHEMA)
    ns.create_table({"id": ["k"], "properties": {"primary_key": "id"}}, stream_of(rows))
    ns.create_table({"id": ["p"]}, stream_of(rows))
    db.checkpoint()
    db.merge()
    return ns


@pytest.fixture(params=["own", "joined"])
def ns(db: Store, request: pytest.FixtureRequest) -> Iterator[SiltstoneNamespace]:
    filled(db)
    with ExitStack() as held:
        store = db if request.param == "own" else held.enter_context(joined_to(db))
        yield SiltstoneNamespace(store)


def note(ns: SiltstoneNamespace, name: str, **metadata: str) -> dict[str, str]:
    """Set the metadata of a table."""
    return ns.update_table_schema_metadata({"id": [name], "metadata": metadata}).metadata


def note_column(
    ns: SiltstoneNamespace, name: str, path: str, metadata: dict[str, str | None], **members: Any
) -> dict[str, dict[str, str]]:
    update = {"path": path, "metadata": metadata, **members}
    return ns.update_field_metadata({"id": [name], "updates": [update]}).fields


def noted(schema: pa.Schema) -> tuple[dict[bytes, bytes], dict[str, dict[bytes, bytes]]]:
    """Return the metadata of a schema, and that of its columns that have some."""
    columns = {field.name: field.metadata for field in schema if field.metadata}
    return schema.metadata or {}, columns


def told(ns: SiltstoneNamespace, name: str) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return the same as describe says it."""
    asked = {"id": [name], "load_detailed_metadata": True}
    schema = ns.describe_table(asked).var_schema
    return schema.metadata, {f.name: f.metadata for f in schema.fields if f.metadata}


def queried(ns: SiltstoneNamespace, name: str, **members: Any) -> pa.Table:
    data = ns.query_table({"id": [name], "k": 9, **members}).data
    return pa.ipc.open_file(data).read_all()


@BOTH
def test_it_is_in_the_schema_everywhere(db: Store, ns: SiltstoneNamespace, name: str) -> None:
    assert note(ns, name, owner="us", source="Meßgerät") == {"owner": "us", "source": "Meßgerät"}
    assert note_column(ns, name, "v", {"unit": "m"}) == {"v": {"unit": "m"}}
    wanted = {b"owner": b"us", b"source": "Meßgerät".encode()}, {"v": {b"unit": b"m"}}
    assert noted(db[name].schema) == wanted
    assert noted(queried(ns, name).schema) == wanted
    assert noted(queried(ns, name, columns=["id"]).schema) == (wanted[0], {})
    assert told(ns, name) == ({"owner": "us", "source": "Meßgerät"}, {"v": {"unit": "m"}})
    assert queried(ns, name)["v"].to_pylist() == ["a", "b"]


@BOTH
def test_a_column_that_is_computed_has_none(ns: SiltstoneNamespace, name: str) -> None:
    note_column(ns, name, "v", {"unit": "m"})
    assert noted(queried(ns, name, columns={"v": "upper(v)"}).schema) == ({}, {})
    assert noted(queried(ns, name, columns={"w": "v"}).schema) == ({}, {"w": {b"unit": b"m"}})


@BOTH
def test_that_of_a_table_is_replaced(db: Store, ns: SiltstoneNamespace, name: str) -> None:
    note(ns, name, owner="us", source="here")
    assert note(ns, name, owner="you") == {"owner": "you"}
    assert note(ns, name) == {}
    assert noted(db[name].schema) == ({}, {})


@BOTH
def test_that_of_a_column_is_laid_over_what_it_has(ns: SiltstoneNamespace, name: str) -> None:
    note_column(ns, name, "v", {"a": "1", "b": "2"})
    assert note_column(ns, name, "v", {"b": None, "c": "3"}) == {"v": {"a": "1", "c": "3"}}
    assert note_column(ns, name, "v", {"d": "4", "e": None}, replace=True) == {"v": {"d": "4"}}
    assert note_column(ns, name, "v", {}, replace=True) == {"v": {}}
    assert told(ns, name) == ({}, {})


@BOTH
def test_several_columns_are_noted_at_once_or_none(
    db: Store, ns: SiltstoneNamespace, name: str
) -> None:
    updates = [{"path": "v", "metadata": {"a": "1"}}, {"path": "id", "metadata": {"b": "2"}}]
    found = ns.update_field_metadata({"id": [name], "updates": updates})
    assert found.fields == {"v": {"a": "1"}, "id": {"b": "2"}}
    seq = db.seq
    updates = [{"path": "v", "metadata": {"a": "7"}}, {"path": "none", "metadata": {"b": "2"}}]
    with pytest.raises(errors.TableColumnNotFoundError, match="none"):
        ns.update_field_metadata({"id": [name], "updates": updates})
    assert db.seq == seq


def test_the_answer_says_the_version(db: Store, ns: SiltstoneNamespace) -> None:
    update = {"updates": [{"path": "v", "metadata": {"a": "1"}}]}
    assert ns.update_field_metadata({"id": ["k"], **update}).version == db.seq
    plain = ns.describe_table({"id": ["p"], "load_detailed_metadata": True}).version
    assert ns.update_field_metadata({"id": ["p"], **update}).version == plain


@BOTH
def test_what_is_there_already_is_no_change(ns: SiltstoneNamespace, db: Store, name: str) -> None:
    note(ns, name, owner="us")
    note_column(ns, name, "v", {"unit": "m"})
    schema = db[name].schema
    note(ns, name, owner="us")
    note_column(ns, name, "v", {"unit": "m"})
    assert noted(db[name].schema) == noted(schema)


@BOTH
def test_the_past_has_its_own(db: Store, ns: SiltstoneNamespace, name: str) -> None:
    note(ns, name, owner="us")
    with db.snapshot() as past:
        note(ns, name, owner="you")
        note_column(ns, name, "v", {"unit": "m"})
        assert noted(past[name].schema) == ({b"owner": b"us"}, {})
        db.checkpoint()
        db.merge()
        assert noted(past[name].schema) == ({b"owner": b"us"}, {})


@BOTH
def test_it_stays_through_other_changes_of_the_table(
    db: Store, ns: SiltstoneNamespace, name: str
) -> None:
    note(ns, name, owner="us")
    note_column(ns, name, "v", {"unit": "m"})
    table = db[name]
    table.add_column("more", "int64")
    table.rename_column("v", "w")
    table.drop_column("more")
    db.rename_table(name, "other")
    db.checkpoint()
    db.merge()
    db["other"].truncate()
    assert noted(db["other"].schema) == ({b"owner": b"us"}, {"w": {b"unit": b"m"}})
    db["other"].drop_column("w")
    assert noted(db["other"].schema) == ({b"owner": b"us"}, {})


@BOTH
def test_it_is_there_after_a_crash_and_in_a_backup(db: Store, tmp_path: Path, name: str) -> None:
    ns = filled(db)
    note(ns, name, owner="us")
    note_column(ns, name, "v", {"unit": "m"})
    shutil.copytree(db.path, tmp_path / "crashed")  # as a kill would leave it
    db.backup(tmp_path / "copy")
    st.restore(tmp_path / "copy", tmp_path / "restored")
    for path in ("crashed", "restored"):
        with open_store(tmp_path / path) as again:
            assert noted(again[name].schema) == ({b"owner": b"us"}, {"v": {b"unit": b"m"}})
            again.checkpoint()
            again.merge()
            assert again.verify(deep=True).findings == ()
        with open_store(tmp_path / path) as again:
            assert noted(again[name].schema) == ({b"owner": b"us"}, {"v": {b"unit": b"m"}})


@BOTH
def test_rows_are_written_as_before(db: Store, ns: SiltstoneNamespace, name: str) -> None:
    tx = db.transaction()
    (tx[name].upsert if name == "k" else tx[name].append)({"id": 3, "v": "c"})
    note(ns, name, owner="us")
    note_column(ns, name, "v", {"unit": "m"})
    tx.commit()
    (db[name].upsert if name == "k" else db[name].append)([{"id": 4, "v": "d"}])
    db.checkpoint()
    db.merge()
    assert sorted(db[name].to_arrow()["id"].to_pylist()) == [1, 2, 3, 4]
    assert db.verify(deep=True).findings == ()


def test_versions_of_lance_clients_keep_it(db: Store) -> None:
    ns = filled(db)
    note(ns, "p", owner="us")
    note_column(ns, "p", "v", {"unit": "m"})
    opened(ns, "p").add_columns({"twice": "id * 2"})
    opened(ns, "p").delete("id = 1")
    assert db["p"].schema.names == ["id", "v", "twice"]
    assert noted(db["p"].schema) == ({b"owner": b"us"}, {"v": {b"unit": b"m"}})


def test_in_a_transaction_it_is_seen_before_the_commit_and_gone_after_a_rollback(
    db: Store, ns: SiltstoneNamespace
) -> None:
    with ns.transaction() as tx:
        note(tx, "k", owner="us")
        note_column(tx, "p", "v", {"unit": "m"})
        assert noted(queried(tx, "p").schema)[1] == {"v": {b"unit": b"m"}}
    assert noted(db["k"].schema) == ({b"owner": b"us"}, {})
    tx = ns.transaction()
    note(tx, "k", owner="you")
    tx.rollback()
    assert noted(db["k"].schema) == ({b"owner": b"us"}, {})


RESERVED = [
    *("ARROW:extension:name", "arrow:extension:metadata", "lance-encoding:blob"),
    *(
        "lance-schema:unenforced-primary-key",
        "pandas",
        "siltstone.kind",
        "lance:x",
        "PARQUET:field_id",
        "SPARK::metadata::json",
    ),
]


@BOTH
@pytest.mark.parametrize("key", [*RESERVED, "", "x" * 257, "half \ud800"])
def test_a_key_that_means_something_or_is_none_is_refused(
    db: Store, ns: SiltstoneNamespace, name: str, key: str
) -> None:
    seq = db.seq
    with pytest.raises(errors.InvalidInputError):
        note(ns, name, **{key: "x"})
    with pytest.raises(errors.InvalidInputError):
        note_column(ns, name, "v", {key: "x"})
    assert db.seq == seq


def test_keys_of_lancedb_are_taken(ns: SiltstoneNamespace) -> None:
    found = {"lancedb:description": "what it is", "lancedb:tag:model": "clip"}
    assert note_column(ns, "k", "v", found) == {"v": found}


@BOTH
def test_it_is_bounded_for_a_table_with_all_its_columns(
    db: Store, ns: SiltstoneNamespace, name: str
) -> None:
    half = "ß" * (METADATA_BYTES_MAX // 4)
    note_column(ns, name, "id", {"a": half})
    seq = db.seq
    with pytest.raises(errors.InvalidInputError, match=str(METADATA_BYTES_MAX)):
        note_column(ns, name, "v", {"a": half})
    with pytest.raises(errors.InvalidInputError, match=str(METADATA_BYTES_MAX)):
        note(ns, name, a=half)
    assert db.seq == seq
    note(ns, name, a=half[:-2])


def test_a_value_is_a_text(ns: SiltstoneNamespace) -> None:
    with pytest.raises(errors.InvalidInputError, match="'k'"):
        note(ns, "k", k="half \udfff")
    for wrong in ({"k": 5}, {5: "k"}, "k", None):
        with pytest.raises(errors.InvalidInputError, match="metadata"):
            ns.update_table_schema_metadata({"id": ["k"], "metadata": wrong})


def test_a_field_within_a_column_has_none(db: Store) -> None:
    db.create_table("s", pa.schema([("a", pa.struct([("b", pa.int64())]))]))
    ns = SiltstoneNamespace(db)
    with pytest.raises(errors.UnsupportedOperationError, match="within"):
        note_column(ns, "s", "a.b", {"unit": "m"})
    assert note_column(ns, "s", "a", {"unit": "m"}) == {"a": {"unit": "m"}}
    assert db["s"].schema.field("a").type == pa.struct([("b", pa.int64())])


def test_a_blob_stays_a_blob(db: Store) -> None:
    db.create_table("b", {"id": "int64", "data": "blob"})
    ns = SiltstoneNamespace(db)
    note_column(ns, "b", "data", {"kind": "jpeg"}, replace=True)
    assert db["b"].schema.field("data").metadata == {
        b"lance-encoding:blob": b"true",
        b"kind": b"jpeg",
    }
    db["b"].append([{"id": 1, "data": b"x"}])
    assert db["b"].count() == 1
