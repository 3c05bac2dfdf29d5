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


@pytest.mark.parametrize(
    "sets", ["n = excluded.n", "n = excluded.n + 0", "id = excluded.id, n = excluded.n"]
)
def test_a_row_that_is_excluded_has_the_defaults_of_what_it_leaves_out(
    tmp_path: Path, sets: str
) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", {"id": int, "n": int, "s": str}, "id", defaults={"n": 7})
        db["t"].insert({"id": 1, "n": 1, "s": "old"})
        given = "insert into t (id, s) values (1, 'new'), (2, 'two')"
        db.sql(f"{given} on conflict (id) do update set {sets}")
        assert db["t"].get(1) == {"id": 1, "n": 7, "s": "old"}
        where = "do update set s = excluded.s where excluded.n = 7"
        assert db.sql(f"{given} on conflict (id) {where}").rows == 2
        assert db["t"].get(1) == {"id": 1, "n": 7, "s": "new"}
