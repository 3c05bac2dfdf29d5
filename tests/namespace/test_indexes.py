"""Lance clients use the indexes of keyed tables: words, neighbours, values."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import siltstone as st
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.clients import opened

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("text", pa.string()),
        ("place", pa.list_(pa.float32(), 2)),
    ]
)


def test_a_client_searches_a_keyed_table_by_its_indexes(tmp_path: Path) -> None:
    with st.connect(tmp_path / "db", background=False) as db:
        notes = db.create_table("notes", SCHEMA, "id")
        words = ("apple", "pear", "plum")
        rows = [
            {"id": n, "text": f"a {words[n % 3]} of {n}", "place": [float(n), 1.0]}
            for n in range(300)
        ]
        notes.upsert(rows)
        db.checkpoint()
        db.merge()
        notes.create_index("text", "fts")
        notes.create_index("place", "vector")
        notes.create_index("id", "bitmap")
        dataset = opened(SiltstoneNamespace(db), "notes")
        assert {index.index_type for index in dataset.describe_indices()} == {
            "Inverted",
            "IVF_FLAT",
            "Bitmap",
        }
        found = dataset.to_table(full_text_query="pear", columns=["id"])["id"].to_pylist()
        assert sorted(found) == list(range(1, 300, 3))
        near = {"column": "place", "q": [42.2, 1.0], "k": 2}
        nearest = dataset.to_table(nearest=near, columns=["id"])["id"].to_pylist()
        assert sorted(nearest) == [42, 43]
        assert "ScalarIndexQuery" in dataset.scanner(filter="id = 7").explain_plan()
        notes.upsert({"id": 400, "text": "one more pear"}, missing="null")
        db.checkpoint()
        db.merge()
        late = opened(SiltstoneNamespace(db), "notes")
        assert late.to_table(full_text_query="pear", columns=["id"]).num_rows == 101
