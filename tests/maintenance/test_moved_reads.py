"""Reads of a store whose directory was moved say that, and not that its files are damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import siltstone as st

READS: dict[str, Callable[[Any, Any], object]] = {
    "get": lambda db, _: db["t"].get(7),
    "scan": lambda db, _: db["t"].to_arrow(),
    "count": lambda db, _: db["t"].count("v > 3"),
    "a plain table": lambda db, _: db["p"].to_arrow(),
    "a snapshot": lambda _, held: held["t"].to_arrow(),
    "the past": lambda db, _: db.snapshot(seq=4)["t"].to_arrow(),
    "changes": lambda db, _: db.changes(since=0)["t"].read_all(),
    "log": lambda db, _: [*db.log()],
    "status": lambda db, _: db.status(),
    "sql": lambda db, _: db.sql("SELECT count(*) FROM t").fetchall(),
}


def made(root: Path) -> None:
    with st.connect(root, background=False) as db:
        db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        db.create_table("p", {"id": "int64"})
        db["t"].upsert([{"id": n, "v": n} for n in range(100)])
        db["p"].append([{"id": 1}])
        db.checkpoint()
        db.merge()
        db["t"].upsert({"id": 5, "v": 6})


@pytest.mark.parametrize("go", [lambda root: root.rename(root.with_name("moved")), shutil.rmtree])
@pytest.mark.parametrize("options", [{"background": False}, {"read_only": True}], ids=str)
def test_reads_of_a_moved_or_deleted_store_name_what_happened(
    tmp_path: Path, options: dict[str, Any], go: Callable[[Path], object]
) -> None:
    root = tmp_path / "s"
    made(root)
    with st.connect(root, **options) as db, db.snapshot() as held:
        go(root)
        for name, read in READS.items():
            with pytest.raises(st.SiltstoneError) as refused:
                read(db, held)
            assert type(refused.value) is st.ReplacedError, (name, refused.value)
