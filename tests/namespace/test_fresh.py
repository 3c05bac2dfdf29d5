"""Stock clients read a keyed table as of its last merge, or fresh; they never write it."""

from __future__ import annotations

from pathlib import Path

import duckdb
import lance
import lance_namespace.errors as spec_errors
import polars as pl
import pytest

import siltstone as st
from siltstone.api.store import Store
from siltstone.errors import BusyError, RequestError
from siltstone.lance_versions.fresh import FreshVersions
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.clients import append, ids, opened, rows

SCHEMA = {"id": "int64", "v": "string"}


@pytest.fixture
def keyed(db: Store) -> Store:
    """A table with ten rows in base, one of them changed and one deleted since, and one more."""
    table = db.create_table("t", SCHEMA, "id")
    table.upsert(rows(0, 10))
    db.checkpoint()
    db.merge()
    table.upsert([{"id": 3, "v": "new"}, {"id": 77, "v": "new"}])
    table.delete(5)
    return db


def eager(db: Store) -> SiltstoneNamespace:
    """Return a namespace that makes a version whenever a table has changed."""
    db._parts.fresh = FreshVersions(db._core, interval_s=0)
    return SiltstoneNamespace(db, keyed="fresh")


def shown(dataset: lance.LanceDataset) -> list[tuple[int, str]]:
    return sorted((row["id"], row["v"]) for row in dataset.to_table().to_pylist())


def test_merged_shows_the_last_merge_and_fresh_all_rows(keyed: Store) -> None:
    merged, fresh = SiltstoneNamespace(keyed), SiltstoneNamespace(keyed, keyed="fresh")
    assert shown(opened(merged, "t")) == [(n, "x") for n in range(10)]
    found = opened(fresh, "t")
    assert shown(found) == sorted(
        (row["id"], row["v"]) for row in keyed["t"].scan().read_all().to_pylist()
    )
    assert found.count_rows("v = 'new'") == 2
    assert found.take([0], columns=["id"])["id"].to_pylist() == [0]
    found.validate()
    assert found.version == keyed.seq


def test_duckdb_and_polars_read_what_a_client_opens(keyed: Store) -> None:
    wanted = sorted((row["id"], row["v"]) for row in keyed["t"].scan().read_all().to_pylist())
    found = opened(SiltstoneNamespace(keyed, keyed="fresh"), "t")
    assert duckdb.sql("SELECT * FROM found ORDER BY id").fetchall() == wanted
    assert duckdb.sql("SELECT id FROM found WHERE v = 'new' ORDER BY id").fetchall() == [
        (3,),
        (77,),
    ]
    lazy = pl.scan_pyarrow_dataset(found).filter(pl.col("v") == "new").select("id")
    assert sorted(lazy.collect()["id"]) == [3, 77]


def test_a_new_version_is_made_when_rows_came_and_only_then(keyed: Store) -> None:
    fresh = eager(keyed)
    handle = opened(fresh, "t")
    assert opened(fresh, "t").version == handle.version
    keyed["t"].upsert({"id": 78, "v": "newer"})
    keyed.create_table("other", SCHEMA, "id").upsert({"id": 1, "v": "x"})
    assert 78 in ids(opened(fresh, "t"))
    assert 78 not in ids(handle)
    handle.checkout_latest()
    assert 78 in ids(handle)
    keyed["other"].upsert({"id": 2, "v": "x"})
    assert opened(fresh, "t").version == handle.version
    keyed.checkpoint()
    keyed.merge()
    assert shown(opened(fresh, "t")) == shown(handle)


def test_within_the_interval_the_last_version_is_given_again(keyed: Store) -> None:
    keyed._parts.fresh = FreshVersions(keyed._core, interval_s=3600)
    fresh = SiltstoneNamespace(keyed, keyed="fresh")
    before = opened(fresh, "t").version
    keyed["t"].upsert({"id": 78, "v": "newer"})
    assert opened(fresh, "t").version == before


