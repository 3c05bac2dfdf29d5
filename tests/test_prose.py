"""Messages, help texts, public docstrings and documents are plain English: no retired phrase.

`retired_phrases.txt` lists the phrases, each with the words to use instead. They are phrases, not
ordinary words. Code in documents (fenced, or between backticks) does not count, and decisions
(`docs/adr`) and the change log keep the words of their time.

    python -m tests.test_prose      lists every use, for those who edit
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PHRASES = dict(
    line.split(": ", 1)
    for line in (Path(__file__).parent / "retired_phrases.txt").read_text().splitlines()
    if line and not line.startswith("#")
)
RETIRED = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, PHRASES))})(?![\w-])")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
DOCUMENTS = sorted(
    page for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")) if page.stem != "CHANGELOG"
)

Named = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

SOURCES = sorted((ROOT / "src" / "siltstone").rglob("*.py"))


def uses(text: str) -> list[str]:
    """Return the retired phrases in a text, whatever its case and line breaks."""
    return RETIRED.findall(" ".join(text.lower().split()))


def texts_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of public docstrings, and of strings that may be messages or help."""
    tree = ast.parse(source)
    docstrings = dict(_docstrings(tree, is_public=True))
    yield from ((node.lineno, _text(node)) for node, is_public in docstrings.items() if is_public)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node not in docstrings and " " in _text(node):
            yield node.lineno, _text(node)


def _text(node: ast.Constant) -> str:
    return node.value if isinstance(node.value, str) else ""


def _docstrings(node: ast.AST, *, is_public: bool) -> Iterator[tuple[ast.Constant, bool]]:
    """Yield each docstring below a node, and whether all names above it are public."""
    first = node.body[0] if isinstance(node, ast.Module | Named) and node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        yield first.value, is_public
    for child in ast.iter_child_nodes(node):
        is_private = isinstance(child, Named) and child.name.startswith("_")
        yield from _docstrings(child, is_public=is_public and not is_private)


def found_in(path: Path) -> list[str]:
    """Return each use of a retired phrase in a source file or a document, with the advice."""
    if path.suffix == ".py":
        texts = texts_of(path.read_text())
    else:
        texts = [(1, CODE.sub("", path.read_text()))]
    where = path.relative_to(ROOT)
    return [
        f"{where}:{line}: {phrase!r}; instead: {PHRASES[phrase]}"
        for line, text in texts
        for phrase in uses(text)
    ]


def test_no_message_help_text_or_public_docstring_uses_a_retired_phrase() -> None:
    assert [use for path in SOURCES for use in found_in(path)] == []


def test_no_document_uses_a_retired_phrase() -> None:
    assert [use for path in DOCUMENTS for use in found_in(path)] == []


SAMPLE = '''
"""Sample: {0}"""

def shown(help="Do it."):
    """Return what
    {0} it."""
    raise ValueError(f"{{shown}} {0} twice")

class _Hidden:
    """A private class: {1}"""
    def method(self):
        """A method of a private class: {1}"""
'''


def test_a_phrase_that_is_put_back_is_found() -> None:
    sample = SAMPLE.format("whoever", "plain")
    assert [phrase for _, text in texts_of(sample) for phrase in uses(text)] == ["whoever"] * 3
    assert uses("The owner TAKES\n  over the files.") == ["takes over"]


def test_private_docstrings_and_parts_of_words_are_left_alone() -> None:
    sample = SAMPLE.format("the owner", "whoever")
    assert [phrase for _, text in texts_of(sample) for phrase in uses(text)] == []
    assert uses("mistaken overhead; a link, an input and a shape") == []


def test_code_in_a_document_is_left_alone() -> None:
    page = "Call `take over` and\n```\nwhoever\n```\nput off"
    assert uses(CODE.sub("", page)) == ["put off"]


def test_each_phrase_has_its_advice_and_stands_once() -> None:
    lines = (Path(__file__).parent / "retired_phrases.txt").read_text().splitlines()
    phrases = [line.partition(": ")[0] for line in lines if line and not line.startswith("#")]
    assert len(phrases) == len(set(phrases)) == len(PHRASES)
    assert all(PHRASES.values())
    assert [phrase for phrase in PHRASES if phrase != phrase.lower()] == []


if __name__ == "__main__":
    sys.stdout.writelines(f"{use}\n" for path in (*SOURCES, *DOCUMENTS) for use in found_in(path))
