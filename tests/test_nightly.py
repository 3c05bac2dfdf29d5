"""What is left to the night is named, and named rightly."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import nightly

ROOT = Path(__file__).parents[1]


def test_each_line_of_the_list_is_a_test() -> None:
    for name in nightly.by_day():
        path, _, function = name.partition("::")
        found = [
            node.name
            for node in ast.walk(ast.parse((ROOT / path).read_text()))
            if isinstance(node, ast.FunctionDef)
        ]
        assert function in found, name


def test_of_many_forms_the_first_ones_are_run_by_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nightly, "by_day", lambda: {"a.py::t": (1, 1), "a.py::u": (0, 1)})
    names = ["a.py::t[x]", "a.py::t[y]", "a.py::u", "b.py::t[x]"]
    assert nightly.left(names) == [False, True, True, False]


def test_each_third_form_is_another_one_with_another_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nightly, "by_day", lambda: {"a.py::t": (1, 3)})
    names = [f"a.py::t[{number}]" for number in range(9)]
    seen = set()
    for seed in range(20):
        monkeypatch.setattr(nightly, "SEED", str(seed))
        found = nightly.left(names)
        assert found.count(False) == 3
        seen.add(found.index(False))
    assert seen == {0, 1, 2}


@pytest.mark.parametrize("line", ["a.py", "a.py::t 1 2", "a.py::t\na.py::t 2", "a.py::t many"])
def test_a_wrong_line_is_refused(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nightly, "LIST", tmp_path / "nightly.txt")
    nightly.LIST.write_text(f"# tests\n\n{line}\n")
    with pytest.raises(ValueError, match=r"is no test|invalid literal"):
        nightly.by_day()


@pytest.mark.parametrize(
    ("wanted", "is_nightly"),
    [
        ({}, False),
        ({"SILTSTONE_NIGHTLY": "1"}, True),
        ({"SILTSTONE_RACES": "all"}, True),
        ({"SILTSTONE_CRASH": "all"}, True),
    ],
)
def test_who_wants_all_races_or_crashes_gets_what_is_left_to_the_night(
    wanted: dict[str, str], is_nightly: bool
) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SILTSTONE_")}
    ask = "from tests.nightly import IS_NIGHTLY; print(IS_NIGHTLY)"
    found = subprocess.run(
        [sys.executable, "-c", ask], env=kept | wanted, cwd=ROOT, check=True, capture_output=True
    )
    assert found.stdout.decode().strip() == str(is_nightly)
