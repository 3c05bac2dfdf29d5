"""A kill or a power cut while a reader at a URL fills its scratch changes no row that is read.

The scratch holds rows of bases (`PartCache`). Nothing there is synced, so a power cut may leave any
bytes under any name. Whatever is left, the next reader opens with the rows of the bucket, and has
a scratch that is of use again.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.local.store import LocalStore
from siltstone.open.environment import Env
from siltstone.options import Options
from siltstone.storage.cache.part_cache import PartCache
from siltstone.storage.site import Site
from tests.crash.moments import chance, some
from tests.maintenance.far_readers import reader_at
from tests.maintenance.mirrors import at, go_on, lived, mirrored
from tests.support.simulated_objects import SimBucket

Rows = dict[int, dict[str, Any] | None]
STEPS = {os: ("open", "write", "rename", "unlink", "mkdir"), Path: ("rename", "unlink", "mkdir")}
MOST = 10


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[tuple[Path, SimBucket, Rows]]:
    """Return a store whose base has several parts, its bucket, and its rows by key."""
    bucket = SimBucket()
    with lived(tmp_path / "s") as db:
        db["keyed"].upsert(pa.table({"id": range(2_000, 2_600), "v": ["x" * 300] * 600}))
        go_on(db, 1)
        db.merge()
        go_on(db, 2)
        mirrored(db.path, at(bucket))
        keys = [0, 7, 8, 1_001, 2_000, 2_599]
        yield db.path, bucket, {key: db["keyed"].get(key) for key in keys}


def far(root: Path, bucket: SimBucket, scratch: Path, patch: pytest.MonkeyPatch) -> LocalStore:
    """Open a reader that puts each row that it reads into its scratch."""

    def parts(site: Site, options: Options) -> PartCache:
        del options
        own = functools.cache(site.manifests.store_id)
        return PartCache(scratch, own, bytes_max=1 << 24, open_bytes_max=1 << 20, is_eager=True)

    with patch.context() as patched:
        opened: Any = LocalStore.open

        def open_with(at: Path, options: Options, **given: Any) -> LocalStore:
            env = given.get("env") or Env()
            return opened(at, options, **{**given, "env": replace(env, part_cache=parts)})

        patched.setattr(LocalStore, "open", open_with)
        return reader_at(at(bucket), root, patch)


def read(db: st.Store, keys: Rows) -> Rows:
    return {key: db["keyed"].get(key) for key in keys}


def photographed(
    scratch: Path, work: Callable[[], object], patch: pytest.MonkeyPatch
) -> list[Path]:
    """Return copies of a scratch: before each step of `work` that may change a file of it."""
    shots: list[Path] = []

    def take() -> None:
        shots.append(scratch.with_name(f"{scratch.name}-{len(shots)}"))
        shutil.copytree(scratch, shots[-1], dirs_exist_ok=True)

    with patch.context() as patched:
        is_copying = False

        def before(step: Callable[..., Any], *given: Any, **options: Any) -> Any:
            nonlocal is_copying
            if not is_copying:
                is_copying = True
                take()
                is_copying = False
            return step(*given, **options)

        for place, names in STEPS.items():
            for each in names:
                step = getattr(place, each)
                patched.setattr(place, each, _before(before, step))
        work()
    take()
    return shots


def _before(before: Callable[..., Any], step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function, so that a method of `Path` is bound as one."""

    def stepped(*given: Any, **options: Any) -> Any:
        return before(step, *given, **options)

    return stepped


LEFT: dict[str, Callable[[bytes], bytes]] = {
    "all": lambda data: data,
    "no bytes": lambda _: b"",
    "zeros": lambda data: bytes(len(data)),
    "half": lambda data: data[: len(data) // 2],
    "zeros behind the half": lambda data: data[: len(data) // 2].ljust(len(data), b"\0"),
    "an end without a beginning": lambda data: data[len(data) // 2 :].rjust(len(data), b"\0"),
}


@pytest.mark.parametrize("left", LEFT)
def test_what_is_left_of_a_scratch_changes_no_row(
    shop: tuple[Path, SimBucket, Rows], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    root, bucket, rows = shop
    scratch = tmp_path / "scratch"
    scratch.mkdir(mode=0o700)
    with far(root, bucket, scratch, monkeypatch) as db:
        shots = photographed(scratch, lambda: read(db, rows), monkeypatch)
    whole = sorted(path.name for path in shots[-1].glob("*/parts/*"))
    assert len(whole) > 1
    assert len(shots) > 10
    for shot in some(shots, chance(left), MOST):
        for path in shot.glob("*/parts/*"):
            path.write_bytes(LEFT[left](path.read_bytes()))
        for _ in range(2):
            with far(root, bucket, shot, monkeypatch) as db:
                assert read(db, rows) == rows, shot.name
        with far(root, bucket, shot, monkeypatch) as db:
            assert read(db, rows) == rows, shot.name
            assert db.status().cache.hits >= len(whole), shot.name
        assert sorted(path.name for path in shot.glob("*/parts/*")) == whole, shot.name
