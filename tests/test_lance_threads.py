"""A number of threads with which Lance hangs or panics is refused before a store is touched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import siltstone as st
from siltstone.admin import verify_store
from siltstone.storage.site import site_of

BAD = ["1", "0", "-1", "01", "many", "", " 4"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with st.connect(tmp_path / "there", background=False) as db:
        db.create_table("t", {"id": "int64"}, primary_key="id")
    return tmp_path / "there"


@pytest.mark.parametrize("value", BAD)
def test_connect_refuses_it_and_makes_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("LANCE_IO_THREADS", value)
    with pytest.raises(st.RequestError, match=rf"LANCE_IO_THREADS is '{value}'.*2 or more"):
        st.connect(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_whatever_opens_the_files_of_a_store_refuses_it(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANCE_IO_THREADS", "1")
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    for opens in (
        lambda: st.connect(store),
        lambda: st.connect(store, read_only=True),
        lambda: st.connect(store, join=True),
        lambda: verify_store(store),
        lambda: site_of(str(store), "first_use"),  # a task in a process of Spark, or a child
    ):
        with pytest.raises(st.RequestError, match="LANCE_IO_THREADS"):
            opens()
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before


def test_the_command_line_says_it_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "siltstone", "init", "--db", str(tmp_path / "new")],
        env={**os.environ, "LANCE_IO_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "LANCE_IO_THREADS is '1'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("value", ["2", "64"])
def test_more_threads_are_taken(store: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("LANCE_IO_THREADS", value)
    with st.connect(store, read_only=True) as db:
        assert db.tables() == ["t"]
