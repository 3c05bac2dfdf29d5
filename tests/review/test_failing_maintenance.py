"""A commit is what its caller was told, and reads are right, whatever fails in maintenance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.api.store import Store
from tests.engine.seams import HookedTables, fake_env, open_store, until

SCHEMA = {"id": "int64", "v": "string"}
BIG = "x" * 100_000


@pytest.fixture
def hooked() -> list[HookedTables]:
    return []


def refuse(*_: object) -> None:
    raise st.UnavailableError("no space left")


def test_a_commit_is_acknowledged_when_the_checkpoint_behind_it_fails(
    tmp_path: Path, hooked: list[HookedTables]
) -> None:
    options = {"memtable_bytes_max": 1 << 20, "memory_bytes_max": 16 << 20}
    with open_store(tmp_path, fake_env(hooked=hooked), **options) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        hooked[0].hooks["stage"] = refuse
        seqs = [table.upsert({"id": n, "v": BIG}).seq for n in range(15)]
        assert seqs == list(range(2, 17))
        assert table.count() == 15
        hooked[0].hooks.clear()
        db.checkpoint()
        assert table.count() == 15


def test_without_a_background_writers_are_refused_at_the_bound_of_sealed_generations(
    tmp_path: Path, hooked: list[HookedTables]
) -> None:
    options = {"memtable_bytes_max": 1 << 20, "memory_bytes_max": 16 << 20}
    with open_store(tmp_path, fake_env(hooked=hooked), sealed_generations_max=2, **options) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        hooked[0].hooks["stage"] = refuse

        def fill() -> None:
            for n in range(60):
                table.upsert({"id": n, "v": BIG})

        with pytest.raises((st.UnavailableError, st.BusyError)):
            fill()
        seq, count = db.seq, table.count()
        assert count == seq - 1
        hooked[0].hooks.clear()
        table.upsert({"id": 100, "v": BIG})
        assert table.count() == count + 1


def test_the_background_goes_on_after_an_error_that_is_not_ours(
    tmp_path: Path, hooked: list[HookedTables]
) -> None:
    def fail(*_: object) -> None:
        del hooked[0].hooks["stage"]
        raise MemoryError

    options = {"memtable_bytes_max": 1 << 20, "memory_bytes_max": 16 << 20}
    with open_store(tmp_path, fake_env(hooked=hooked), background=True, **options) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        hooked[0].hooks["stage"] = fail
        for n in range(12):
            table.upsert({"id": n, "v": BIG})
        until(lambda: "stage" not in hooked[0].hooks)
        until(lambda: db._core.state().view.record.flushed_seq >= 10)
        assert table.count() == 12


@pytest.fixture
def nested(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "n", fake_env()) as db:
        import pyarrow as pa

        db.create_table("t", pa.schema([("id", pa.int64()), ("l", pa.list_(pa.int64()))]), "id")
        db["t"].upsert({"id": 1, "l": [1, 2]})
        yield db


@pytest.mark.parametrize("where", ["memory", "history", "base"])
def test_who_changes_a_row_that_was_read_changes_only_a_copy(nested: Store, where: str) -> None:
    if where != "memory":
        nested.checkpoint()
    if where == "base":
        nested.merge()
    nested["t"].get(1)["l"].append(99)
    assert nested["t"].get(1) == {"id": 1, "l": [1, 2]}
