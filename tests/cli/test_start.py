"""The command line answers at once, and says on which page of the manual the user is."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import siltstone
from siltstone.cli import main
from siltstone.cli.app import app
from tests.children import with_pandas

HEAVY = ["lance", "pyarrow", "numpy", "pandas", "rich", "duckdb", "sqlglot"]
HEAVY += ["siltstone.store", "starlette", "uvicorn"]


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["token", "read"]], ids=" ".join)
def test_what_needs_no_store_imports_nothing_that_only_work_needs(arguments: list[str]) -> None:
    code = (
        f"import sys, json; from siltstone.cli import main; code = main({arguments});"
        f"print(json.dumps([code, [m for m in {HEAVY} if m in sys.modules]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, env=with_pandas()
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [0, []]


def test_python_m_siltstone_is_the_same_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "siltstone", "--help"], capture_output=True, check=True
    )
    assert main(["--help"]) == 0
    ours = capsys.readouterr().out.split("Look:")[1]
    assert done.stdout.decode().split("Look:")[1].split() == ours.split()


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"siltstone {version('siltstone')}\n"
    assert siltstone.__version__ == version("siltstone")


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [(["chekpoint"], "checkpoint"), (["scan", "t", "--limti", "1"], "--limit")],
)
def test_a_mistyped_command_or_option_gets_a_suggestion(
    arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert meant in capsys.readouterr().err


def test_every_command_says_what_it_does() -> None:
    commands = app.registered_commands
    assert {c.callback.__name__ for c in commands if c.callback} >= {
        "demo", "init", "info", "tables", "schema", "create", "upsert", "insert", "get", "scan",
        "query", "changes", "log", "checkpoint", "merge", "optimize", "vacuum", "verify",
        "status",
    }  # fmt: skip
    assert all(len(c.callback.__doc__ or "") > 10 for c in commands if c.callback)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nonsense"], "there is no command 'nonsense'; `siltstone --help` lists the commands"),
        (["tag", "nope"], "there is no command 'nope'; `siltstone tag --help` lists the commands"),
        (["init", "--json"], "init takes no --json; `siltstone init --help` lists what it takes"),
        (["backup", "b", "--seq", "1"], "backup takes no --seq (did you mean --csv?); "),
        (["tag", "ls", "--at", "x"], "tag ls takes no --at; `siltstone tag ls --help` "),
        (["scan", "t", "--limti", "1"], "scan takes no --limti (did you mean --limit?); "),
        (["--json", "tables"], "siltstone takes no --json before the command; "),
        (["tables", "shop"], "tables takes no word 'shop'; "),
        (["tables", "a", "b"], "tables takes no words 'a b'; "),
        (["scan"], "scan needs TABLE; `siltstone scan --help` lists what it takes"),
        (["get", "t"], "get needs KEY...; "),
        (["chekpoint"], "there is no command 'chekpoint' (did you mean 'checkpoint'?); "),
        (["scan", "t", "--limit", "x"], "'--limit' / '-n': 'x' is not a valid integer; "),
        (["scan", "t", "--limit", "-1"], "'--limit' / '-n': -1 is not in the range x>=0; "),
        (["scan", "t", "--limit"], "option '--limit' requires an argument; "),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_a_wrong_command_line_is_told_in_one_sentence_and_exits_with_2(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert not out
    (line,) = err.splitlines()
    assert line.startswith("siltstone: ")
    assert told in line
    assert "--help`" in line


def test_siltstone_alone_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["tag"]):
        assert main(words) == 2
        assert "Usage: siltstone" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--db", "x", "serve"], ["--db=x", "demo"], ["bench"]])
def test_a_command_that_runs_the_code_of_others_leaves_them_pandas(words: list[str]) -> None:
    code = (
        f"import sys; sys.argv = ['siltstone', *{words}, '--help']; from siltstone.cli import main;"
        "assert main() in (0, 2); import pandas"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=False, env=with_pandas()
    )
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize(
    "arguments", [["merge"], ["optimize"], ["get", "t", "1"], ["log"]], ids=" ".join
)
def test_a_command_does_without_pandas(tmp_path: Path, arguments: list[str]) -> None:
    """Arrow imports it with its first array wherever it is installed: more than a second."""
    with siltstone.connect(tmp_path / "db") as db:
        db.create_table("t", {"id": "int64"}, primary_key="id").upsert({"id": 1})
    command = [sys.executable, "-X", "importtime", "-m", "siltstone", *arguments]
    command += ["--db", str(tmp_path / "db")]
    done = subprocess.run(command, capture_output=True, check=True, env=with_pandas())
    imported = [line.rpartition(b"|")[2].strip() for line in done.stderr.splitlines()]
    assert b"pyarrow" in imported
    assert b"pandas.core" not in imported  # "pandas" alone is the try
