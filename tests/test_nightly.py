"""What is left to the night is named, and named rightly."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proof.defects import planted
from tests import nightly

ROOT = Path(__file__).parents[1]


def functions_of(path: str) -> list[str]:
    tree = ast.parse((ROOT / path).read_text())
    return [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def test_each_line_of_the_list_is_a_test_or_a_file_of_tests() -> None:
    for name in nightly.listed():
        path, _, function = name.partition("::")
        if not function:
            assert Path(path).name.startswith("test_"), name
            assert (ROOT / path).is_file(), name
            continue
        assert function in functions_of(path), name


def test_of_many_forms_the_first_ones_are_run_by_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nightly, "listed", lambda: {"a.py::t": (1, 1), "a.py::u": (0, 1)})
    names = ["a.py::t[x]", "a.py::t[y]", "a.py::u", "b.py::t[x]"]
    assert nightly.left(names) == [False, True, True, False]


def test_each_third_form_is_another_one_with_another_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nightly, "listed", lambda: {"a.py::t": (1, 3)})
    names = [f"a.py::t[{number}]" for number in range(9)]
    seen = set()
    for seed in range(20):
        monkeypatch.setattr(nightly, "SEED", str(seed))
        found = nightly.left(names)
        assert found.count(False) == 3
        seen.add(found.index(False))
    assert seen == {0, 1, 2}


def test_the_tests_of_a_file_are_forms_of_it_but_those_with_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nightly, "listed", lambda: {"a.py": (1, 2), "a.py::u": (0, 1)})
    names = ["a.py::t", "a.py::u", "a.py::v[x]", "b.py::t", "a.py::v[y]", "a.py::w"]
    found = nightly.left(names)
    assert found in (
        [False, True, True, False, False, True],
        [True, True, False, False, True, False],
    )


def test_a_test_that_caught_a_planted_defect_is_never_left(monkeypatch: pytest.MonkeyPatch) -> None:
    names = sorted(nightly.guards())
    every = {name.partition("::")[0]: (0, 1) for name in names}
    monkeypatch.setattr(nightly, "listed", lambda: every)
    assert nightly.left([*names, *every]) == [False] * len(names) + [True] * len(every)


def test_each_planted_defect_is_guarded_by_tests_that_are_run_by_day() -> None:
    defects = json.loads(nightly.DEFECTS.read_text())
    assert {defect["name"] for defect in defects} == {each.name for each in planted.every()}
    for defect in defects:
        caught_by = defect["caught_by"]
        assert any(caught_by.startswith(name) for name in defect["suite"]), defect["name"]
        path, _, function = caught_by.partition("[")[0].partition("::")
        assert function in functions_of(path), caught_by


@pytest.mark.parametrize(
    ("is_nightly", "wanted"), [(False, "short"), (True, "long")], ids=["day", "night"]
)
def test_what_is_long_is_short_by_day(
    monkeypatch: pytest.MonkeyPatch, is_nightly: bool, wanted: str
) -> None:
    monkeypatch.setattr(nightly, "IS_NIGHTLY", is_nightly)
    assert nightly.by_day("short", "long") == wanted


@pytest.mark.parametrize("line", ["a", "a.py::t 1 2", "a.py::t\na.py::t 2", "a.py::t many"])
def test_a_wrong_line_is_refused(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nightly, "LIST", tmp_path / "nightly.txt")
    nightly.LIST.write_text(f"# tests\n\n{line}\n")
    with pytest.raises(ValueError, match=r"is no test|invalid literal"):
        nightly.listed()


@pytest.mark.parametrize(
    ("asked", "is_left"),
    [
        ("tests/clients", True),
        ("tests/clients/test_client_matrix.py", False),
    ],
)
def test_of_a_file_that_is_asked_for_by_name_nothing_is_left(asked: str, is_left: bool) -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", asked]
    day = {name: value for name, value in os.environ.items() if not name.startswith("SILTSTONE_")}
    found = subprocess.run(command, env=day, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ("left to `make nightly`" in found.stdout) is is_left, found.stdout
    assert ("test_the_page_is_what_the_clients_do" in found.stdout) is not is_left


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
