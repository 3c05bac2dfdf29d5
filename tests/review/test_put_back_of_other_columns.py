"""A column is the same one if it has the same id: names alone may have been passed on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import siltstone as st


def swap(table: Any) -> None:
    table.rename_column("a", "x")
    table.rename_column("b", "a")
    table.rename_column("x", "b")


def make_again(table: Any) -> None:
    table.drop_column("b")
    table.add_column("b", "int64", 7)


@pytest.mark.parametrize("change", [swap, make_again])
@pytest.mark.parametrize("forces", [False, True])
def test_names_of_other_columns_take_no_values_of_before(
    tmp_path: Path, change: Callable[[Any], None], forces: bool
) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", {"id": "int64", "a": "int64", "b": "int64"}, primary_key="id")
        table.insert([{"id": 1, "a": 1, "b": 2}, {"id": 2, "a": 3, "b": 4}])
        seq = db.seq
        mistake = table.update(1, a=10, b=20).seq
        change(table)
        before = table.to_arrow().to_pylist()
        given: Any = {"force": True} if forces else {"until": mistake}
        with pytest.raises(st.RequestError, match="the columns of 't' are others than at seq"):
            db.put_back("t", to=seq, **given)
        assert table.to_arrow().to_pylist() == before


def test_a_column_that_has_its_name_again_takes_its_values(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", {"id": "int64", "a": "int64"}, primary_key="id")
        table.insert({"id": 1, "a": 1})
        seq = db.seq
        table.rename_column("a", "x")
        mistake = table.update(1, x=10).seq
        table.rename_column("x", "a")
        assert db.put_back("t", to=seq, until=mistake).rows == 1
        assert table.get(1) == {"id": 1, "a": 1}
