"""What the documents show is true: the README's lines run, every error has its place in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

import siltstone as st
from siltstone import errors
from siltstone.cli.exits import Exit
from siltstone.maintenance.index.index_plan import IndexStatus
from siltstone.maintenance.schedule.status import JobStatus, Memory, Status, TableStatus

ROOT = Path(__file__).parent.parent


def test_the_ten_lines_of_the_readme_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (lines,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(lines, "README.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == [
        "[('Ada', 99.0)]",
        "{'id': 7, 'name': 'Ada', 'spent': 0.0}",
    ]


def test_every_error_is_public_and_in_the_tree_of_its_module() -> None:
    found = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, st.SiltstoneError)
    }
    assert {name for name in found if name not in st.__all__} == set()
    assert {name for name in found if name not in (errors.__doc__ or "")} == set()


def test_every_module_that_the_architecture_names_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    tree = text.split("```")[1]
    names = re.findall(r"\b(\w+\.py)\b", tree)
    have = {path.name for path in (ROOT / "src").rglob("*.py")}
    assert [name for name in names if name not in have] == []


def operating() -> str:
    return (ROOT / "docs" / "operating.md").read_text()


def first_cells(text: str) -> Iterator[str]:
    """Yield the first cell of each row of each table."""
    for line in text.splitlines():
        if line.startswith("| "):
            yield line.split("|")[1].strip()


def test_every_number_of_the_status_is_explained() -> None:
    told = {cell.strip("`") for cell in first_cells(operating())}
    names = {
        field.name
        for kind in (Status, TableStatus, IndexStatus, JobStatus, Memory)
        for field in fields(kind)
    }
    assert names | {"total"} <= told


def test_every_error_and_exit_code_says_what_to_do() -> None:
    cells = [*first_cells(operating())]
    told = {name for cell in cells for name in re.findall(r"`(\w+Error)`", cell)}
    classes = {name for name in vars(errors) if name.endswith("Error")} - {"SiltstoneError"}
    assert told == classes
    assert {int(cell) for cell in cells if cell.isdigit()} == {code.value for code in Exit}


def test_every_page_that_a_page_links_to_exists() -> None:
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