def test_a_table_that_was_never_merged_can_be_opened(db: Store) -> None:
    db.create_table("t", SCHEMA, "id").upsert(rows(0, 3))
    assert opened(SiltstoneNamespace(db), "t").count_rows() == 0
    assert opened(SiltstoneNamespace(db), "t").schema.names == ["id", "v"]
    assert ids(opened(eager(db), "t")) == [0, 1, 2]
    with SiltstoneNamespace(db).transaction() as tx:
        assert opened(tx, "t").count_rows() == 0


def test_columns_are_those_of_today_and_rows_those_that_live(keyed: Store) -> None:
    keyed["t"].rename_column("v", "w")
    keyed["t"].add_column("n", "int64")
    keyed["t"].upsert({"id": 9, "w": "y", "n": 1})
    found = opened(eager(keyed), "t").to_table().sort_by("id")
    assert found.equals(keyed["t"].scan().read_all().sort_by("id"))
    keyed["t"].delete([*range(10), 77])
    assert opened(eager(keyed), "t").count_rows() == 0


def test_a_snapshot_is_exact_over_all_tables(keyed: Store) -> None:
    fresh = SiltstoneNamespace(keyed, keyed="fresh")
    opened(fresh, "t")
    seq = keyed.seq
    keyed["t"].upsert({"id": 78, "v": "newer"})
    with fresh.at(seq=seq) as past, fresh.at() as now:
        assert 78 not in ids(opened(past, "t"))
        assert 78 in ids(opened(now, "t"))
        assert opened(now, "t").version == keyed.seq


def test_no_commit_names_a_fresh_version(keyed: Store) -> None:
    fresh = SiltstoneNamespace(keyed, keyed="fresh")
    with pytest.raises(OSError, match="unknown"):  # Lance keeps the reason for its log
        append(fresh, "t", rows(100, 101))
    with pytest.raises(OSError, match="unknown"):
        opened(fresh, "t").delete("id = 3")
    given = {"id": ["t"], "version": opened(fresh, "t").version + 1, "manifest_path": "x"}
    with pytest.raises(spec_errors.InvalidInputError, match="write its rows with upsert"):
        fresh.create_table_version(given)
    assert 3 in ids(opened(fresh, "t"))
    assert keyed["t"].count() == 10
    assert keyed.verify().is_sound


def test_its_files_go_with_the_handle_of_the_store_or_by_vacuum(keyed: Store) -> None:
    before = files(keyed.path)
    opened(eager(keyed), "t")
    assert files(keyed.path) > before
    keyed.vacuum(dry_run=False, grace_s=-10)
    assert not files(keyed.path) - before
    fresh = SiltstoneNamespace(keyed, keyed="fresh")
    assert 77 in ids(opened(fresh, "t"))
    keyed._parts.fresh.close()  # type: ignore[union-attr]
    assert not files(keyed.path) - before


def files(root: Path) -> set[str]:
    return {str(path) for path in (root / "tables").rglob("*") if path.is_file()}


def test_versions_are_bounded_in_number_and_bytes(keyed: Store) -> None:
    for bound in ({"versions_max": 2}, {"bytes_max": 1500}):
        made = FreshVersions(keyed._core, interval_s=0, **bound)  # type: ignore[arg-type]
        seen = []
        for number in range(4):
            keyed["t"].upsert({"id": 90, "v": str(number)})
            with keyed.snapshot() as snapshot:
                seen.append(len(made.live(snapshot, "t").committed))
        assert seen[-1] == seen[-2] <= 2, "an older one is given"
        with keyed.snapshot() as snapshot, pytest.raises(BusyError, match="fresh versions"):
            made.exact(snapshot, "t")
        made.close()


def test_what_is_seen_of_keyed_tables_is_one_of_two(db: Store) -> None:
    with pytest.raises(RequestError, match="merged"):
        SiltstoneNamespace(db, keyed="stale")  # type: ignore[arg-type]


def test_a_reader_beside_the_owner_may_ask_for_fresh_versions(keyed: Store) -> None:
    with st.connect(keyed.path, read_only=True) as beside:
        assert shown(opened(SiltstoneNamespace(beside), "t")) == [(n, "x") for n in range(10)]
        assert 77 in ids(opened(SiltstoneNamespace(beside, keyed="fresh"), "t"))
