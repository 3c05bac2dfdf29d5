"""A column may have any name that is taken: its rows go through every level, and its filters, too.

Lance cannot write a column with a backtick in its name, takes `*` for all columns, and cuts the
name of a field off at a NUL: one such table would stop the checkpoints and merges of all.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import siltstone as st

ODD = [
    "a b", 'a"b', "a'b", "A", "select", "a\\b", "a\nb", "ü", "1a", "(a)", "a;--", "a*", "$1",
    "None", "FieldPath", "FieldPath(0)", "a[0]", "rowid", " ", "%",
]  # fmt: skip
NESTED = ["a`b", "*", "_rowid", "", "a.b", "a\\b", *ODD]
VALUES = [None, "x", "y'", "z\\", "w\0w", "x", "", "\u2028", '"', "`", "🦭"]


def written(name: str) -> pa.Table:
    ids = pa.array(range(len(VALUES)), pa.int64())
    return pa.table({"id": ids, name: pa.array(VALUES), "n": pa.array([i % 3 for i in range(11)])})


def ids(rows: pa.Table) -> list[int]:
    return sorted(rows["id"].to_pylist())


def test_a_filter_reads_a_column_of_any_name_with_any_text_in_every_level(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        for number, name in enumerate(ODD):
            rows = written(name)
            db.create_table(f"k{number}", rows.schema, primary_key="id").upsert(rows)
            db.create_table(f"p{number}", rows.schema).append(rows)
        for step in (lambda: None, db.checkpoint, db.merge):
            step()
            for number, name in enumerate(ODD):
                refuse_wrong(db[f"k{number}"], name)
                refuse_wrong(db[f"p{number}"], name)


def refuse_wrong(table: st.Table, name: str) -> None:
    rows, column = written(name), pc.field(name)
    quoted = '"' + name.replace('"', '""') + '"'
    texts = [text for text in VALUES if text is not None]
    for text in texts:
        right = ids(rows.filter(column == text))
        literal = text.replace("'", "''")
        assert ids(table.to_arrow(["id"], f"{quoted} = '{literal}'")) == right, (name, text)
        assert ids(table.to_arrow(["id"], column == text)) == right, (name, text)
    for wanted in (~column.isin(texts[:4]), (column == "x") | (pc.field("n") == 1)):
        assert ids(table.to_arrow(None, wanted)) == ids(rows.filter(wanted)), (name, wanted)


@pytest.mark.parametrize("key", ["id", ()])
def test_fields_of_any_name_go_through_every_level(tmp_path: Path, key: str) -> None:
    row: dict[str, object] = {"id": 1}
    row["s"] = {name: number for number, name in enumerate(NESTED)}
    schema = pa.schema(
        [("id", pa.int64()), ("s", pa.struct({name: pa.int64() for name in NESTED}))]
    )
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", schema, primary_key=key)
        (table.upsert if key else table.append)(pa.Table.from_pylist([row], schema))
        for step in (lambda: None, db.checkpoint, db.merge):
            step()
            assert table.to_arrow(filter="id = 1").to_pylist() == [row]
