"""What is installed says what it is, needs no test, and has no test double in it."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

import siltstone
from release import archives

PACKAGE = Path(siltstone.__file__).parent
ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HOME = PROJECT["urls"]["Homepage"]
OURS = {"tests", "proof", "release"}
"""What lies beside the package, and is no part of it."""


def test_the_package_has_no_test_double_and_imports_none() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert not path.name.startswith(("fake", "simulated")), path
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in OURS, path
            elif isinstance(node, ast.Import):
                assert not {each.name.split(".")[0] for each in node.names} & {
                    "tests",
                    "proof",
                    "release",
                }


def test_every_address_of_the_project_is_below_the_one() -> None:
    assert HOME.startswith("https://")
    assert not HOME.endswith("/")
    for url in PROJECT["urls"].values():
        assert url == HOME or url.startswith(f"{HOME}/")
    for page in ("SECURITY.md", "CODE_OF_CONDUCT.md"):
        assert f"]({HOME})" in (ROOT / page).read_text()


def tracked() -> list[Path]:
    """Return the files of the project, as git has them."""
    try:
        return [ROOT / name for name in archives.tracked()]
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("git is not here, or does not know the project")


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


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    assert tracked()
    try:
        return archives.build(tmp_path_factory.mktemp("built"))
    except subprocess.CalledProcessError:
        pytest.skip("uv cannot build here")


def test_the_archives_have_what_git_has_and_nothing_else(built: tuple[Path, Path]) -> None:
    jar = archives.JAR  # `make dist` compiles it; a working copy may have none
    for archive in built:
        found = archives.differences(archive)
        assert [each for each in found if not re.search(rf" lacks .*{jar}$", each)] == []
    names = archives.names_in(built[0])
    assert {"siltstone/py.typed", "siltstone/server/console/index.html"} <= names
    assert not [name for name in names if name.startswith(("tests/", "proof/", "release/"))]


def test_a_file_more_or_less_is_told(built: tuple[Path, Path], tmp_path: Path) -> None:
    wheel = tmp_path / built[0].name
    with zipfile.ZipFile(built[0]) as found, zipfile.ZipFile(wheel, "w") as made:
        for name in found.namelist():
            if not name.endswith("app.js"):
                made.writestr(name, found.read(name))
        made.writestr("siltstone/.env", "")
    assert f"{wheel.name} lacks siltstone/server/console/app.js" in archives.differences(wheel)
    assert f"{wheel.name} has siltstone/.env" in archives.differences(wheel)


def test_a_version_has_a_day_in_the_change_log_or_none() -> None:
    assert archives.dated("## [0.1.0] - 2026-11-30\n", "0.1.0") == "2026-11-30"
    for text in ("## [Unreleased]\n", "## [0.1.0]\n", "## [0.1.0-rc1] - 2026-11-30\n", ""):
        assert archives.dated(text, "0.1.0") is None


def test_the_version_stands_in_the_change_log_with_its_day() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert archives.dated(changes, archives.VERSION), f"no line ## [{archives.VERSION}] - <day>"
