"""A row read by key from base is the same whether it comes from Lance, a cache or memory."""

from __future__ import annotations

from pathlib import Path

import pytest

import siltstone as st

ROWS = 300


@pytest.mark.parametrize("memory", [1 << 20, 1 << 30])
@pytest.mark.parametrize("key", ["id", ["region", "id"]])
def test_every_key_is_read_right_before_and_after_the_rows_are_in_memory(
    tmp_path: Path, memory: int, key: str | list[str]
) -> None:
    options = {"segment_bytes": 65_536, "background": False, "memory_bytes_max": memory}
    schema = {"region": "int64", "id": "int64", "name": "string", "v": "float64"}
    rows = [{"region": -1 - n % 2, "id": n, "name": f"n{n}" * 9, "v": n / 8} for n in range(ROWS)]
    rows[7]["name"] = None
    with st.connect(tmp_path / "s", **options) as db:
        table = db.create_table("t", schema, primary_key=key)
        table.upsert(rows)
        db.checkpoint()
        db.merge()
    with st.connect(tmp_path / "s", **options) as db:
        table = db["t"]
        for row in rows:
            wanted = row["id"] if key == "id" else (row["region"], row["id"])
            found = table.get(wanted)
            assert found == row
            assert found is not None
            found["name"] = "changed by its reader"
            assert table.get(wanted) == row
        assert table.get(ROWS if key == "id" else (-3, 0)) is None
