"""A verification of a store whose directory was moved or deleted has no verdict."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import siltstone as st


def made(root: Path, **options: object) -> st.Store:
    with st.connect(root, background=False) as db:
        db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        db["t"].upsert([{"id": 1, "v": 1}])
        db.checkpoint()
    return st.connect(root, **options)


def move(root: Path) -> None:
    root.rename(root.with_name("moved"))


@pytest.mark.parametrize("go", [move, shutil.rmtree], ids=["moved", "deleted"])
@pytest.mark.parametrize("options", [{"background": False}, {"read_only": True}], ids=str)
def test_a_store_that_is_not_there_is_not_said_to_be_sound(
    tmp_path: Path, options: dict[str, object], go: Callable[[Path], None]
) -> None:
    db = made(tmp_path / "s", **options)
    go(tmp_path / "s")
    with pytest.raises(st.ReplacedError):
        db.verify(deep=True)
    db.close()


def test_a_verification_under_way_when_its_store_closes_and_moves_finds_no_damage(
    tmp_path: Path,
) -> None:
    db = made(tmp_path / "s", background=False)

    def go(*_: object) -> None:
        if (tmp_path / "s").exists():
            db.close()
            move(tmp_path / "s")

    with pytest.raises(st.ReplacedError):
        db.verify(deep=True, on_progress=go)
