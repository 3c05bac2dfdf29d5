"""`create --from FILE` makes the store if there is none, and none if anything is wrong."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import siltstone as st
from siltstone.cli import main
from tests.cli.shell import Shell

CSV = "id,total\n1,2.5\n2,3\n"
BAD = {
    "missing.csv": None,
    "twice.csv": "id\n1\n1\n",
    "null.csv": "id,n\n1,2\n,3\n",
    "other.csv": "key\n1\n",
    "half.ndjson": '{"id": 1}\n{"id": ',
    "rows.xls": "id\n1\n",
}


@pytest.fixture
def alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    """No store, and none in the environment."""
    monkeypatch.delenv("SILTSTONE_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path / "new" / "shop", capsys)


def test_the_first_table_makes_its_store(alone: Shell, tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text(CSV)
    words = ["create", "orders", "--from", tmp_path / "orders.csv", "--pk", "id"]
    assert alone.json("--db", alone.db, *words) == {
        "table": "orders", "primary_key": "id", "seq": 1, "rows": 2,
    }  # fmt: skip
    assert f"{alone.db} is a new store" in alone.err
    assert alone.json("--db", alone.db, "get", "orders", 2) == {"id": 2, "total": 3.0}
    assert alone("--db", alone.db, *words) == 1
    assert "new store" not in alone.err


def test_rows_that_are_streamed_make_a_store_too(alone: Shell, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / "t.parquet")
    assert alone("--db", alone.db, "create", "t", "--from", tmp_path / "t.parquet") == 0, alone.err
    with st.connect(alone.db, read_only=True) as db:
        assert db["t"].count() == 3


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_makes_no_store(alone: Shell, tmp_path: Path, name: str) -> None:
    file, text = tmp_path / name, BAD[name]
    if text is not None:
        file.write_text(text)
    before = sorted(tmp_path.rglob("*"))
    assert alone("--db", alone.db, "create", "t", "--from", file, "--pk", "id") in {1, 2, 3}
    assert not alone.out
    (line,) = alone.err.splitlines()
    assert line.startswith("siltstone: ")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_directory_of_other_files_stays_as_it_is(alone: Shell, tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text(CSV)
    words = ["create", "orders", "--from", tmp_path / "orders.csv"]
    assert alone("--db", tmp_path, *words) == 2
    assert "not a store, and not empty" in alone.err
    assert [path.name for path in tmp_path.iterdir()] == ["orders.csv"]


def test_without_a_file_there_must_be_a_store(alone: Shell) -> None:
    assert main(["--db", str(alone.db), "create", "t", "-c", "id:int64"]) == 3
    assert not alone.db.exists()
