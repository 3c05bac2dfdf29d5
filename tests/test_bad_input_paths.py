"""A path that cannot be a store, or cannot be written, says why; what was there is untouched."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
import xxhash

import siltstone as st
from siltstone.local.store import LocalStore
from siltstone.open.environment import Env
from siltstone.options import Options
from siltstone.storage.files.files import File, Files, RealFiles
from siltstone.storage.files.locks import Lock
from tests.nightly import by_day
from tests.unchanged import connect, contents

ROOT = Path(__file__).parents[1]
NEEDS_SPACE = {"write", "create_if_absent", "replace", "preallocate", "mkdir", "make_level", "link"}
WRITES = NEEDS_SPACE | {"rename", "unlink", "rmdir", "sync_dir", "sync_file"}


class Refusing:
    """The real file system, until `errno` is set: then a disk that is full, or read-only."""

    def __init__(self) -> None:
        self.errno = 0
        self._files = RealFiles()

    def __getattr__(self, name: str) -> Any:
        refused = NEEDS_SPACE if self.errno == errno.ENOSPC else WRITES
        if self.errno and name in refused:
            return self._refuse
        return getattr(self._files, name)

    def below(self, root: Path) -> Refusing:
        return self  # by paths

    def _refuse(self, path: Path, *_rest: object, **_options: object) -> None:
        raise OSError(self.errno, os.strerror(self.errno), str(path))

    def open(
        self, path: Path, *, create: bool = False, new: bool = False, write: bool = True
    ) -> File:
        is_new = new or (create and not self._files.exists(path))
        if self.errno and (is_new or (write and self.errno == errno.EROFS)):
            self._refuse(path)
        return self._files.open(path, create=create, new=new, write=write)

    def lock(self, path: Path, *, shared: bool = False, create: bool = False) -> Lock | None:
        if self.errno == errno.EROFS and create:
            self._refuse(path)
        return self._files.lock(path, shared=shared, create=create)


def tree(root: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }


def filled(path: Path) -> None:
    with connect(path) as store:
        store.create_table("t", {"id": "int64"}, primary_key="id").upsert({"id": 1})


def opened(path: Path, files: Refusing, *, read_only: bool = False) -> st.Store:
    options = Options(segment_bytes=65536, background=False)
    return LocalStore.open(path, options, read_only=read_only, env=Env(files=cast("Files", files)))


@pytest.mark.parametrize("path", ["", "a\0b", b"bytes", "http://host/x", "s3://bucket/x"])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(st.RequestError):
        st.connect(path)


@pytest.mark.parametrize("read_only", [True, False])
def test_a_file_is_not_a_store_and_stays_as_it_is(tmp_path: Path, *, read_only: bool) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises((st.RequestError, st.UnavailableError)) as found:
            connect(path, read_only=read_only)
        assert str(path) in str(found.value) or "file" in str(found.value)
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_bytes(b"mine")
    with pytest.raises(st.RequestError, match="letters"):
        connect(tmp_path / "letters")
    assert tree(tmp_path / "letters") == {"a.txt": b"mine"}


@pytest.mark.parametrize("is_empty", [True, False])
def test_reading_where_no_store_is_creates_none(tmp_path: Path, *, is_empty: bool) -> None:
    if is_empty:
        (tmp_path / "new").mkdir()
    with pytest.raises(st.RequestError):
        connect(tmp_path / "new", read_only=True)
    assert tree(tmp_path) == ({"new": None} if is_empty else {})


def test_a_read_only_disk_can_be_read_and_says_so_when_it_is_to_be_owned(tmp_path: Path) -> None:
    filled(tmp_path / "s")
    before = tree(tmp_path)
    files = Refusing()
    files.errno = errno.EROFS
    with pytest.raises(st.UnavailableError, match="Read-only file system"):
        opened(tmp_path / "s", files)
    with pytest.raises(st.UnavailableError, match="Read-only file system"):
        opened(tmp_path / "new", files)
    with opened(tmp_path / "s", files, read_only=True) as store:
        assert store["t"].get(1) == {"id": 1}
    assert tree(tmp_path) == before


def test_a_full_disk_fails_the_commit_and_nothing_else(tmp_path: Path) -> None:
    files = Refusing()
    store = opened(tmp_path / "s", files)
    table = store.create_table("t", {"id": "int64", "b": "binary"}, primary_key="id")
    store.create_table("p", {"x": "int64"}).append({"x": 1})
    files.errno = errno.ENOSPC
    acknowledged = 0
    with pytest.raises(st.UnavailableError, match="space"):  # noqa: PT012 - which one is open
        while acknowledged < 100:
            table.upsert({"id": acknowledged, "b": bytes(10_000)})
            acknowledged += 1
    before = contents(store)
    assert table.count() == acknowledged
    for use in (store.checkpoint, lambda: store["p"].append({"x": 2})):
        with pytest.raises(st.UnavailableError, match="space"):
            use()
    assert contents(store) == before
    files.errno = 0
    table.upsert({"id": 1000, "b": b"again"})
    store["p"].append({"x": 2})
    store.checkpoint()
    table.upsert({"id": 1001, "b": b"after"})
    store.close()
    with connect(tmp_path / "s") as store:
        assert store["t"].count() == acknowledged + 2
        assert store["t"].get(1000) == {"id": 1000, "b": b"again"}
        assert sorted(cast("list[int]", store["p"].to_arrow()["x"].to_pylist())) == [1, 2]


def test_no_space_for_a_new_store_leaves_a_place_where_one_can_be_made(tmp_path: Path) -> None:
    files = Refusing()
    files.errno = errno.ENOSPC
    with pytest.raises(st.UnavailableError, match="space"):
        opened(tmp_path / "s", files)
    filled(tmp_path / "s")


@pytest.mark.parametrize("read_only", [True, False])
def test_another_format_is_refused_and_not_a_byte_is_changed(
    tmp_path: Path, *, read_only: bool
) -> None:
    filled(tmp_path / "s")
    newest = max((tmp_path / "s" / "manifest").glob("*.json"))
    head, body = b"siltstone-manifest 11 ", b"what no other siltstone reads\n"
    check = xxhash.xxh3_64_hexdigest(head + body).encode()
    newest.write_bytes(head + check + b"\n" + body)
    before = tree(tmp_path)
    with pytest.raises(st.UnsupportedFormatError, match=r"has format 11, .* opens format 10 alone"):
        connect(tmp_path / "s", read_only=read_only)
    after = tree(tmp_path)
    lock = str(Path("s") / "LOCK")  # says who tried; it is a hint and no part of the format
    assert after.keys() == before.keys()
    assert {k: v for k, v in after.items() if k != lock} == {
        k: v for k, v in before.items() if k != lock
    }


KILLED = """
import os, signal
from pathlib import Path
from typing import Any, cast
from siltstone.options import Options
from siltstone.storage.files.files import File, Files, RealFiles
from siltstone.storage.files.locks import Lock
from siltstone.local.store import LocalStore
from siltstone.open.environment import Env

class Fatal:
    left = steps
    def __init__(self): self.files = RealFiles()
    def below(self, root): return self
    def __getattr__(self, name):
        method = getattr(self.files, name)
        def step(*given, **options):
            Fatal.left -= 1
            if Fatal.left < 0: os.kill(os.getpid(), signal.SIGKILL)
            return method(*given, **options)
        return step

LocalStore.open(Path(path), Options(segment_bytes=65536, background=False), env=Env(files=Fatal()))
print("opened", flush=True)
"""


def test_a_connect_that_was_killed_half_way_can_be_done_again(tmp_path: Path) -> None:
    kills = 0
    for steps in range(1, 60, by_day(13, 5)):
        path = tmp_path / f"s{steps}"
        done = subprocess.run(
            [sys.executable, "-c", f"path, steps = {str(path)!r}, {steps}\n{KILLED}"],
            cwd=ROOT, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        kills += done.returncode == -signal.SIGKILL
        filled(path)
        with connect(path, read_only=True) as store:
            assert store["t"].to_arrow() == pa.table({"id": [1]}, schema=store["t"].schema)
        shutil.rmtree(path)
        if done.returncode == 0:
            break
    assert kills >= 3
