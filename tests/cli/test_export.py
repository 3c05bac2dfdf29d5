"""An export is a whole file or none, whatever stops it."""

from __future__ import annotations

import csv
import datetime as dt
import hashlib
import json
import os
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import siltstone as st
from tests.children import with_pandas
from tests.cli.shell import Shell

NS = pa.timestamp("ns")
KINDS: dict[pa.DataType, object] = {
    pa.uint64(): 2**64 - 1,
    pa.float16(): 1.5,
    pa.decimal128(10, 2): Decimal("1.50"),
    pa.decimal256(60, 2): Decimal("1.50"),
    pa.large_binary(): b"\x00\xff",
    pa.binary(2): b"\x00\xff",
    pa.date64(): dt.date(2020, 2, 29),
    pa.time64("ns"): 1_000,
    pa.timestamp("us", "Europe/Oslo"): 1,
    NS: 1,
    pa.duration("s"): dt.timedelta(seconds=90),
    pa.duration("ns"): 90_000_000_001,
    pa.uuid(): UUID(int=7).bytes,
    pa.json_(): '{"a":1}',
    pa.fixed_shape_tensor(pa.float32(), [2]): [1.0, 2.0],
    pa.list_(pa.float32(), 2): [1.0, 2.0],
    pa.large_list(pa.int8()): [1, None],
    pa.list_(pa.duration("ns")): [1],
    pa.map_(pa.string(), NS): [("a", 1)],
    pa.large_list(NS): [1],
    pa.struct([("at", NS), ("raw", pa.binary())]): {"at": 1, "raw": b"\x00"},
}
BYTES_MAX = 256 << 10
FORMS = ["csv", "ndjson.gz", "parquet", "arrow"]
# Python ignores the signal, so that a write beyond the limit fails as on a full disk; with the
# default it kills the process, in the middle of that write.
LIMITED = """
import resource, signal, sys
from siltstone.cli import main
signal.signal(signal.SIGXFSZ, getattr(signal, sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
sys.exit(main(sys.argv[3:]))
"""


