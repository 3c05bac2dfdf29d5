"""No commit waits for the I/O of a checkpoint, not even while the view is exchanged."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from siltstone.maintenance.flush.bulk_load import load
from tests.engine.seams import WAIT_S, HookedTables, fake_env, open_store

SCHEMA = {"id": "int64", "v": "int64"}


def test_a_commit_passes_every_lance_call_of_a_checkpoint_and_of_a_merge(tmp_path: Path) -> None:
    hooked: list[HookedTables] = []
    passed: list[tuple[str, bool]] = []
    with open_store(tmp_path, fake_env(hooked=hooked)) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        table.upsert({"id": 0, "v": 0})
        definition, table_schema = table._table_schema()
        rows = pa.table({"id": range(100), "v": range(100)})
        load(db._core, definition, table_schema, rows, may_repeat=True, bytes_min=1)

        def commit_beside(batch: int) -> None:
            with db.transaction(token=("app", batch)) as tx:
                tx["t"].upsert({"id": 1000, "v": batch})

        def hook(name: str) -> Callable[..., None]:
            def call(*_: object) -> None:
                if not all(is_free for _, is_free in passed):
                    return  # one that waits is enough
                thread = threading.Thread(target=commit_beside, args=(len(passed),), daemon=True)
                thread.start()
                thread.join(WAIT_S)
                passed.append((name, not thread.is_alive()))

            return call

        for name in ("open", "stage", "commit", "create", "fold"):
            hooked[0].hooks[name] = hook(name)
        db.checkpoint()
        db.merge()
        hooked[0].hooks.clear()
        assert {name for name, _ in passed} == {"stage", "commit", "create", "open", "fold"}
        assert [name for name, is_free in passed if not is_free] == []
        assert table.count() == 101
