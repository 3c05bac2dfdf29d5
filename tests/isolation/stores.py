"""Stores for the isolation tests: on a simulated machine, with two rows in the table `t`."""

from __future__ import annotations

from pathlib import Path

from siltstone.local.store import LocalStore
from siltstone.open.environment import Env
from siltstone.options import Options
from tests.support.fake_lance import fake_lance
from tests.support.simulated_files import SimFiles

OPTIONS = Options(background=False, segment_bytes=65_536)


def opened(files: SimFiles) -> LocalStore:
    env = Env(
        files=files,
        tables=lambda root, seam, _verify: fake_lance(root, seam),
        warm_up=lambda: None,
    )
    return LocalStore.open(Path("/data/shop"), OPTIONS, env=env)


def with_two_rows(files: SimFiles | None = None) -> LocalStore:
    db = opened(files or SimFiles())
    table = db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
    table.upsert([{"id": 1, "v": 10}, {"id": 2, "v": 20}])
    return db
