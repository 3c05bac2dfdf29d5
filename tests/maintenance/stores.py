"""Stores for the tests of maintenance: on a real disk, and a clock that moves when it is told."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from siltstone.local.store import LocalStore
from siltstone.maintenance.thinning import BOUNDS, Bounds
from siltstone.open.environment import Env
from siltstone.options import Options
from siltstone.storage.files.files import Buffer, File, RealFile, RealFiles
from tests.support.fake_lance import fake_lance

DAY_US = 86_400_000_000


class Clock:
    """The real time, moved by what a test says."""

    def __init__(self) -> None:
        self.ahead_us = 0

    def __call__(self) -> int:
        return time.time_ns() // 1000 + self.ahead_us

    def move(self, *, days: float = 0, seconds: float = 0) -> None:
        self.ahead_us += int(days * DAY_US + seconds * 1e6)


class UnsyncedFile(RealFile):
    def sync(self) -> None:
        """Nothing here loses power."""

    def pwritev_synced(self, buffers: Sequence[Buffer], offset: int) -> bool:
        self.pwritev(buffers, offset)
        return True


class UnsyncedFiles(RealFiles):
    """The real file system, ten times as fast."""

    def open(
        self, path: Path, *, create: bool = False, new: bool = False, write: bool = True
    ) -> File:
        flags = (os.O_RDWR if write or new else os.O_RDONLY) | (os.O_CREAT if create or new else 0)
        return UnsyncedFile(path, flags | os.O_EXCL if new else flags)

    def sync_dir(self, path: Path) -> None:
        pass

    def sync_file(self, path: Path) -> None:
        pass


# Vacuum thins all that it may, however little it takes, and nothing is recent.
EAGER = Bounds(recent_s=-1, gaps_of_retention=1)


def env_of(clock: Clock | None = None, *, real_lance: bool = False, bounds: Bounds = BOUNDS) -> Env:
    env = Env(files=UnsyncedFiles(), now_us=clock or Clock(), bounds=bounds)
    if real_lance:
        return env
    return replace(env, tables=lambda at, files, _: fake_lance(at, files), warm_up=lambda: None)


def open_store(
    root: Path,
    clock: Clock | None = None,
    *,
    read_only: bool = False,
    real_lance: bool = False,
    bounds: Bounds = BOUNDS,
    load_rows_min: int | None = None,
    **options: object,
) -> LocalStore:
    given = {"background": False, "segment_bytes": 65_536, **options}
    env = env_of(clock, real_lance=real_lance, bounds=bounds)
    if load_rows_min is not None:
        env = replace(env, load_rows_min=load_rows_min)
    return LocalStore.open(root, Options(**given), env=env, read_only=read_only)


def paths(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def data_paths(root: Path) -> set[str]:
    return {
        name for name in paths(root) if name.split("/")[0] in {"tables", "commits", "inventory"}
    }


def rows(table) -> list[tuple]:
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())
