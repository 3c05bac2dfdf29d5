"""DEFAULT in a statement is the same value that a row has which leaves the column out."""

from __future__ import annotations

from pathlib import Path

import pytest

import siltstone as st

TEXTS = ["a\0b", "\0", "it's", "' || 'x", "$1 ? :a -- /*", "\\", ""]


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_is_the_default_of_a_statement(tmp_path: Path, text: str) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", {"id": "int64", "s": "string"}, "id", defaults={"s": text})
        db["t"].insert([{"id": 1}, {"id": 2, "s": None}])
        db.sql("insert into t values (1 + 2, default)")
        db.sql("update t set s = default where id + 0 = 2")
        assert [row["s"] for row in db["t"].to_arrow().to_pylist()] == [text] * 3
