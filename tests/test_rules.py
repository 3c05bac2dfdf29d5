"""Names are found at once and parts stay small: unique class names, few methods, short files."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "siltstone"
METHODS_MAX = 12
LINES_MAX = 600
_STORE = "a store's public interface is one class, here or joined from another process"
_FILES = "one method for each call of the operating system"
LARGE = {
    "Store": _STORE,
    "Table": _STORE,
    "Snapshot": _STORE,
    "Transaction": _STORE,
    "JoinedStore": _STORE,
    "JoinedTable": _STORE,
    "JoinedSnapshot": _STORE,
    "JoinedTransaction": _STORE,
    "LocalStore": _STORE,
    "LocalTable": _STORE,
    "LocalTransaction": _STORE,
    "Files": _FILES,
    "RealFiles": _FILES,
    "Result": "the names of our tables, and beside them those of DuckDB and of a cursor",
    "SnapshotDataset": "pyarrow's interface of a data set, refused where DuckDB does not need it",
}


def _classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield path.relative_to(SRC), node


def _public(node: ast.ClassDef) -> set[str]:
    found = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    return {each.name for each in found if not each.name.startswith("_")}


def test_no_two_classes_of_the_package_have_one_name() -> None:
    count = Counter(node.name for _, node in _classes())
    twice = {f"{path}: {node.name}" for path, node in _classes() if count[node.name] > 1}
    assert not twice


def test_no_class_has_more_than_twelve_public_methods() -> None:
    large = {
        f"{path}: {node.name} has {len(_public(node))}"
        for path, node in _classes()
        if len(_public(node)) > METHODS_MAX and node.name not in LARGE
    }
    assert not large


def test_no_file_has_more_than_600_lines() -> None:
    lines = {path.relative_to(SRC): path.read_text().count("\n") for path in SRC.rglob("*.py")}
    long = {f"{path}: {count}" for path, count in lines.items() if count > LINES_MAX}
    assert not long
