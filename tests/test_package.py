"""What is installed says what it is, needs no test, and has no test double in it."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import siltstone

PACKAGE = Path(siltstone.__file__).parent
ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HOME = PROJECT["urls"]["Homepage"]


def test_the_package_has_no_test_double_and_imports_none() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert not path.name.startswith(("fake", "simulated")), path
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in {"tests", "proof"}, path
            elif isinstance(node, ast.Import):
                assert not {each.name.split(".")[0] for each in node.names} & {"tests", "proof"}


def test_every_address_of_the_project_is_below_the_one() -> None:
    assert HOME.startswith("https://")
    assert not HOME.endswith("/")
    for url in PROJECT["urls"].values():
        assert url == HOME or url.startswith(f"{HOME}/")
    for page in ("SECURITY.md", "CODE_OF_CONDUCT.md"):
        assert f"]({HOME})" in (ROOT / page).read_text()


def tracked() -> list[Path]:
    """Return the files of the project, as git has them."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name]


def test_no_page_names_an_address_that_is_no_longer_the_projects() -> None:
    # Example hosts of other sentences have other names: `siltstone.` begins the project's alone.
    host = HOME.removeprefix("https://")
    pages = [path for path in tracked() if path.suffix in {".md", ".yml", ".toml"}]
    named = {(path.name, each) for path in pages for each in hosts_of(path.read_text())}
    assert {pair for pair in named if pair[1] != host.partition("/")[0]} == set()


def hosts_of(text: str) -> set[str]:
    return set(re.findall(r"https?://(siltstone\.[\w.-]*\w)", text))


def test_the_classifiers_are_those_that_an_index_takes() -> None:
    known = pytest.importorskip("trove_classifiers").classifiers
    named = PROJECT["classifiers"]
    assert [each for each in named if each not in known] == []
    assert len(named) == len(set(named))
    assert "Typing :: Typed" in named
    assert (PACKAGE / "py.typed").exists()
    lowest = PROJECT["requires-python"].removeprefix(">=")
    pythons = [each.rpartition(" ")[2] for each in named if re.search(r":: 3\.\d+$", each)]
    assert min(pythons, key=lambda each: int(each.partition(".")[2])) == lowest
