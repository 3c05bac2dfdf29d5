"""Names are found at once: unique class names, few files in a room, no circle of imports."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "siltstone"
FILES_MAX = 14


def _classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield path.relative_to(SRC), node


def test_no_two_classes_of_the_package_have_one_name() -> None:
    count = Counter(node.name for _, node in _classes())
    twice = {f"{path}: {node.name}" for path, node in _classes() if count[node.name] > 1}
    assert not twice


def _modules() -> dict[str, Path]:
    """Return all modules by their full names; a package is one, too."""
    found: dict[str, Path] = {}
    for path in SRC.rglob("*.py"):
        parts = path.relative_to(SRC.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _imported(path: Path, modules: dict[str, Path]) -> set[str]:
    """Return the modules of the package that a file imports: late, or for types alone, too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name if name in modules else node.module for name in full)
    return found & modules.keys()


def _circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the modules that import each other, by way of others too: each circle once."""
    reached = {name: set[str]() for name in imports}
    for name, seen in reached.items():
        left = [*imports[name]]
        while left:
            each = left.pop()
            if each not in seen:
                seen.add(each)
                left += imports[each]
    around = {name for name in imports if name in reached[name]}
    found = {
        frozenset(n for n in around if n in reached[name] and name in reached[n]) for name in around
    }
    return sorted(sorted(circle) for circle in found)


def test_no_room_has_more_than_fourteen_files() -> None:
    rooms = Counter(
        path.parent.relative_to(SRC).as_posix()
        for path in SRC.rglob("*.py")
        if path.name != "__init__.py"
    )
    assert [room for room, files in rooms.items() if files > FILES_MAX] == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    modules = _modules()
    imports = {name: _imported(path, modules) - {name} for name, path in modules.items()}
    assert _circles(imports) == []


def test_a_circle_is_found_with_all_of_it_and_nothing_else() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set[str](), "e": {"a"}}
    assert _circles(imports) == [["a", "b", "c"]]