def column_of(kind: Any) -> pa.Array:
    """Return a value of a type, and a null."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(
            kind, pa.array([KINDS[kind], None], kind.storage_type)
        )
    return pa.array([KINDS[kind], None], kind)


@pytest.fixture
def kinds(shell: Shell) -> Shell:
    """A table with a column of each type that a column may have."""
    columns = {f"c{number}": column_of(kind) for number, kind in enumerate(KINDS)}
    with st.connect(shell.db, background=False) as db:
        db.create_table("kinds", data=pa.table(columns))
    return shell


@pytest.mark.parametrize("form", ["parquet", "arrow", "arrow.gz"])
def test_every_type_that_a_column_has_is_exported_and_comes_back(
    kinds: Shell, tmp_path: Path, form: str
) -> None:
    assert kinds("export", "kinds", tmp_path / f"k.{form}") == 0, kinds.err
    assert kinds("create", "again", "--from", tmp_path / f"k.{form}") == 0, kinds.err
    with st.connect(kinds.db, read_only=True) as db:
        rows, again = db["kinds"].to_arrow(), db["again"].to_arrow()
    if form == "parquet":  # which has dates of days alone
        place = list(KINDS).index(pa.date64())
        rows = rows.set_column(place, f"c{place}", rows.column(place).cast(pa.date32()))
    assert again.schema.equals(rows.schema)
    assert again.equals(rows)


ODD = [float("nan"), float("inf"), float("-inf"), 1.5, None]


@pytest.mark.parametrize("form", ["ndjson", "csv"])
def test_numbers_that_json_lacks_come_back_from_text_as_they_were(
    shell: Shell, tmp_path: Path, form: str
) -> None:
    columns = {"id": range(5), "x": pa.array(ODD), "half": pa.array(ODD, pa.float16())}
    if form == "ndjson":
        columns["list"] = pa.array([ODD] * 5)
        columns["pair"] = pa.array([[1.5, each] for each in ODD], pa.list_(pa.float32(), 2))
        tensor = pa.fixed_shape_tensor(pa.float32(), [2])
        columns["tensor"] = pa.ExtensionArray.from_storage(tensor, columns["pair"])
        columns["struct"] = pa.array([{"x": each} for each in ODD])
    rows = pa.table({name: pa.array(column) for name, column in columns.items()})
    with st.connect(shell.db, background=False) as db:
        db.create_table("odd", data=rows)
        db.create_table("again", rows.schema)
    file = tmp_path / f"odd.{form}"
    assert shell("export", "odd", file) == 0, shell.err
    assert shell("append", "again", file) == 0, shell.err
    with st.connect(shell.db, read_only=True) as db:
        assert str(db["again"].to_arrow().to_pydict()) == str(rows.to_pydict())
    if form == "ndjson":
        shown = [json.loads(line)["x"] for line in file.read_text().splitlines()]
        assert shown == ["NaN", "Infinity", "-Infinity", 1.5, None]


TEXTS = {
    NS: "1970-01-01 00:00:00.000000001",
    pa.duration("ns"): "PT90.000000001S",
    pa.uuid(): "00000000-0000-0000-0000-000000000007",
    pa.json_(): '{"a":1}',
    pa.binary(2): "AP8=",
    pa.fixed_shape_tensor(pa.float32(), [2]): [1.0, 2.0],
    pa.large_list(NS): ["1970-01-01 00:00:00.000000001"],
    pa.map_(pa.string(), NS): [["a", "1970-01-01 00:00:00.000000001"]],
}


def test_every_type_has_a_text_also_without_pandas(kinds: Shell, tmp_path: Path) -> None:
    """As a process of its own, a command finds no pandas."""
    for form in ("csv", "tsv", "ndjson"):
        done = subprocess.run(
            [sys.executable, "-m", "siltstone", "export", "kinds", tmp_path / f"k.{form}"],
            capture_output=True, text=True, check=False, env=with_pandas(),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    shown, empty = map(json.loads, (tmp_path / "k.ndjson").read_text().splitlines())
    names = {kind: f"c{number}" for number, kind in enumerate(KINDS)}
    assert {kind: shown[names[kind]] for kind in TEXTS} == TEXTS
    assert set(empty.values()) == {None}
    with (tmp_path / "k.tsv").open(newline="") as file:
        _, cells, _ = csv.reader(file, delimiter="\t")
    told = dict(zip(names, cells, strict=True))
    assert {kind: told[kind] for kind in TEXTS} == {
        kind: text if isinstance(text, str) else json.dumps(text, separators=(",", ":"))
        for kind, text in TEXTS.items()
    }


@pytest.fixture
def noise(shell: Shell) -> Shell:
    """A table whose rows take more bytes than `BYTES_MAX` in any form."""
    words = [hashlib.sha256(bytes([n % 256, n // 256])).hexdigest() for n in range(20_000)]
    with st.connect(shell.db, background=False) as db:
        db.create_table("noise", data=pa.table({"id": range(20_000), "word": words}))
    return shell


def exported(shell: Shell, handler: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run `export` in a process whose files may have `BYTES_MAX` bytes."""
    command = [sys.executable, "-c", LIMITED, handler, str(BYTES_MAX), "export", "noise"]
    command += [*map(str, words), "--db", str(shell.db)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("form", FORMS)
def test_an_export_for_which_the_disk_is_full_leaves_nothing(
    noise: Shell, tmp_path: Path, form: str
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    done = exported(noise, "SIG_IGN", folder / f"noise.{form}")
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert [*folder.iterdir()] == []


def test_a_failed_overwrite_leaves_the_file_that_was_there(noise: Shell, tmp_path: Path) -> None:
    (tmp_path / "noise.csv").write_text("mine")
    assert exported(noise, "SIG_IGN", tmp_path / "noise.csv", "--overwrite").returncode == 1
    assert (tmp_path / "noise.csv").read_text() == "mine"


def test_an_export_that_is_killed_leaves_no_file_of_the_name_and_the_next_one_is_whole(
    noise: Shell, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    done = exported(noise, "SIG_DFL", folder / "noise.ndjson")
    assert done.returncode == -signal.SIGXFSZ
    (left,) = folder.iterdir()
    assert left.name.startswith(".noise.ndjson.")
    assert left.name.endswith(".part")
    assert noise("export", "noise", folder / "noise.ndjson") == 0, noise.err
    lines = (folder / "noise.ndjson").read_text().splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == [*range(20_000)]
    assert {path.name for path in folder.iterdir()} == {left.name, "noise.ndjson"}


def test_what_a_killed_run_of_the_same_number_left_is_in_nobodys_way(
    noise: Shell, tmp_path: Path
) -> None:
    """In a container every run has the same process id."""
    (tmp_path / f".noise.parquet.{os.getpid()}.part").write_bytes(b"half")
    assert noise("export", "noise", tmp_path / "noise.parquet") == 0, noise.err
    assert pq.read_table(tmp_path / "noise.parquet").num_rows == 20_000


def test_an_export_is_of_one_snapshot_whatever_is_committed_meanwhile(
    noise: Shell, tmp_path: Path
) -> None:
    with st.connect(noise.db, background=False) as db:
        before = db.seq
        db["noise"].truncate()
    out = tmp_path / "noise.arrow"
    told = noise.json("export", "noise", out, "--seq", before)
    assert told == {"table": "noise", "file": str(out), "rows": 20_000, "seq": before}


def test_an_export_has_the_mode_that_the_umask_leaves(noise: Shell, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert noise("export", "noise", tmp_path / "noise.csv") == 0, noise.err
    finally:
        os.umask(before)
    assert (tmp_path / "noise.csv").stat().st_mode & 0o777 == 0o600
