"""What was staged under one schema takes no effect under another, nor is it lost in a new try."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.api.store import Store
from siltstone.maintenance.flush.bulk_load import load
from tests.engine.seams import HookedTables, fake_env, open_store

SCHEMA = {"id": "int64", "v": "int64"}
ROWS = pa.table({"id": [1, 2], "v": [1, 2]})


@pytest.fixture
def hooked() -> list[HookedTables]:
    return []


@pytest.fixture
def db(tmp_path: Path, hooked: list[HookedTables]) -> Iterator[Store]:
    with open_store(tmp_path / "db", fake_env(hooked=hooked)) as store:
        store.create_table("t", SCHEMA, primary_key="id")
        store.create_table("p", {"n": "int64"})
        yield store


def once(tables: HookedTables, name: str, work: object) -> None:
    def hook(*_: object) -> None:
        del tables.hooks[name]
        work()  # type: ignore[operator]

    tables.hooks[name] = hook


def test_a_first_load_does_not_take_effect_under_a_column_renamed_meanwhile(
    db: Store, hooked: list[HookedTables], tmp_path: Path
) -> None:
    table = db["t"]
    definition, table_schema = table._table_schema()
    once(hooked[0], "append", lambda: table.rename_column("v", "w"))
    with pytest.raises(st.ConflictError):
        load(db._core, definition, table_schema, ROWS, may_repeat=True, bytes_min=1)
    assert table.count() == 0
    table.upsert({"id": 1, "w": 5})
    db.close()
    with open_store(tmp_path / "db", fake_env()) as again:
        assert again["t"].to_arrow().to_pylist() == [{"id": 1, "w": 5}]


def test_a_first_append_meets_a_column_that_came_meanwhile(
    db: Store, hooked: list[HookedTables]
) -> None:
    once(hooked[0], "stage", lambda: db["p"].add_column("note", "string"))
    db["p"].append([{"n": 1}])
    assert db["p"].to_arrow().to_pylist() == [{"n": 1, "note": None}]


def test_an_append_of_a_stream_that_lost_its_race_is_a_conflict_not_an_empty_append(
    db: Store, hooked: list[HookedTables]
) -> None:
    db["p"].append([{"n": 0}])
    once(hooked[0], "stage", db["p"].truncate)
    reader = pa.table({"n": [1, 2]}).to_reader()
    with pytest.raises(st.ConflictError):
        db["p"].append(reader)
    assert db["p"].count() == 0


def test_an_append_of_generated_rows_that_is_tried_again_still_has_them(
    db: Store, hooked: list[HookedTables]
) -> None:
    db["p"].append([{"n": 0}])
    once(hooked[0], "stage", db["p"].truncate)
    receipt = db["p"].append({"n": n} for n in (1, 2))
    assert receipt.rows == 2
    assert db["p"].to_arrow()["n"].to_pylist() == [1, 2]


def test_a_table_created_and_renamed_in_one_transaction_keeps_one_folder(tmp_path: Path) -> None:
    root = tmp_path / "real"
    with st.connect(root, background=False, segment_bytes=65_536) as db:
        with db.transaction() as tx:
            tx.create_table("x", SCHEMA, "id").insert([{"id": 1, "v": 1}])
            tx.rename_table("x", "y")
        db.checkpoint()
        assert db["y"].get(1) == {"id": 1, "v": 1}
    with st.connect(root, background=False, segment_bytes=65_536) as db:
        assert db["y"].to_arrow().to_pylist() == [{"id": 1, "v": 1}]
        db.merge()
        assert db["y"].get(1) == {"id": 1, "v": 1}
    with st.connect(root, background=False, segment_bytes=65_536) as db:
        assert db["y"].to_arrow().to_pylist() == [{"id": 1, "v": 1}]
