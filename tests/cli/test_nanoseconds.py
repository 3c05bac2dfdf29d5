"""Nanoseconds, which Python's own times do not hold, come through every command and the server."""

import datetime as dt
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import siltstone as st
from tests.children import with_pandas

AT = 1_767_225_600_123_456_789
KIND = pa.timestamp("ns")


def store(path: Path) -> None:
    """Make a store with a moment of nanoseconds in base, in history, in a list and as a key."""
    rows = pa.table(
        {"id": [1], "at": pa.array([AT], KIND), "all": pa.array([[AT]], pa.list_(KIND))}
    )
    with st.connect(path, background=False) as db:
        db.create_table("t", rows.schema, primary_key="id").upsert(rows)
        db.create_table("k", {"at": KIND}, primary_key="at").upsert(rows.select(["at"]))
        db.checkpoint()
        db.merge()
        db["t"].upsert(rows)
        db.checkpoint()


@pytest.mark.parametrize(
    "arguments",
    [
        ["get", "t", "1"],
        ["get", "k", "2026-01-01 00:00:00.123456789"],
        ["scan", "t"],
        ["changes", "--table", "t", "--ndjson"],
        ["query", "select * from t"],
        ["delete", "k", "2026-01-01 00:00:00.123456789", "--dry-run"],
        ["export", "t", "-"],
        ["merge"],
        ["optimize"],
        ["verify", "--deep"],
    ],
    ids=" ".join,
)
def test_a_command_takes_and_gives_nanoseconds(tmp_path: Path, arguments: list[str]) -> None:
    store(tmp_path / "db")
    done = subprocess.run(
        [sys.executable, "-m", "siltstone", *arguments, "--db", tmp_path / "db"],
        capture_output=True, text=True, check=False, env=with_pandas(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-300:]
    if arguments[0] in {"get", "scan", "changes", "query", "export"}:
        assert "00:00:00.123456789" in done.stdout
    with st.connect(tmp_path / "db", background=False) as db:
        assert db["t"].to_arrow()["at"].cast(pa.int64()).to_pylist() == [AT]
        assert db["k"].count() == 1
        assert db.verify(deep=True).is_sound


def test_a_sound_store_is_sound_also_without_pandas(tmp_path: Path) -> None:
    store(tmp_path / "db")
    command = [sys.executable, "-m", "siltstone", "verify", "--deep", "--db", tmp_path / "db"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-300:]


def test_a_client_of_siltstone_serve_reads_nanoseconds(tmp_path: Path) -> None:
    store(tmp_path / "db")
    command = [sys.executable, "-m", "siltstone", "serve", "--port", "0", "--db", tmp_path / "db"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=with_pandas())
    with server:
        try:
            assert server.stdout is not None
            server.stdout.readline()
            with st.connect(tmp_path / "db", join=True) as db:
                found, key = db["t"].get(1), db["k"].get(pd.Timestamp(AT))
                assert found is not None
                assert key is not None
                assert found["at"].value == key["at"].value == AT
                with pytest.raises(st.SchemaMismatchError):
                    db["t"].upsert({"id": dt.time(1)})
        finally:
            server.terminate()


def test_an_undo_shows_nanoseconds_without_pandas(tmp_path: Path) -> None:
    store(tmp_path / "db")
    with st.connect(tmp_path / "db", background=False) as db:
        seq = db.seq
        db["t"].delete([1])
    command = [sys.executable, "-m", "siltstone", "undo", "t", "--to", str(seq), "--dry-run"]
    done = subprocess.run(
        [*command, "--db", tmp_path / "db"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-300:]
    assert "2026-01-01 00:00:00.123456789" in done.stderr
