"""The first hour: what README shows runs as it stands, and what it says of others holds."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from tests.test_documents import FENCED, ROOT, blocks_of

README = (ROOT / "README.md").read_text()
ROW = pa.table({"id": [1], "v": ["a"]})


def lines_of_the_shell() -> list[list[str]]:
    """Return the commands of the blocks without a language."""
    blocks = [fenced[2] for fenced in FENCED.finditer(README) if not fenced[1]]
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def test_the_ten_lines_run_twice_and_print_the_same(tmp_path: Path) -> None:
    (block,) = blocks_of("README.md")
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", block.code],
            cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
        assert (done.stdout, done.stderr, done.returncode) == (block.output, "", 0)


def test_the_lines_of_the_shell_run_one_after_the_other(tmp_path: Path) -> None:
    commands = [words[1:] for words in lines_of_the_shell() if words[0] == "siltstone"]
    assert commands
    for words in commands:
        done = subprocess.run(
            [sys.executable, "-m", "siltstone", *words],
            cwd=tmp_path, capture_output=True, text=True, timeout=250, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stderr)
        assert done.stdout, words


def test_what_is_to_be_installed_has_the_extras_that_are_named() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    installs = [words for words in lines_of_the_shell() if words[:2] == ["pip", "install"]]
    assert installs
    for words in installs:
        extra = re.fullmatch(r"siltstone\[(\w+)\]", words[2])
        assert extra is not None
        assert extra[1] in project["optional-dependencies"]
    assert {words[0] for words in lines_of_the_shell()} == {"pip", "siltstone"}


def test_the_ten_lines_are_ten() -> None:
    (block,) = blocks_of("README.md")
    assert len([*filter(None, block.code.split("\n"))]) == 10


def test_links_work_on_a_package_index_and_pages_exist() -> None:
    # An index shows the page alone, and its headings have other names (`user-content-speed`) or
    # none: a relative link is dead there, and so is `#speed`.
    targets = re.findall(r"\]\(([^)]+)\)", README)
    assert [target for target in targets if not target.startswith("https://")] == []
    (home,) = set(re.findall(r"https://siltstone\.[\w.-]+", README))
    below = [target.removeprefix(f"{home}/") for target in targets if target.startswith(home)]
    assert len(below) > 30
    assert [place for place in below if not any(path.exists() for path in files_of(place))] == []
    assert re.findall(r"`[\w/]+\.md`|`docs/|`examples/", README) == []


def files_of(place: str) -> list[Path]:
    """Return which files may be a place of the site: a page's place ends with a slash."""
    if not place.endswith("/"):
        return [ROOT / "docs" / place]
    name = place.strip("/")
    beside = [ROOT / f"{name.upper()}.md", ROOT / name / "README.md"]
    return [ROOT / "docs" / f"{name}.md", ROOT / "docs" / name, *beside]


def test_each_page_of_the_documents_has_its_link() -> None:
    linked = {path for place in re.findall(r"\]\(https://siltstone\.[\w.-]+/([^)]+)\)", README)
              for path in files_of(place)}  # fmt: skip
    pages = {*(ROOT / "docs").glob("*.md")} - linked
    assert {page.stem for page in pages} <= {"defects", "power-loss", "index", "versions"}


def test_ten_appends_are_ten_files_of_delta(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    for _ in range(10):
        deltalake.write_deltalake(str(tmp_path), ROW, mode="append")
    assert len([*tmp_path.glob("*.parquet")]) == 10
    assert len([*tmp_path.glob("_delta_log/*.json")]) == 10


@pytest.mark.filterwarnings("ignore")  # of the client's own making
def test_ten_appends_are_ten_files_of_lancedb(tmp_path: Path) -> None:
    import lancedb

    table = lancedb.connect(str(tmp_path)).create_table("t", ROW)
    for _ in range(9):
        table.add(ROW)
    assert len([*tmp_path.glob("t.lance/data/*")]) == 10


def test_ten_rows_of_a_keyed_table_are_no_file_but_the_log(tmp_path: Path) -> None:
    with st.connect(tmp_path / "shop", background=False) as db:
        table = db.create_table("t", ROW.schema, primary_key="id")
        for number in range(10):
            table.insert({"id": number, "v": "a"})
        assert [*(tmp_path / "shop").glob("tables/**/*.lance")] == []
        db.checkpoint()
        assert len([*(tmp_path / "shop").glob("tables/**/*.lance")]) == 1


def numbers_of(text: str) -> set[str]:
    return set(re.findall(r"\d[\d,]*\d", text))


def test_the_numbers_of_readme_are_those_of_the_page_of_benchmarks() -> None:
    measured = (ROOT / "docs" / "benchmarks.md").read_text()
    (speed,) = re.findall(r"^## Speed$(.*?)^## ", README, re.MULTILINE | re.DOTALL)
    numbers = re.findall(r"\d+,\d{3}", speed)
    assert len(numbers) == 10
    assert numbers_of(measured) >= set(numbers)
