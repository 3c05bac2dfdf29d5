"""`siltstone status` asks the owner if it answers, says who answered, and counts rows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.joined import protocol
from siltstone.joined.frames.connection import FrameOwnerConnection
from siltstone.joined.store import JoinedStore
from tests.cli.shell import Shell

ME = f"process {os.getpid()}"


@pytest.fixture
def owner(shell: Shell) -> Iterator[st.Store]:
    """Own the store of the shell: 30 rows of base, of which 10 are replaced, and 5 more."""
    with st.connect(shell.db, background=False) as db:
        table = db.create_table("t", {"id": "int64"}, primary_key="id")
        table.upsert(pa.table({"id": range(30)}))
        db.checkpoint()
        db.merge()
        table.upsert(pa.table({"id": range(20, 35)}))
        yield db


_OWNER = """
import os, signal, sys
import siltstone as st
from siltstone.local.store import LocalStore

LocalStore.status = lambda _: os.kill(os.getpid(), signal.Signals[sys.argv[2]])
with st.connect(sys.argv[1], background=False) as db:
    db.serve_local()
    print("serves", flush=True)
    sys.stdin.read()
"""


@contextmanager
def _owner_that(signal_name: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield an owner that sends itself a signal when it is asked for its status."""
    command = [sys.executable, "-c", _OWNER, str(path), signal_name]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "serves\n"
            yield process
        finally:
            os.kill(process.pid, signal.SIGKILL)


def _status(shell: Shell) -> dict[str, Any]:
    return cast("dict[str, Any]", shell.json("status"))


def test_an_owner_that_serves_answers_with_its_own_numbers(shell: Shell, owner: st.Store) -> None:
    owner.serve_local()
    with owner.transaction():
        found = _status(shell)
    assert found["answered_by"].startswith(f"the owner, {ME} on ")
    assert (found["commits_since_open"], found["open_transactions"]) == (3, 1)
    assert found["backpressure"]["stop_bytes"] == owner.status().backpressure.stop_bytes > 0
    assert not found["is_read_only"]


def test_beside_an_owner_that_does_not_serve_a_reader_answers(
    shell: Shell, owner: st.Store
) -> None:
    found = _status(shell)
    assert found["answered_by"].startswith(f"a reader: the owner, {ME} on ")
    assert (found["is_read_only"], found["visible_seq"]) == (True, owner.seq)


def test_without_an_owner_a_reader_answers(shell: Shell) -> None:
    assert _status(shell)["answered_by"] == "a reader: no process owns the store"


def test_a_server_answers_for_its_store(shell: Shell, owner: st.Store) -> None:
    url = owner.serve(port=0).url
    found = cast("dict[str, Any]", shell.json("status", "--db", url))
    assert found["answered_by"] == f"the owner, at {url}"
    assert found["tables"][0]["rows"] == 35


@pytest.mark.parametrize("serves", [True, False])
def test_rows_are_rows_and_not_those_of_base(shell: Shell, owner: st.Store, serves: bool) -> None:
    if serves:
        owner.serve_local()
    (table,) = _status(shell)["tables"]
    assert (table["rows"], table["base_rows"], table["unmerged_rows"]) == (35, 30, 15)


def test_the_printed_status_says_which_rows_it_counts(owner: st.Store) -> None:
    (table,) = owner.status().tables
    assert str(table).startswith("t: base has 30 rows in 1 parts, 15 row versions not merged")


def test_a_status_that_is_watched_outlives_the_owner_that_answered(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = st.connect(shell.db, background=False)
    db.serve_local()
    pause = SimpleNamespace(sleep=lambda _: db.close())  # other threads sleep, too
    monkeypatch.setattr("siltstone.cli.commands.maintain.time", pause)
    assert shell("status", "--watch", "--count", "2", "--ndjson") == 0, shell.err
    first, second = shell.out.splitlines()
    assert f'"answered_by":"the owner, {ME}' in first
    assert '"answered_by":"a reader: no process owns the store"' in second


def test_a_missing_store_has_no_status(shell: Shell, tmp_path: Path) -> None:
    assert shell("status", "--db", tmp_path / "nowhere") == 3


@pytest.mark.parametrize("options", [(), ("--watch", "--count", "2", "--interval", "0.1")])
def test_a_reader_answers_for_an_owner_that_hangs(shell: Shell, options: tuple[str, ...]) -> None:
    with _owner_that("SIGSTOP", shell.db) as process:
        begun = time.monotonic()
        assert shell("status", "--ndjson", *options) == 0, shell.err
        assert time.monotonic() - begun < 25
        assert shell.out.count(
            f'"answered_by":"a reader: the owner, process {process.pid} on '
        ) == (2 if options else 1)
        assert "does not answer" in shell.out


def test_a_reader_answers_for_an_owner_that_dies_when_it_is_asked(shell: Shell) -> None:
    with _owner_that("SIGKILL", shell.db):
        assert _status(shell)["answered_by"].startswith("a reader: ")


def test_a_reader_answers_for_an_owner_whose_connections_are_all_taken(
    shell: Shell, owner: st.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = str(owner.serve_local())
    with JoinedStore(owner.path, address) as joined:
        monkeypatch.setattr(owner._parts.endpoint.sessions, "_connections_max", 1)
        with joined.snapshot():
            found = _status(shell)
        assert found["answered_by"].startswith(f"a reader: the owner, {ME} on ")
        assert found["visible_seq"] == owner.seq


def test_a_reader_answers_for_an_owner_that_is_busy(
    shell: Shell, owner: st.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.serve_local()
    pipeline = owner._parts.endpoint.pipeline
    monkeypatch.setattr(pipeline, "policy", replace(pipeline.policy, requests_max=0))
    assert _status(shell)["answered_by"].startswith(f"a reader: the owner, {ME} on ")


def test_a_reader_answers_for_an_owner_of_another_version(
    shell: Shell, owner: st.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.serve_local()
    look = FrameOwnerConnection.look

    def looked(connection: FrameOwnerConnection, name: str) -> dict[str, object]:
        return {**look(connection, name), "version": protocol.VERSION + 1}

    monkeypatch.setattr(FrameOwnerConnection, "look", looked)
    assert _status(shell)["answered_by"].startswith(f"a reader: the owner, {ME} on ")


def test_an_error_that_the_owner_answers_is_told(
    shell: Shell, owner: st.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object) -> st.Status:
        raise st.PoisonedError("the log failed")

    owner.serve_local()
    monkeypatch.setattr("siltstone.local.store.LocalStore.status", fails)
    assert shell("status") == 1
    assert "the log failed" in shell.err
