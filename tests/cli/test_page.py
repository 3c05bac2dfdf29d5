"""The page of the command line: its commands run as they stand, one after the other."""

from __future__ import annotations

import gzip
import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
import typer.main

from siltstone.cli import main
from siltstone.cli.app import app
from tests.cli.page import commands
from tests.test_documents import FENCED, ROOT

PAGE = (ROOT / "docs" / "cli.md").read_text()
LINES = [
    line for block in FENCED.finditer(PAGE) if block[1] == "sh" for line in block[2].splitlines()
]
OTHERWISE = {
    "demo": "tests/test_readme.py",
    "bench": "tests/cli/test_bench.py",
    "mirror": "tests/cli/test_mirror.py",
    "serve": "tests/cli/test_over_http.py",
    "shell": "tests/cli/test_shell_typed.py",
    "token": "tests/cli/test_access.py",
    "apps forget": "tests/cli/test_commands.py",
    "spark jar": "tests/spark/test_catalog_jar.py",
}
"""Commands that the page does not show, and where they run."""
FILES = {
    "orders.csv": "id,customer,total\n1,7,9.5\n7,8,20\n",
    "more.csv": "id,customer,total\n7,8,25\n8,7,1\n",
    "events.ndjson": '{"at": "2026-11-20T10:00:00", "what": "start"}\n',
    "places.ndjson": '{"id": 1, "at": [0.5, 1.5]}\n{"id": 2, "at": [9, 9]}\n',
    "query.json": "[0.5, 1]\n",
    "docs.ndjson": '{"id": 1, "title": "Rivers of silt", "v": [1, 0, 0]}\n',
}


def _write_sources(folder: Path) -> None:
    """Write what is imported and is no text."""
    (folder / "in").mkdir()
    for name in ("a", "b"):
        (folder / "in" / f"{name}.csv.gz").write_bytes(gzip.compress(b"id,n\n%d,1\n" % ord(name)))
    with pa.output_stream(str(folder / "more.ndjson.zst"), compression="zstd") as file:
        file.write(FILES["events.ndjson"].encode())
    with closing(sqlite3.connect(folder / "shop.db")) as made:
        made.execute("create table customers (id integer primary key, name text)")


def test_the_lines_of_the_page_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    _write_sources(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "backups").mkdir()
    for line in LINES:
        # A test may not write to /data: the page's machine is in a directory here.
        here = re.sub(r"(^|[ =])/(?=data/|backups/)", rf"\1{tmp_path}/", line)
        first, *words = shlex.split(here, comments=True)
        if first == "export":
            name, _, value = words[0].partition("=")
            monkeypatch.setenv(name, value)
            continue
        assert first == "siltstone", line
        assert main(words) == 0, (line, capsys.readouterr().err)
        capsys.readouterr()
    assert {"orders.parquet", "data", "backups"} <= {path.name for path in tmp_path.iterdir()}


def test_the_lines_of_the_page_have_every_command() -> None:
    shown = {" ".join(line.split()) for line in LINES}
    every = {words for words, _ in commands(typer.main.get_command(app), "siltstone")}
    missing = {words for words in every if not any(line.startswith(words) for line in shown)}
    assert {words.removeprefix("siltstone ") for words in missing} == OTHERWISE.keys()
    assert [path for path in OTHERWISE.values() if not (ROOT / path).exists()] == []
