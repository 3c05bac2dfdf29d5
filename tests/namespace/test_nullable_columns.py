"""A column that may not be null may be from some commit on; what was before stays as it was."""

# pyright: reportArgumentType=false

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace import errors

import siltstone as st
from siltstone.api.store import Store
from siltstone.lance_namespace.specification import bodies, schema_json
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.clients import opened
from tests.server.rest import stream_of
from tests.server.stores import opened as open_store

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("v", pa.string(), nullable=False),
        pa.field("tags", pa.list_(pa.string()), nullable=False),
    ]
)
NULLS = [{"id": 9, "v": None, "tags": None}]


def rows_of(start: int, stop: int) -> pa.Table:
    rows = [{"id": n, "v": f"v{n}", "tags": [str(n)]} for n in range(start, stop)]
    return pa.Table.from_pylist(rows, SCHEMA)


def filled(db: Store) -> SiltstoneNamespace:
    """Make a keyed and a plain table whose columns are not null, with rows in each."""
    ns = SiltstoneNamespace(db)
    ns.create_table({"id": ["k"], "properties": {"primary_key": "id"}}, stream_of(rows_of(0, 3)))
    ns.create_table({"id": ["p"]}, stream_of(rows_of(0, 3)))
    db.checkpoint()
    db.merge()
    return ns


def allow(ns: SiltstoneNamespace, name: str, *columns: str, **members: Any) -> int:
    alterations = [{"path": column, "nullable": True, **members} for column in columns]
    return ns.alter_table_alter_columns({"id": [name], "alterations": alterations}).version


def write(db: Store, name: str, rows: Any) -> None:
    table = db[name]
    (table.upsert if table.primary_key else table.append)(rows)


def nullable_of(source: Any, name: str) -> dict[str, bool]:
    return {field.name: field.nullable for field in source[name].schema}


def ids_without_text(source: Any, name: str) -> list[int]:
    found = source[name].to_arrow(["id", "v", "tags"], "v IS NULL")
    assert found["tags"].null_count == found.num_rows
    return found["id"].to_pylist()


@pytest.mark.parametrize("name", ["k", "p"])
def test_a_column_may_be_null_from_a_commit_on(db: Store, name: str) -> None:
    ns = filled(db)
    write(db, name, rows_of(3, 4))
    before = db.snapshot()
    with pytest.raises(st.SchemaMismatchError, match="'v'"):
        write(db, name, NULLS)
    allow(ns, name, "v", "tags")
    assert nullable_of(db, name) == {"id": False, "v": True, "tags": True}
    assert nullable_of(before, name) == {"id": False, "v": False, "tags": False}
    write(db, name, NULLS)
    assert ids_without_text(db, name) == [9]
    assert before[name].count() == 4
    db.checkpoint()
    db.merge()
    assert ids_without_text(db, name) == [9]
    assert db[name].count() == 5
    assert before[name].to_arrow().schema.field("v").nullable is False
    assert before[name].count() == 4
    assert db.verify(deep=True).findings == ()
    before.close()


@pytest.mark.parametrize("name", ["k", "p"])
def test_it_is_there_after_the_store_was_opened_again(tmp_path: Path, name: str) -> None:
    with open_store(tmp_path / "s") as db:
        allow(filled(db), name, "v", "tags")
        write(db, name, NULLS)
    with open_store(tmp_path / "s") as db:
        assert nullable_of(db, name) == {"id": False, "v": True, "tags": True}
        assert ids_without_text(db, name) == [9]


@pytest.mark.parametrize("name", ["k", "p"])
def test_it_is_in_the_log_before_any_checkpoint(db: Store, tmp_path: Path, name: str) -> None:
    allow(filled(db), name, "v", "tags")
    write(db, name, NULLS)
    shutil.copytree(db.path, tmp_path / "crashed")  # as a kill would leave it
    with open_store(tmp_path / "crashed") as again:
        assert nullable_of(again, name) == {"id": False, "v": True, "tags": True}
        assert ids_without_text(again, name) == [9]
        again.checkpoint()
        again.merge()
        assert ids_without_text(again, name) == [9]


@pytest.mark.parametrize("name", ["k", "p"])
def test_the_answer_of_describe_says_it(db: Store, name: str) -> None:
    ns = filled(db)
    allow(ns, name, "v")
    db.checkpoint()
    db.merge()
    asked = {"id": [name], "load_detailed_metadata": True}
    fields = ns.describe_table(asked).var_schema.fields
    assert [(field.name, field.nullable) for field in fields] == [
        ("id", False),
        ("v", True),
        ("tags", False),
    ]
    assert [field.nullable for field in opened(ns, name).schema] == [False, True, False]


def test_a_plain_table_has_another_version_of_the_same_rows(db: Store) -> None:
    ns = filled(db)
    before = len(ns.list_table_versions({"id": ["p"]}).versions)
    version = allow(ns, "p", "v")
    listed = [each.version for each in ns.list_table_versions({"id": ["p"]}).versions]
    assert (len(listed), max(listed)) == (before + 1, version)
    assert db["p"].count() == 3


