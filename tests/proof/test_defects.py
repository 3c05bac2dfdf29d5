"""The planted defects fit the source of today, and a few of them are really caught here.

All of them are tried by `python -m proof.defects`; that takes minutes.
"""

from __future__ import annotations

import ast
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from proof.defects import page
from proof.defects.patching import PatchError
from proof.defects.planted import ROOT, Planted, every, read
from proof.defects.trial import Outcome, Trials, Verdict

PAGE = ROOT / "docs" / "defects.md"
PLANTED = every()
QUICK = ["lost-race-published-again-as-it-was", "replay-past-a-bad-checksum"]
each = pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)


def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {part.name for part in tree.body if isinstance(part, ast.FunctionDef)}


@each
def test_a_defect_fits_the_source_and_compiles(planted: Planted, tmp_path: Path) -> None:
    for change in planted.changes:
        copy = tmp_path / change.path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / change.path, copy)
    planted.plant(tmp_path)
    for change in planted.changes:
        text = (tmp_path / change.path).read_text()
        assert change.path.startswith("src/siltstone/")
        assert text != (ROOT / change.path).read_text()
        compile(text, change.path, "exec")


@each
def test_a_defect_names_a_suite_that_exists_and_guarantees_that_there_are(planted: Planted) -> None:
    assert planted.breaks
    assert set(planted.breaks) <= set(range(1, 15))
    for argument in planted.suite:
        name, _, node = argument.partition("[")[0].partition("::")
        path = ROOT / name
        assert path.exists()
        if node:
            assert node in functions_of(path)


def test_the_page_lists_exactly_the_defects_and_none_is_undetected() -> None:
    text = PAGE.read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| ([^|]+) \| ([\d, ]+) \| (.*)\|$", text, re.MULTILINE)
    assert [(name, title, breaks) for name, title, breaks, _ in rows] == [
        (planted.name, planted.title, ", ".join(map(str, planted.breaks))) for planted in PLANTED
    ]
    assert f"**{len(PLANTED)} defects, 0 undetected.**" in text
    assert not any(verdict.value in text for verdict in Verdict if verdict is not Verdict.CAUGHT)
    for planted, (_, _, _, rest) in zip(PLANTED, rows, strict=True):
        assert " ".join(f"`{part}`" for part in planted.suite) in rest


def test_the_page_is_of_the_patches_as_they_are() -> None:
    known = page.known(page.DATA, PLANTED)
    assert [*known] == [planted.name for planted in PLANTED]
    assert {outcome.verdict for outcome in known.values()} == {Verdict.CAUGHT}
    for outcome in known.values():
        name, _, node = outcome.caught_by.partition("[")[0].partition("::")
        assert name in {argument.partition("::")[0] for argument in outcome.planted.suite}
        assert node in functions_of(ROOT / name), f"{outcome.planted.name}: no {node}"


@pytest.mark.parametrize("name", QUICK)
def test_a_quick_defect_is_caught(name: str, tmp_path: Path) -> None:
    (planted,) = (planted for planted in PLANTED if planted.name == name)
    outcome = Trials(tmp_path).run(planted)
    assert outcome.verdict is Verdict.CAUGHT, outcome.reason
    assert outcome.caught_by.startswith(planted.suite[0].partition("::")[0])


HARMLESS = """\
Title: nothing at all
Breaks: 1
Guarded-by: {suite}

To see that a suite which notices nothing is told of.

--- src/siltstone/units.py
+++ src/siltstone/units.py
@@ -1 +1,2 @@
 {line}
+
"""


def harmless(tmp_path: Path, suite: str) -> Outcome:
    line = (ROOT / "src/siltstone/units.py").read_text().splitlines()[0]
    patch = tmp_path / "harmless.patch"
    patch.write_text(HARMLESS.format(suite=suite, line=line))
    return Trials(tmp_path / "trials").run(read(patch))


def test_a_defect_that_no_test_notices_is_undetected_and_told(tmp_path: Path) -> None:
    outcome = harmless(tmp_path, "tests/proof/test_patching.py")
    assert outcome.verdict is Verdict.UNDETECTED
    assert "1 defects, 1 undetected" in page.written([outcome])
    assert "**UNDETECTED**" in page.written([outcome])
    data = tmp_path / "defects.json"
    page.write(tmp_path / "page.md", data, [outcome])
    assert page.known(data, [outcome.planted])["harmless"].verdict is outcome.verdict
    other = replace(outcome.planted, digest="another")
    assert page.known(data, [other]) == {}


def test_a_suite_that_fails_without_the_defect_proves_nothing(tmp_path: Path) -> None:
    outcome = harmless(tmp_path, "tests/proof/test_there_is_no_such_file.py")
    assert outcome.verdict is Verdict.BROKEN


def test_a_patch_without_its_fields_is_refused(tmp_path: Path) -> None:
    patch = tmp_path / "none.patch"
    patch.write_text(HARMLESS.replace("Breaks", "Guarantees"))
    with pytest.raises(PatchError, match="come first"):
        read(patch)
