"""What is not merged stays bounded, whatever one table has and whoever makes the checkpoints."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone import admin
from siltstone.maintenance.schedule.unmerged import history_bytes
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.manifest_store import ManifestStore

SCHEMA = {"id": "string", "v": "int64"}
MEMORY = 16 << 20


def rows(numbers: range, value: int) -> pa.Table:
    return pa.table({"id": [f"k{n}" for n in numbers], "v": [value] * len(numbers)})


def merged_seqs(root: Path) -> dict[str, int]:
    keyed = ManifestStore(RealFiles(), root).newest().keyed
    return {Path(each.folder).name: each.merged_seq for each in keyed}


def flip(path: Path) -> None:
    """Change a byte, in all names of the file."""
    with path.open("r+b") as file:
        byte = file.read(1)[0]
        file.seek(0)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("damaged", ["a", "b", "c"])
def test_a_table_that_cannot_be_merged_holds_up_no_other(tmp_path: Path, damaged: str) -> None:
    with st.connect(tmp_path, background=False) as db:
        for name in "abc":
            db.create_table(name, SCHEMA, primary_key="id").upsert(rows(range(50), 0))
        db.checkpoint()
        db.merge()
        for name in "abc":
            db[name].upsert(rows(range(20, 70), 1))
        db.checkpoint()
    before = merged_seqs(tmp_path)
    (file,) = tmp_path.glob(f"tables/{damaged}-*/base/data/*.lance")
    flip(file)
    for _ in range(2):
        with pytest.raises(st.CorruptionError) as caught:
            admin.merge_store(tmp_path)
        assert caught.value.path.name == file.name
        after = merged_seqs(tmp_path)
        assert {n for n in after if after[n] > before[n]} == {
            n for n in after if not n.startswith(damaged)}  # fmt: skip
    flip(file)
    admin.merge_store(tmp_path)
    assert len({*merged_seqs(tmp_path).values()}) == 1
    assert admin.verify_store(tmp_path, deep=True).is_sound
    with st.connect(tmp_path, background=False) as db:
        for name in "abc":
            found = {row["id"]: row["v"] for row in db[name].to_arrow().to_pylist()}
            assert found == {f"k{n}": int(n >= 20) for n in range(70)}


def test_without_a_background_rows_are_merged_whoever_made_the_checkpoints(tmp_path: Path) -> None:
    with st.connect(tmp_path, background=False, memory_bytes_max=MEMORY) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        for n in range(20):
            table.upsert(rows(range(5_000 * n, 5_000 * (n + 1)), n))
            db.checkpoint()
            assert history_bytes(db._core.state().view) <= MEMORY // 8 + 64 * 5_000, n
        assert table.count() == 100_000
