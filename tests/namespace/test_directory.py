"""Without a server, Lance's directory namespace lists a store's tables, and cannot write them.

As it comes it looks for tables of the root as `t.lance`, for those of namespaces in `__manifest`;
told not to list directories, it looks in `__manifest` alone.
"""

# pyright: reportArgumentType=false

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import lance.namespace
import pytest
from lance_namespace import (
    DeclareTableRequest,
    DropTableRequest,
    ListNamespacesRequest,
    ListTablesRequest,
)

import siltstone as st
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.clients import append, ids, make, rows

SCHEMA = {"id": "int64", "v": "string"}


def others(root: Path, **options: str) -> Any:
    return lance.namespace.DirectoryNamespace(root=str(root), **options)


def listed(root: Path, *space: str) -> set[str]:
    """Return the tables of a namespace; however it is asked for, the answer is the same."""
    request = ListTablesRequest(id=list(space))
    plain, strict = (
        ns.list_tables(request).tables
        for ns in (others(root), others(root, dir_listing_enabled="false"))
    )
    assert sorted(plain) == sorted(strict)
    return set(plain)


def read(root: Path, *table: str) -> list[int]:
    plain, strict = (
        ids(lance.dataset(namespace_client=ns, table_id=list(table)))
        for ns in (others(root), others(root, dir_listing_enabled="false"))
    )
    assert plain == strict
    return plain


def test_it_lists_and_opens_tables_as_of_the_last_merge(tmp_path: Path) -> None:
    root = tmp_path / "our shop, 100%"
    options = {"segment_bytes": 65536, "background": False, "lance_directory": True}
    with st.connect(root, **options) as db:
        db.create_table("db.orders", SCHEMA, "id").upsert(rows(0, 5))
        db.create_table("never.merged", SCHEMA, "id")
        make(SiltstoneNamespace(db), "events", rows(0, 3))
        db.checkpoint()
        db.merge()
        db["db.orders"].upsert(rows(5, 6))
        assert listed(root) == {"events"}
        assert listed(root, "db") == {"orders"}
        assert read(root, "events") == [0, 1, 2]
        assert read(root, "db", "orders") == [0, 1, 2, 3, 4]
        db["events"].append(rows(3, 4))
        db.rename_table("db.orders", "db.sales")
        db.checkpoint()
        db.merge()
        assert listed(root, "db") == {"sales"}
        assert read(root, "db", "sales") == [0, 1, 2, 3, 4, 5]
        assert read(root, "events") == [0, 1, 2, 3]
        assert db.verify().is_sound
    with st.connect(root, **options) as db:  # and again, on top of what was written before
        db.drop_table("events")
        db.checkpoint()
        assert listed(root) == set()
        assert read(root, "db", "sales") == [0, 1, 2, 3, 4, 5]


def test_it_lists_nested_and_empty_namespaces(tmp_path: Path) -> None:
    root = tmp_path / "shop"
    with st.connect(root, background=False, lance_directory=True) as db:
        ns = SiltstoneNamespace(db)
        for path in (["a"], ["a", "empty"]):
            ns.create_namespace({"id": path})
        made = {"namespace_client": ns, "table_id": ["a", "b", "t"]}
        lance.write_dataset(rows(0, 3), mode="create", **made)
        db.checkpoint()
        strict = others(root, dir_listing_enabled="false")
        inside = strict.list_namespaces(ListNamespacesRequest(id=["a"])).namespaces
        assert sorted(inside) == ["b", "empty"]
        assert listed(root, "a", "b") == {"t"}
        assert read(root, "a", "b", "t") == [0, 1, 2]
        ns.drop_namespace({"id": ["a"], "behavior": "cascade"})
        db.checkpoint()
        found = others(root, dir_listing_enabled="false")
        assert found.list_namespaces(ListNamespacesRequest(id=[])).namespaces == []


