"""A transaction that ran here is never committed into another store that came to its path."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import siltstone as st
from tests.server.stores import joined_to, opened


def made(path: Path, value: int) -> None:
    with opened(path) as owner:
        owner.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        owner["t"].upsert({"id": 1, "v": value})


def empty(path: Path) -> None:
    """As `rm -r path/*`; ext4 gives a directory that is made anew the same inode, too."""
    for each in path.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()


def test_a_commit_is_refused_by_the_owner_of_another_store_at_the_path(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    made(path, 10)
    owner = opened(path)
    joined = joined_to(owner)
    joined._near.nearby.newest()  # type: ignore[union-attr]
    tx = joined.transaction()
    assert tx.near is not None  # type: ignore[attr-defined]
    v = tx["t"].get(1)["v"]  # type: ignore[index]
    tx["t"].update(1, v=v + 1)
    owner.close()
    empty(path)
    made(path, 500)
    with opened(path) as other:
        other.serve_local()
        with pytest.raises(st.SiltstoneError):
            tx.commit()
        assert other["t"].get(1) == {"id": 1, "v": 500}
    joined.close()


def test_a_commit_is_refused_by_the_owner_of_an_older_copy(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    made(path, 10)
    shutil.copytree(path, tmp_path / "copy")
    owner = opened(path)
    for v in range(11, 20):
        owner["t"].upsert({"id": 1, "v": v})
    joined = joined_to(owner)
    joined._near.nearby.newest()  # type: ignore[union-attr]
    tx = joined.transaction()
    v = tx["t"].get(1)["v"]  # type: ignore[index]
    tx["t"].update(1, v=v + 1)
    owner.close()
    empty(path)
    shutil.copytree(tmp_path / "copy", path, dirs_exist_ok=True)
    with opened(path) as other:
        other.serve_local()
        other["t"].upsert({"id": 1, "v": 700})
        other.create_table("more", {"id": "int64", "v": "int64"}, primary_key="id")
        for i in range(20):
            other["more"].upsert({"id": i, "v": i})
        assert other.seq > tx.read_seq
        with pytest.raises(st.SiltstoneError):
            tx.commit()
        assert other["t"].get(1) == {"id": 1, "v": 700}
    joined.close()


def test_a_call_is_refused_by_the_server_of_another_store_at_the_url(tmp_path: Path) -> None:
    """Its tables have the ids of the first one's."""
    made(tmp_path / "shop", 10)
    made(tmp_path / "other", 500)
    with opened(tmp_path / "shop") as owner:
        service = owner.serve(port=0)
        joined = st.connect(service.url)
        table = joined["t"]
        port = int(service.url.rpartition(":")[2])
    with opened(tmp_path / "other") as other:
        other.serve(port=port)
        with pytest.raises(st.ReplacedError):
            table.upsert({"id": 1, "v": 11})
        assert other["t"].get(1) == {"id": 1, "v": 500}
    joined.close()
