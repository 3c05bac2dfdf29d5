"""A reader beside the owner loses nothing when a look fails half-way, or when the log moves on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.local.store import LocalStore
from siltstone.maintenance.flush.bulk_load import load
from siltstone.options import Options
from siltstone.storage.files.files import RealFiles
from tests.engine.seams import HookedTables, fake_env, open_store

SCHEMA = {"id": "int64", "v": "int64"}


class MarkFiles:
    """Real files that call `hook` before the log's MARK is read."""

    def __init__(self) -> None:
        self._real = RealFiles()
        self.hook: Callable[[], object] = lambda: None

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def below(self, root: Path) -> MarkFiles:
        return self  # by paths

    def read(self, path: Path) -> bytes:
        if path.name == "MARK":
            self.hook()
        return self._real.read(path)


def follow(
    root: Path, files: object = None, hooked: list[HookedTables] | None = None
) -> LocalStore:
    env = fake_env(files, hooked)
    return LocalStore.open(root, Options(segment_bytes=65_536), read_only=True, env=env)


def test_a_look_that_fails_half_way_is_begun_anew(tmp_path: Path) -> None:
    hooked: list[HookedTables] = []
    with open_store(tmp_path, fake_env()) as db:
        db.create_table("t", SCHEMA, primary_key="id")
        db["t"].upsert({"id": 0, "v": 0})
        with follow(tmp_path, hooked=hooked) as beside:
            assert beside["t"].count() == 1
            definition, table_schema = db["t"]._table_schema()
            rows = pa.table({"id": [1, 2], "v": [1, 2]})
            load(db._core, definition, table_schema, rows, may_repeat=True, bytes_min=1)
            db["t"].upsert({"id": 3, "v": 3})

            def refuse(*_: object) -> None:
                raise st.UnavailableError("not now")

            hooked[0].hooks["open"] = refuse
            with pytest.raises(st.UnavailableError):
                beside["t"].count()
            hooked[0].hooks.clear()
            assert beside["t"].count() == 4
            db["t"].upsert({"id": 4, "v": 4})
            assert beside["t"].count() == 5


def test_a_feed_ends_where_the_state_that_it_reads_ends(tmp_path: Path) -> None:
    files = MarkFiles()
    with open_store(tmp_path, fake_env()) as db:
        db.create_table("t", SCHEMA, primary_key="id")
        db["t"].upsert({"id": 0, "v": 0})
        db.create_table("u", SCHEMA, primary_key="id")
        with follow(tmp_path, files) as beside:
            looks: list[int] = []

            def later() -> None:
                looks.append(len(looks))
                if looks[-1] == 1:  # between the first look of the call and its second
                    db["t"].truncate()
                    db["t"].upsert({"id": 2, "v": 2})
                    db["u"].upsert({"id": 1, "v": 1})

            since = beside.seq
            files.hook = later
            found = [
                row
                for reader in beside.changes(since=since).values()
                for row in reader.read_all().to_pylist()
            ]
            last = max((row["_seq"] for row in found), default=since)
            files.hook = lambda: None
            rest = beside.changes(since=last)
            seen = {row["id"] for row in found}
            for reader in rest.values():
                seen |= {r["id"] for r in reader.read_all().to_pylist() if r["_op"] == "upsert"}
            assert {1, 2} <= seen


def test_a_closed_reader_keeps_nothing_from_vacuum(tmp_path: Path) -> None:
    with open_store(tmp_path / "db", fake_env(), retention_s=0) as db:
        db.create_table("t", SCHEMA, primary_key="id")
        beside = LocalStore.open(tmp_path / "db", Options(), env=fake_env(), read_only=True)
        assert beside["t"].count() == 0
        db["t"].upsert({"id": 1, "v": 1})
        db.checkpoint()
        assert db.vacuum(dry_run=False, grace_s=0).spared
        beside.close()
        assert not db.vacuum(dry_run=False, grace_s=0).spared