@pytest.mark.parametrize("name", ["k", "p"])
def test_a_column_gets_another_name_at_once(db: Store, name: str) -> None:
    allow(filled(db), name, "v", rename="w")
    assert nullable_of(db, name) == {"id": False, "w": True, "tags": False}


@pytest.mark.parametrize("name", ["k", "p"])
def test_a_column_that_may_be_null_stays_as_it_is(db: Store, name: str) -> None:
    ns = filled(db)
    allow(ns, name, "v")
    version = allow(ns, name, "v")
    assert version == allow(ns, name, "v")
    assert nullable_of(db, name)["v"]


@pytest.mark.parametrize("name", ["k", "p"])
def test_all_of_it_is_done_or_nothing(db: Store, name: str) -> None:
    ns = filled(db)
    seq = db.seq
    with pytest.raises(errors.TableColumnNotFoundError):
        allow(ns, name, "v", "none")
    assert db.seq == seq
    assert nullable_of(db, name)["v"] is False


def test_a_column_of_the_key_is_never_null(db: Store) -> None:
    ns, seq = filled(db), db.seq
    with pytest.raises(errors.InvalidInputError, match="'id' is part of the key"):
        allow(ns, "k", "id")
    assert db.seq == seq
    allow(ns, "p", "id")
    assert nullable_of(db, "p")["id"]


KINDS = [
    ({"type": "large_utf8"}, pa.large_string()),
    ("large_string", pa.large_string()),
    ({"type": "binary"}, pa.binary()),
]


@pytest.mark.parametrize("name", ["k", "p"])
@pytest.mark.parametrize(("named", "kind"), KINDS)
def test_a_column_gets_another_type(db: Store, name: str, named: Any, kind: pa.DataType) -> None:
    ns = filled(db)
    alteration = {"path": "v", "nullable": True, "data_type": named}
    ns.alter_table_alter_columns({"id": [name], "alterations": [alteration]})
    field = db[name].schema.field("v")
    assert (field.type, field.nullable) == (kind, True)
    shown = sorted(str(v) for v in db[name].to_arrow().column("v").cast(pa.string()).to_pylist())
    assert shown == ["v0", "v1", "v2"]


NAMED = [
    ("int8", pa.int8()),
    ({"type": "halffloat"}, pa.float16()),
    ({"type": "float"}, pa.float32()),
    ({"type": "float64"}, pa.float64()),
    ({"type": "date32:day"}, pa.date32()),
    ({"type": "date64:ms"}, pa.date64()),
    ({"type": "timestamp:us:-"}, pa.timestamp("us")),
    ({"type": "timestamp:ms:+02:00"}, pa.timestamp("ms", "+02:00")),
    ({"type": "time32:s"}, pa.time32("s")),
    ({"type": "duration:ns"}, pa.duration("ns")),
    ({"type": "decimal:128:10:2"}, pa.decimal128(10, 2)),
    ({"type": "fixed_size_binary", "length": 4}, pa.binary(4)),
]


@pytest.mark.parametrize(("named", "kind"), NAMED)
def test_types_are_named_as_lance_and_arrow_do(db: Store, named: Any, kind: pa.DataType) -> None:
    wanted = named if isinstance(named, str) else bodies.WantedType(**named)
    assert schema_json.type_named(wanted) == kind


@pytest.mark.parametrize("kind", ["nothing", {"type": "list"}, {"type": "struct", "fields": []},
                                  {}, 5, {"type": "utf8:x:y:z"}])  # fmt: skip
def test_what_is_no_type_is_refused(db: Store, kind: Any) -> None:
    ns, seq = filled(db), db.seq
    request = {"id": ["k"], "alterations": [{"path": "v", "data_type": kind}]}
    with pytest.raises((errors.InvalidInputError, errors.UnsupportedOperationError)):
        ns.alter_table_alter_columns(request)
    assert db.seq == seq


def test_a_column_takes_no_null_again(db: Store) -> None:
    ns = filled(db)
    strict = [{"path": "v", "nullable": False}]
    for name in ("k", "p"):
        allow(ns, name, "v")
        ns.alter_table_alter_columns({"id": [name], "alterations": strict})
        assert not nullable_of(db, name)["v"]


def test_nullable_is_true_or_false(db: Store) -> None:
    ns = filled(db)
    request = {"id": ["k"], "alterations": [{"path": "v", "nullable": "yes"}]}
    with pytest.raises(errors.InvalidInputError, match="nullable"):
        ns.alter_table_alter_columns(request)


def test_a_writer_that_is_open_goes_on(db: Store) -> None:
    ns = filled(db)
    tx = db.transaction()
    tx["k"].upsert(rows_of(5, 6))
    allow(ns, "k", "v", "tags")
    tx.commit()
    write(db, "k", NULLS)
    assert db["k"].count() == 5


def test_changes_show_rows_of_before_and_after(db: Store) -> None:
    ns, since = filled(db), db.seq
    write(db, "k", rows_of(3, 4))
    allow(ns, "k", "v", "tags")
    write(db, "k", NULLS)
    found = db.changes(since, tables=["k"])["k"].read_all()
    assert found["v"].to_pylist() == ["v3", None]
