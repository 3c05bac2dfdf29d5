"""Without a server, Lance's directory namespace lists a store's tables, and cannot write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import lance.namespace
import pytest
from lance_namespace import DeclareTableRequest, ListTablesRequest

import siltstone as st
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.clients import ids, make, rows

SCHEMA = {"id": "int64", "v": "string"}


def others(root: Path) -> Any:
    """Return Lance's namespace; unless told so it looks for tables of the root as `t.lance`."""
    return lance.namespace.DirectoryNamespace(root=str(root), dir_listing_enabled="false")


def listed(root: Path, *space: str) -> set[str]:
    return set(others(root).list_tables(ListTablesRequest(id=list(space))).tables)


def read(root: Path, *table: str) -> list[int]:
    return ids(lance.dataset(namespace_client=others(root), table_id=list(table)))


def test_it_lists_and_opens_tables_as_of_the_last_merge(tmp_path: Path) -> None:
    root = tmp_path / "shop"
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
        plainly = lance.namespace.DirectoryNamespace(root=str(root))
        assert ids(lance.dataset(namespace_client=plainly, table_id=["db", "orders"])) == [
            *range(5)
        ]
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


def test_a_writer_is_fenced(tmp_path: Path) -> None:
    root = tmp_path / "shop"
    with st.connect(root, background=False, lance_directory=True) as db:
        make(SiltstoneNamespace(db), "events", rows(0, 3))
        db.checkpoint()
        with pytest.raises(Exception, match=r"[Ff]eature|[Uu]nsupported|not supported"):
            others(root).declare_table(DeclareTableRequest(id=["mine"]))
        assert listed(root) == {"events"}


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
