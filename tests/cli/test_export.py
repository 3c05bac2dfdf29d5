"""An export is a whole file or none, whatever stops it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import siltstone as st
from tests.cli.shell import Shell

BYTES_MAX = 256 << 10
FORMS = ["csv", "csv.gz", "ndjson", "ndjson.gz", "parquet", "arrow"]
# Python ignores the signal, so that a write beyond the limit fails as on a full disk; with the
# default it kills the process, in the middle of that write.
LIMITED = """
import resource, signal, sys
from siltstone.cli import main
signal.signal(signal.SIGXFSZ, getattr(signal, sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
sys.exit(main(sys.argv[3:]))
"""


@pytest.fixture
def noise(shell: Shell) -> Shell:
    """A table whose rows take more bytes than `BYTES_MAX` in any form."""
    words = [f"{number * 2_654_435_761 % 2**61:x}" * 4 for number in range(20_000)]
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
