"""Whatever step the file system refuses, a store that was closed has let go of every file."""

from __future__ import annotations

import errno
import gc
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone as st
from proof.exhaustion.faulty_files import Faults, FaultyFiles
from siltstone.local.store import LocalStore
from siltstone.open.environment import Env
from siltstone.options import resolve
from tests.compat.golden import unpacked
from tests.compat.test_other_formats import unknown_entry

OPTIONS = {"background": False, "segment_bytes": 16_384}


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """Leave it to references: who looks for circles comes late, or not while another does."""
    gc.disable()
    yield
    gc.enable()


def open_files(root: Path) -> list[str]:
    """Return what is open below `root`."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [name for link in links if (name := str(link.readlink())).startswith(str(root))]


def live(root: Path, env: Env) -> None:
    """Open, commit over three segments, close."""
    with LocalStore.open(root, resolve(root, OPTIONS), env=env) as db:
        for key in range(3):
            db["t"].upsert({"id": key, "v": "x" * 9_000})


def test_no_file_stays_open_whatever_step_is_refused(tmp_path: Path) -> None:
    faults = Faults()
    env, template = Env(files=FaultyFiles(faults)), tmp_path / "template"
    with st.connect(template, **OPTIONS) as db:
        db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
    live(shutil.copytree(template, tmp_path / "whole"), env)
    steps, failed = faults.count, 0
    for at in range(1, steps + 1):
        root = shutil.copytree(template, tmp_path / f"{at}")
        faults.order(at, errno.EIO, is_sticky=at % 2 == 0)
        try:
            live(root, env)
        except st.SiltstoneError:
            failed += 1
        faults.clear()
        assert open_files(tmp_path) == [], f"step {at} of {steps}"
    assert failed > steps // 2


def test_no_file_stays_open_when_the_log_is_whole_but_cannot_be_read(tmp_path: Path) -> None:
    root = unpacked("dirty-log", tmp_path)
    unknown_entry(root)
    for _ in range(2):
        with pytest.raises(st.UnsupportedFormatError):
            st.connect(root, **OPTIONS)
        assert open_files(root) == []


@pytest.fixture
def no_threads():
    """Threads do not start: no address space has room for their stacks."""
    threading.stack_size(1 << 46)
    yield
    threading.stack_size(0)


@pytest.mark.usefixtures("no_threads")
def test_a_thread_that_does_not_start_is_an_error_of_ours_and_costs_nothing(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with pytest.raises(st.UnavailableError, match="cannot start the thread siltstone-scheduler"):
        st.connect(root, segment_bytes=16_384)
    assert open_files(root) == []
    with st.connect(root, **OPTIONS) as db:
        db.create_table("t", {"id": "int64"}, primary_key="id")
        with pytest.raises(st.UnavailableError, match="siltstone-syncer"):
            db.transaction(durability="async")
        for serve in (db.serve_local, lambda: db.serve(port=0)):
            with pytest.raises(st.UnavailableError, match="cannot start the thread"):
                serve()
        threading.stack_size(0)
        with db.transaction(durability="async") as tx:
            tx["t"].upsert({"id": 1})
        del tx  # it has a view, and so a lease
        db.serve_local()
    assert open_files(root) == []


class NoManifests(FaultyFiles):
    """Files that refuse what Lance's commit asks of our catalog: to move a manifest."""

    def rename(self, old: Path, new: Path) -> None:
        if new.suffix == ".manifest":
            raise OSError(errno.EIO, "Input/output error")
        super().rename(old, new)


def test_a_commit_of_lance_that_we_refuse_holds_no_lease_for_ever(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with LocalStore.open(root, resolve(root, OPTIONS), env=Env(files=NoManifests(Faults()))) as db:
        db.create_table("t", {"id": "int64"}, primary_key="id")
        db["t"].upsert({"id": 1})
        with pytest.raises(st.UnavailableError):
            db.checkpoint()
    del db
    assert open_files(root) == []
