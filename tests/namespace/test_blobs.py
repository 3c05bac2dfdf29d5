"""Blobs lie in tables without a key: siltstone reads their bytes, other clients parts of them.

What the store does not keep is refused with the name of the column, and nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from lance.namespace import RestNamespace

import siltstone as st
from siltstone.namespace import SiltstoneNamespace
from tests.server.stores import joined_to, opened

# The module says of none of its classes that others may import it.
models: Any = import_module("lance_namespace_urllib3_client.models")
MARK = {b"lance-encoding:blob": b"true"}
SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("b", pa.large_binary(), metadata=MARK)])
VALUES = [b"x" * 70_000, None, b"p", b"", b"y" * 90_000, b"z"]
"""Small, empty and missing ones between large ones: Lance once lost what came after them."""


def rows(first: int = 0) -> pa.Table:
    return pa.table({"id": range(first, first + len(VALUES)), "b": VALUES}, schema=SCHEMA)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False, retention="1000w") as db:
        yield db


def kept(db: Any, name: str = "t") -> dict[int, bytes | None]:
    found = db[name].to_arrow()
    assert found.schema.field("b").type == pa.large_binary()
    return dict(zip(found["id"].to_pylist(), found["b"].to_pylist(), strict=True))


def expected(*firsts: int) -> dict[int, bytes | None]:
    return {first + n: value for first in firsts for n, value in enumerate(VALUES)}


def opened_as(db: st.Store, client: str) -> Any:
    if client == "in process":
        return SiltstoneNamespace(db)
    return RestNamespace(uri=db.serve(port=0).url)


def bytes_of(dataset: lance.LanceDataset) -> dict[int, bytes | None]:
    """Return what the stock reader of blobs gives, by the ids of the rows."""
    ids = dataset.to_table(columns=["id"])["id"].to_pylist()
    files = dataset.take_blobs("b", indices=list(range(len(ids))))
    return {n: None if file is None else file.read() for n, file in zip(ids, files, strict=True)}


@pytest.mark.parametrize("schema", [SCHEMA, {"id": "int64", "b": "blob"}])
def test_a_table_keeps_its_blobs_at_every_level(store: st.Store, schema: Any) -> None:
    table = store.create_table("t", schema)
    assert table.schema.equals(SCHEMA, check_metadata=True)
    table.append(rows())
    table.append([{"id": 10 + n, "b": value} for n, value in enumerate(VALUES)])
    for _ in range(2):
        assert kept(store) == expected(0, 10)
        assert table.to_arrow(["b"], "id = 4")["b"].to_pylist() == [VALUES[4]]
        assert table.head(2, ["b"]).num_rows == 2
        store.checkpoint()
        store.optimize()
    assert store.verify(deep=True).is_sound
    store.vacuum(dry_run=False, grace_s=-1e9)
    assert kept(store) == expected(0, 10)
    table.delete_where("id < 10")
    seq = store.seq
    table.overwrite(rows(20))
    assert kept(store) == expected(20)
    with store.snapshot(seq=seq) as past:
        assert kept(past) == expected(10)
    table.overwrite(rows(0).slice(0, 0))
    table.append(rows(30))
    assert kept(store) == expected(30)
    table.truncate()
    table.append(rows(40))
    assert kept(store) == expected(40)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("b IS NULL", {1}),
        ("b IS NOT NULL AND id > 2", {3, 4, 5}),
        ("b = X'70'", {2}),
        ("b = X''", {3}),
        ("b IN (X'70', X'7a')", {2, 5}),
        ("b > X'78' AND NOT b = X'7a'", {0, 4}),
    ],
)
def test_filters_compare_the_bytes_of_blobs(store: st.Store, text: str, ids: set[int]) -> None:
    table = store.create_table("t", SCHEMA)
    table.append(rows())
    assert {*table.to_arrow(["id"], text)["id"].to_pylist()} == ids
    assert table.count(text) == len(ids)
    with store.snapshot() as snapshot:
        tasks = snapshot.scan_tasks("t", ["id"], text)
        assert {n for each in tasks for b in each.read() for n in b["id"].to_pylist()} == ids
    table.delete_where(text)
    assert kept(store) == {n: v for n, v in expected(0).items() if n not in ids}


def test_a_change_to_other_columns_leaves_the_bytes(store: st.Store) -> None:
    table = store.create_table("t", SCHEMA)
    table.append(rows())
    table.add_column("note", "string")
    table.rename_column("b", "c")
    table.rename_column("c", "b")
    table.append([{"id": 9, "b": b"new", "note": "n"}])
    assert kept(store) == expected(0) | {9: b"new"}
    assert table.schema.field("b").metadata == MARK
    table.drop_column("b")
    assert table.schema.names == ["id", "note"]


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(some.lists(some.none() | some.binary(max_size=6) | some.just(b"l" * 70_000), max_size=9))
def test_any_bytes_are_kept_by_compactions_and_deletes(
    tmp_path_factory: pytest.TempPathFactory, values: list[bytes | None]
) -> None:
    with opened(tmp_path_factory.mktemp("blobs") / "s") as store:
        table = store.create_table("t", SCHEMA)
        for n, value in enumerate(values):
            table.append({"id": n, "b": value})
        table.delete_where("id = 1")
        store.optimize()
        found = dict(enumerate(values))
        found.pop(1, None)
        assert kept(store) == found


def test_rows_by_position_have_their_blobs(store: st.Store) -> None:
    store.create_table("t", SCHEMA).append(rows())
    store.checkpoint()
    (table,) = store._parts.site.manifests.newest().catalog.tables
    pinned = store._parts.core.tables.reader.open(table.incarnations[-1].versions[-1].pin)
    places = np.array([4, 1, 4, 3])
    expected_rows = rows().take(pa.array(places))
    assert pinned.take(places).equals(expected_rows)
    assert pinned.take(places, ["b", "id"]).equals(expected_rows.select(["b", "id"]))
    assert pinned.take(places, ["b"]).equals(expected_rows.select(["b"]))
    assert pinned.sample(["b"]).equals(rows().select(["b"]))


def test_every_door_gives_the_bytes(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as owner, joined_to(owner) as socket:
        http = st.connect(owner.serve(port=0).url)
        for door in (owner, socket, http):
            made = door.create_table("t", SCHEMA)
            made.append(rows())
            assert kept(door) == expected(0)
            assert made.schema.equals(SCHEMA, check_metadata=True)
            assert pa.table(door.sql("SELECT b FROM t ORDER BY id"))["b"].to_pylist() == VALUES
            assert list(door.sql("SELECT id FROM t WHERE b = 'z'::BLOB")) == [(5,)]
            door.drop_table("t")
        http.close()


def test_a_backup_has_the_blobs(store: st.Store, tmp_path: Path) -> None:
    store.create_table("t", SCHEMA).append(rows())
    store.backup(tmp_path / "backup")
    st.restore(tmp_path / "backup", tmp_path / "restored")
    with opened(tmp_path / "restored") as restored:
        assert kept(restored) == expected(0)
        restored["t"].append(rows(10))
        assert kept(restored) == expected(0, 10)
        assert restored.verify(deep=True).is_sound


@pytest.mark.filterwarnings("ignore")
def test_blobs_that_were_appended_by_path_are_imported(store: st.Store) -> None:
    store.create_table("t", SCHEMA).append(rows())
    store.checkpoint()
    (folder,) = (store.path / "tables").glob("t-*")
    lance.write_dataset(rows(10), str(folder), mode="append")
    assert kept(store) == expected(0)
    store.import_external("t", dry_run=False)
    assert kept(store) == expected(0, 10)
    assert store.verify(deep=True).is_sound


CLIENTS = ("in process", "over REST")


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("made_by", ["siltstone", "the client"])
@pytest.mark.filterwarnings("ignore")  # of the client's own making
def test_other_clients_read_and_write_blobs(store: st.Store, client: str, made_by: str) -> None:
    space = opened_as(store, client)
    at: dict[str, Any] = {"namespace_client": space, "table_id": ["t"]}
    if made_by == "siltstone":
        store.create_table("t", SCHEMA).append(rows())
    else:
        lance.write_dataset(rows(), data_storage_version="2.1", **at)
    assert kept(store) == expected(0)
    assert store["t"].schema.field("b").metadata == MARK
    dataset = lance.dataset(**at)
    assert bytes_of(dataset) == expected(0)
    assert dataset.take_blobs("b", indices=[4])[0].read(3) == b"yyy"
    lance.write_dataset(rows(10), mode="append", **at)
    assert kept(store) == expected(0, 10)
    lance.dataset(**at).optimize.compact_files()
    assert kept(store) == expected(0, 10)
    lance.dataset(**at).delete("id < 10")
    store["t"].append(rows(20))
    store.optimize()
    assert kept(store) == expected(10, 20)
    newest = lance.dataset(**at)
    assert bytes_of(newest) == expected(10, 20)
    first = next(each["version"] for each in newest.versions() if each["version"] > 1)
    lance.dataset(version=first, **at).restore()
    assert kept(store) == bytes_of(lance.dataset(**at))
    lance.write_dataset(rows(30), mode="overwrite", data_storage_version="2.1", **at)
    assert kept(store) == expected(30)
    store.checkpoint()
    store.vacuum(dry_run=False, grace_s=-1e9)
    assert store.verify(deep=True).is_sound
    assert kept(store) == expected(30)


def second_kind() -> pa.Table:
    return pa.table({"id": [1], "b": lance.blob_array([b"x" * 100_000])})


SECOND = r"column 'b' cannot be a blob column: .*write large_binary"
REFUSED: dict[str, tuple[Any, Any, str]] = {
    "a table with a key": (SCHEMA, "id", "column 'b' cannot be a blob column: a table with a pri"),
    "the second kind": (second_kind().schema, (), SECOND),
    "the second kind, unknown": (
        pa.schema([pa.field("b", pa.struct([("data", pa.large_binary())]),
                            metadata={"ARROW:extension:name": "lance.blob.v2"})]), (), SECOND,
    ),
    "a text": (pa.schema([pa.field("b", pa.string(), metadata=MARK)]), (), "is a large_binary"),
    "inside": (
        pa.schema([pa.field("b", pa.struct([SCHEMA.field("b")]))]), (), "a blob is a whole column",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_a_blob_is_refused_by_name(store: st.Store, name: str) -> None:
    schema, key, why = REFUSED[name]
    with pytest.raises(st.RequestError, match=why):
        store.create_table("t", schema, primary_key=key)
    assert store.tables() == []


def test_a_column_of_blobs_comes_with_its_table(store: st.Store) -> None:
    table = store.create_table("t", {"id": "int64"})
    with pytest.raises(st.RequestError, match="column 'b': a column of blobs comes with its table"):
        table.add_column("b", "blob")
    assert table.schema.names == ["id"]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.filterwarnings("ignore")
def test_blobs_that_a_client_wrote_in_files_of_their_own_are_refused(
    store: st.Store, client: str
) -> None:
    space = opened_as(store, client)
    for written in (second_kind(), rows()):  # Lance's newest format makes these of the first kind
        at: dict[str, Any] = {"namespace_client": space, "table_id": ["t"]}
        with pytest.raises(Exception, match=f"{SECOND}|Commit result for version 1 is unknown"):
            lance.write_dataset(written, **at)
        assert store.tables() == []
        with pytest.raises(Exception, match=f"the last commit to it was refused: {SECOND}"):
            space.describe_table(models.DescribeTableRequest(id=["t"]))
    store.create_table("t", {"id": "int64"}).append([{"id": 1}])
    with pytest.raises(Exception, match=r"column 'b' cannot be a blob|is unknown"):
        lance.dataset(namespace_client=space, table_id=["t"]).add_columns(SCHEMA.field("b"))
    assert store["t"].schema.names == ["id"]
    assert store["t"].to_arrow().to_pylist() == [{"id": 1}]
