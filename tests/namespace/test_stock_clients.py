"""A stock Lance client works on a store's tables, and siltstone reads and writes what it made."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.api.store import Store
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.clients import append, ids, make, opened, rows


def test_what_a_client_creates_and_appends_is_a_plain_table(
    db: Store, ns: SiltstoneNamespace
) -> None:
    make(ns, "t", rows(0, 100))
    dataset = append(ns, "t", rows(100, 150))
    assert dataset.version == 2
    assert db.tables() == ["t"]
    assert db["t"].count() == 150
    assert db["t"].schema == pa.schema({"id": pa.int64(), "v": pa.string()})


@pytest.mark.parametrize("has_stable_ids", [False, True])
def test_every_kind_of_commit_is_read_alike(
    db: Store, ns: SiltstoneNamespace, has_stable_ids: bool
) -> None:
    make(ns, "t", rows(0, 100), max_rows_per_file=30, enable_stable_row_ids=has_stable_ids)
    opened(ns, "t").delete("id % 10 = 3")
    merge = opened(ns, "t").merge_insert("id").when_matched_update_all()
    merge.when_not_matched_insert_all().execute(rows(95, 105, "new"))
    opened(ns, "t").create_scalar_index("id", "BTREE")
    opened(ns, "t").update({"v": "'u'"}, where="id < 5")
    opened(ns, "t").insert(rows(200, 210))
    opened(ns, "t").optimize.compact_files()
    opened(ns, "t").optimize.optimize_indices()
    opened(ns, "t").add_columns({"twice": "id * 2"})
    opened(ns, "t").alter_columns({"path": "v", "name": "w"})
    opened(ns, "t").drop_columns(["twice"])
    theirs = opened(ns, "t").to_table().sort_by("id")
    assert db["t"].to_arrow().sort_by("id").to_pylist() == theirs.to_pylist()
    found = db["t"].to_arrow(filter="id >= 90 and w = 'new'")["id"].to_pylist()
    assert sorted(found) == list(range(95, 105))
    assert "damage" not in str(db.verify(deep=True)).lower()


def test_scans_with_positions_count_the_rows_that_live(db: Store, ns: SiltstoneNamespace) -> None:
    make(ns, "t", rows(0, 100), max_rows_per_file=30)
    opened(ns, "t").delete("id % 7 = 0 or id between 31 and 44")
    left = [i for i in range(100) if i % 7 and not 31 <= i <= 44]
    db["t"].delete_where("id % 5 = 1 or id = 99")
    left = [i for i in left if i % 5 != 1 and i != 99]
    assert sorted(db["t"].to_arrow()["id"].to_pylist()) == left
    assert ids(opened(ns, "t")) == left


def test_statements_of_both_sides_follow_each_other(db: Store, ns: SiltstoneNamespace) -> None:
    make(ns, "t", rows(0, 10))
    db["t"].append(rows(10, 20))
    handle = opened(ns, "t")
    db["t"].delete_where("id < 5")
    handle.insert(rows(20, 25))
    assert ids(opened(ns, "t")) == list(range(5, 25))
    db["t"].overwrite(rows(0, 3))
    assert ids(opened(ns, "t")) == [0, 1, 2]
    db["t"].add_column("note", "string")
    assert opened(ns, "t").schema.names == ["id", "v", "note"]
    db["t"].truncate()
    assert opened(ns, "t").count_rows() == 0


def test_a_delete_that_was_planned_below_a_rewrite_is_not_lost(
    db: Store, ns: SiltstoneNamespace
) -> None:
    make(ns, "t", rows(0, 100))
    stale = [opened(ns, "t") for _ in range(2)]
    with db.transaction() as tx:  # several numbers at once
        tx["t"].append(rows(100, 110))
        tx["t"].delete_where("id < 50")
        tx["t"].delete_where("id > 107")
    stale[0].delete("id = 77")
    stale[1].update({"v": "'new'"}, where="id = 78")
    assert ids(opened(ns, "t")) == [i for i in range(50, 108) if i != 77]
    assert db["t"].to_arrow(filter="v = 'new'")["id"].to_pylist() == [78]


def test_a_table_that_siltstone_made_is_opened_before_it_has_rows(
    db: Store, ns: SiltstoneNamespace
) -> None:
    db.create_table("t", {"id": "int64", "v": "string"})
    assert opened(ns, "t").count_rows() == 0
    append(ns, "t", rows(0, 5))
    assert db["t"].count() == 5


def test_a_declared_table_is_listed_and_empty(db: Store, ns: SiltstoneNamespace) -> None:
    from lance_namespace import DeclareTableRequest, DescribeTableRequest, ListTablesRequest

    ns.declare_table(DeclareTableRequest(id=["t"]))
    assert db["t"].count() == 0
    assert db["t"].to_arrow().num_rows == 0
    assert ns.describe_table(DescribeTableRequest(id=["t"])).is_only_declared
    assert ns.list_tables(ListTablesRequest(id=[])).tables == ["t"]
    assert ns.list_tables(ListTablesRequest(id=[], include_declared=False)).tables == []


def test_it_survives_reopening_and_checkpoints(tmp_path: Path) -> None:
    for is_flushed in (False, True):
        where = tmp_path / str(is_flushed)
        with st.connect(where, background=False) as db:
            ns = SiltstoneNamespace(db)
            make(ns, "t", rows(0, 100))
            opened(ns, "t").delete("id < 10")
            if is_flushed:
                db.checkpoint()
            append(ns, "t", rows(100, 110))
        with st.connect(where, background=False) as db:
            assert ids(opened(SiltstoneNamespace(db), "t")) == list(range(10, 110))
            assert db["t"].count() == 100


def test_vacuum_keeps_what_versions_need_and_takes_the_rest(
    db: Store, ns: SiltstoneNamespace
) -> None:
    make(ns, "t", rows(0, 100), max_rows_per_file=50)
    opened(ns, "t").delete("id = 3")
    opened(ns, "t").create_scalar_index("id", "BTREE")
    folder = next((db.path / "tables").iterdir())
    (folder / "_indices" / "stray").mkdir()
    (folder / "_indices" / "stray" / "page_data.lance").write_bytes(b"x")
    (folder / "_deletions" / "9-9-9.arrow").write_bytes(b"x")
    db.checkpoint()
    db.vacuum(dry_run=False, grace_s=-10)
    assert not (folder / "_indices" / "stray" / "page_data.lance").exists()
    assert not (folder / "_deletions" / "9-9-9.arrow").exists()
    dataset = opened(ns, "t")
    assert dataset.count_rows("id = 3") == 0
    assert dataset.count_rows() == 99
    assert "IndexQuery" in dataset.scanner(filter="id = 5").explain_plan() or dataset.has_index


def test_readers_of_the_plain_path_see_what_was_committed(
    db: Store, ns: SiltstoneNamespace
) -> None:
    make(ns, "t", rows(0, 10))
    append(ns, "t", rows(10, 20))
    folder = next((db.path / "tables").iterdir())
    assert lance.dataset(str(folder)).count_rows() == 20


def test_old_versions_are_opened_by_number(ns: SiltstoneNamespace) -> None:
    make(ns, "t", rows(0, 10))
    append(ns, "t", rows(10, 20))
    assert opened(ns, "t", version=1).count_rows() == 10
