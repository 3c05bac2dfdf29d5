"""Names are found at once: no two classes of the package have one name."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "siltstone"


def test_no_two_classes_of_the_package_have_one_name() -> None:
    classes = [
        (path.relative_to(SRC), node.name)
        for path in sorted(SRC.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    count = Counter(name for _, name in classes)
    assert [f"{path}: {name}" for path, name in classes if count[name] > 1] == []
