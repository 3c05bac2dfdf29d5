"""Each table whose keys are hashed has its own secret, and keeps it while its columns change."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st


def secrets_of(db: st.Store) -> dict[str, set[int]]:
    """Return the secrets of all schemas of each table, by its name."""
    catalog = db._core.state().view.catalog  # type: ignore[attr-defined]
    return {
        table.names[-1].name: {step.schema.secret for step in table.schemas}
        for table in catalog.tables
    }


def test_tables_with_hashed_keys_have_secrets_and_others_have_none(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        for name, kind in (("a", "string"), ("b", "string"), ("n", "int64")):
            db.create_table(name, {"id": kind, "v": "int64"}, primary_key="id")
        db.create_table("pair", {"id": "int64", "v": "int64"}, primary_key=["id", "v"])
        db.create_table("plain", {"id": "string"})
        found = secrets_of(db)
    assert found["n"] == found["plain"] == {0}
    drawn = found["a"] | found["b"] | found["pair"]
    assert len(drawn) == 3
    assert 0 not in drawn


def test_a_secret_stays_through_changes_of_columns_and_openings(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", {"id": "string", "v": "int64"}, primary_key="id")
        before = secrets_of(db)["t"]
        table.upsert([{"id": f"key {n}", "v": n} for n in range(50)])
        table.add_column("w", "int64")
        table.rename_column("id", "name")
        table.upsert(pa.table({"name": ["key 1", "new"], "v": [-1, -2], "w": [1, 2]}))
        db.checkpoint()
        db.merge()
    with st.connect(tmp_path / "s", background=False) as db:
        assert secrets_of(db)["t"] == before
        assert db["t"].get("key 1") == {"name": "key 1", "v": -1, "w": 1}
        assert db["t"].get("key 49") == {"name": "key 49", "v": 49, "w": None}
        assert db["t"].count() == 51


def test_a_load_of_texts_conflicts_with_what_began_before_it(tmp_path: Path) -> None:
    """Recent writes remember it by its key runs."""
    count = 70_000
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", {"id": "string", "v": "int64"}, primary_key="id")
        table.upsert({"id": "other", "v": 0})
        with db.transaction() as hit, db.transaction() as miss:
            keys = [f"key {n}" for n in range(count)]
            table.upsert(pa.table({"id": keys, "v": range(count)}))
            hit["t"].upsert({"id": "key 69999", "v": -1})
            miss["t"].upsert({"id": "key 70000", "v": -1})
            with pytest.raises(st.ConflictError):
                hit.commit()
            miss.commit()
        assert db["t"].count() == count + 2
