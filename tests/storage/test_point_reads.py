"""Rows taken by themselves are those of a scan; files that reads keep open are few, and end."""

from __future__ import annotations

import gc
import threading
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.files import point_reads
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.tables.store_tables import Tables
from tests.engine.seams import until

ROWS = 100_000
FOLDER = "tables/t-1/base"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("list", pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())]))),
        ("vector", pa.list_(pa.float32(), 2)),
        ("at", pa.timestamp("ns", "UTC")),
        ("dec", pa.decimal128(30, 4)),
    ]
)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    numbers = count()
    return lance_tables(tmp_path, RealFiles(), token=lambda: f"t{next(numbers)}")


def batch(ids: range) -> pa.RecordBatch:
    columns = {
        "id": [*ids],
        "text": [None if n % 7 == 0 else f"t{n}" for n in ids],
        "list": [[{"a": n, "b": None}] * (n % 3) if n % 5 else None for n in ids],
        "vector": [[n, 0.5] for n in ids],
        "at": [*ids],
        "dec": [n if n % 2 else None for n in ids],
    }
    return pa.record_batch([pa.array(columns[f.name], f.type) for f in SCHEMA], schema=SCHEMA)


def open_data_files(root: Path) -> int:
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    names = [str(link.readlink()) for link in links]
    return sum(name.startswith(str(root)) and ".lance" in name for name in names)


def one_by_one(table: Any, names: list[str] | None = None) -> pa.Table:
    rows = [table.take(np.array([position]), names) for position in range(table.rows)]
    return pa.concat_tables(rows)


def side_by_side(table: Any, names: list[str]) -> list[list[dict[str, Any]]]:
    """Return each seven neighbours, and the same without the middle one."""
    found: list[list[dict[str, Any]]] = []
    for first in range(table.rows - 6):
        at = np.arange(first, first + 7)
        found += (table.take(some, names).to_pylist() for some in (at, np.delete(at, 3)))
    return found


def test_each_row_by_itself_is_the_row_of_a_scan(tables: Tables) -> None:
    pin = tables.writer.create(FOLDER, SCHEMA)
    for first in (0, 40, 60):
        pin = tables.writer.append(pin, [batch(range(first, first + 20))])
    drop = np.array([3, 4, 25])
    pin = tables.rewriter.fold(pin, drop=drop, batches=[batch(range(80, 85))], compact_below=0)
    pin = tables.writer.alter(
        pin, rename={"text": "words"}, drop=["dec"], add=[pa.field("more", pa.list_(pa.int64()))]
    )
    table = tables.reader.open(pin)
    assert pin.hidden == 3
    names = ["more", "id", "words", "list", "vector", "at"]
    whole = pa.Table.from_batches(list(table.scan(names, with_hidden=True)))
    for _ in range(2):
        assert one_by_one(table, names).to_pylist() == whole.to_pylist()
        rows = whole.to_pylist()
        assert side_by_side(table, names) == [
            some
            for first in range(len(rows) - 6)
            for some in (
                rows[first : first + 7],
                rows[first : first + 3] + rows[first + 4 : first + 7],
            )
        ]
    assert one_by_one(table, ["more"]).schema == whole.select(["more"]).schema


def test_rows_of_parts_in_another_order_than_lance_s_are_found(tables: Tables) -> None:
    pin = tables.writer.create(FOLDER, SCHEMA)
    for first in (0, 10, 20, 30):
        pin = tables.writer.append(pin, [batch(range(first, first + 10))])
    table = tables.reader.open(pin)
    done = tables.compactor.compact(pin, (table.spans[0][0], table.spans[1][1]))
    table = tables.reader.open(tables.compactor.swap(pin, [done]))
    ids = [n for found in table.scan(["id"]) for n in found["id"].to_pylist()]
    assert one_by_one(table, ["id"])["id"].to_pylist() == ids
    near = [[row["id"] for row in rows] for rows in side_by_side(table, ["id"])[::2]]
    assert near == [ids[first : first + 7] for first in range(len(ids) - 6)]


def test_threads_read_their_own_rows(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(point_reads, "SESSIONS_MAX", 3)  # sessions end while others read
    pin = tables.writer.create(FOLDER, SCHEMA)
    for first in range(0, 60, 10):
        pin = tables.writer.append(pin, [batch(range(first, first + 10))])
    table, wrong = tables.reader.open(pin), list[int]()

    def read(number: int) -> None:
        for position in np.random.default_rng(number).integers(0, 60, 100).tolist():
            (row,) = table.take(np.array([position]), ["id", "text"]).to_pylist()
            if row["id"] != position:
                wrong.append(position)

    threads = [threading.Thread(target=read, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_few_files_stay_open_and_none_beyond_the_version(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(point_reads, "SESSIONS_MAX", 4)
    pin = tables.writer.create(FOLDER, SCHEMA)
    for first in range(0, 60, 10):
        pin = tables.writer.append(pin, [batch(range(first, first + 10))])
    table = tables.reader.fresh(pin)  # pyright: ignore[reportAttributeAccessIssue]
    for position in range(60):
        table.take(np.array([position]), ["id"])
        table.take(np.array([position]), ["text"])
        assert 0 < len(tables.reader._data.sessions) <= 4
    del table
    gc.collect()
    assert len(tables.reader._data.sessions) == 0


def merged(path: Path) -> st.Store:
    db = st.connect(path, background=False)
    table = db.create_table("t", {"id": "int64", "v": "int64"}, "id")
    noise = np.random.default_rng(1).integers(0, 1 << 62, ROWS)  # Lance keeps no small file open
    table.upsert(pa.table({"id": range(ROWS), "v": noise}))
    db.checkpoint()
    db.merge()
    return db


def test_a_closed_store_has_no_file_open(tmp_path: Path) -> None:
    with merged(tmp_path / "db") as db:
        assert db["t"].get(5) is not None
        assert open_data_files(tmp_path) == 1
    until(lambda: not open_data_files(tmp_path))  # Lance's own threads may close it
    with st.connect(tmp_path / "db", read_only=True) as reader:
        assert reader["t"].get(5) is not None
        assert open_data_files(tmp_path) == 1
    until(lambda: not open_data_files(tmp_path))  # Lance's own threads may close it


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_a_damaged_part_is_named_by_the_first_point_read(tmp_path: Path, damage: str) -> None:
    merged(tmp_path / "db").close()
    names = [p for p in tmp_path.glob("db/tables/t-*/base/**/*.lance") if p.is_file()]
    if damage != "gone":
        names = [*{path.stat().st_ino: path for path in names}.values()]
    for path in names:
        data = path.read_bytes()
        if damage == "gone":
            path.unlink()
        else:
            middle = len(data) // 3
            flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
            path.write_bytes(flipped if damage == "flipped" else data[: len(data) // 2])
    with st.connect(tmp_path / "db", background=False) as db, pytest.raises(st.CorruptionError):
        db["t"].get(5)