def test_a_writer_is_fenced(tmp_path: Path) -> None:
    root = tmp_path / "shop"
    with st.connect(root, background=False, lance_directory=True) as db:
        make(SiltstoneNamespace(db), "events", rows(0, 3))
        db.create_table("k", SCHEMA, "id").upsert(rows(0, 2))
        db.checkpoint()
        db.merge()
        strict = others(root, dir_listing_enabled="false")
        with pytest.raises(Exception, match=r"[Ff]eature|[Uu]nsupported|not supported"):
            strict.declare_table(DeclareTableRequest(id=["mine"]))
        for name in ("events", "k"):
            with pytest.raises(OSError, match="cannot be written"):
                append(others(root), name, rows(9, 10))
            with pytest.raises(Exception, match="upgrade"):
                others(root).drop_table(DropTableRequest(id=[name]))
            with pytest.raises(Exception, match=r"cannot be written|upgrade"):
                lance.dataset(str(root / f"{name}.lance")).delete("true")
        assert listed(root) == {"events", "k"}
        assert (read(root, "events"), read(root, "k")) == ([0, 1, 2], [0, 1])
        assert (db["events"].count(), db["k"].count()) == (3, 2)


def test_tables_of_the_root_follow_what_the_store_has(tmp_path: Path) -> None:
    root = tmp_path / "shop"
    options = {"segment_bytes": 65536, "background": False, "lance_directory": True}
    with st.connect(root, **options) as db:
        table = db.create_table("t", SCHEMA, "id")
        table.upsert(rows(0, 5))
        make(SiltstoneNamespace(db), "events", rows(0, 3))
        db.checkpoint()
        db.merge()
        table.delete(0)
        db["events"].append(rows(3, 4))
        db.checkpoint()
        assert read(root, "t") == [0, 1, 2, 3, 4], "as of the last merge"
        assert read(root, "events") == [0, 1, 2, 3]
        db.merge()
        assert read(root, "t") == [1, 2, 3, 4]
        db.rename_table("t", "u")
        db.checkpoint()
        assert listed(root) == {"events", "u"}
        assert not (root / "t.lance").exists()
        db.drop_table("events")
        db.create_table("events", SCHEMA, "id").upsert(rows(7, 8))
        db.checkpoint()
        db.merge()
        db.vacuum(dry_run=False, grace_s=-10)
        assert (read(root, "events"), read(root, "u")) == ([7], [1, 2, 3, 4])
        assert db.verify().is_sound
        versions = (root / "u.lance" / "_versions").stat().st_mtime_ns
    with st.connect(root, **options) as db:
        db.checkpoint()
        assert read(root, "u") == [1, 2, 3, 4]
    assert (root / "u.lance" / "_versions").stat().st_mtime_ns == versions, "nothing to do"
    root.rename(tmp_path / "moved")
    with st.connect(tmp_path / "moved", **options) as db:
        db.checkpoint()
        assert read(tmp_path / "moved", "u") == [1, 2, 3, 4]


def test_what_somebody_else_made_at_the_name_of_a_table_is_left_alone(tmp_path: Path) -> None:
    root = tmp_path / "shop"
    with st.connect(root, background=False, lance_directory=True) as db:
        lance.write_dataset(rows(90, 91), str(root / "t.lance"))
        lance.write_dataset(rows(95, 96), str(root / "theirs.lance"))
        for name in ("t", "u"):
            db.create_table(name, SCHEMA, "id").upsert(rows(0, 5))
        (root / "u.lance").symlink_to(db.path / "tables" / "u-2" / "base")
        db.checkpoint()
        db.merge()
        assert ids(lance.dataset(str(root / "t.lance"))) == [90]
        db.drop_table("u")
        db.drop_table("t")
        db.checkpoint()
        assert ids(lance.dataset(str(root / "theirs.lance"))) == [95]
        assert ids(lance.dataset(str(root / "t.lance"))) == [90]
        assert (root / "u.lance").is_symlink()
        assert db.verify().is_sound


def test_what_cannot_be_written_fails_no_checkpoint(tmp_path: Path) -> None:
    root = tmp_path / "shop"
    with st.connect(root, background=False, lance_directory=True) as db:
        (root / "__manifest").write_text("in the way")
        db.create_table("t", SCHEMA, "id").upsert(rows(0, 5))
        db.checkpoint()
        db.merge()
        (root / "__manifest").unlink()
        db["t"].upsert(rows(5, 6))
        db.checkpoint()
        assert listed(root) == {"t"}
