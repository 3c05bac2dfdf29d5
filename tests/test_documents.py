"""What the documents show is true: the README's lines run, every error has its place in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import siltstone as st
from siltstone import errors

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
