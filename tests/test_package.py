"""What is installed needs no test, and has no test double in it."""

from __future__ import annotations

import ast
from pathlib import Path

import siltstone

PACKAGE = Path(siltstone.__file__).parent


def test_the_package_has_no_test_double_and_imports_none() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert not path.name.startswith(("fake", "simulated")), path
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in {"tests", "proof"}, path
            elif isinstance(node, ast.Import):
                assert not {each.name.split(".")[0] for each in node.names} & {"tests", "proof"}
