"""Code lines: how many lines of the package are code, without comments, docstrings and blanks.

python -m proof.code_lines [path ...]
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(text: str) -> int:
    """Return how many lines of a module have code."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            documented.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


def main(arguments: list[str]) -> None:
    """Print the count of each path and of all."""
    total = 0
    for root in [Path(argument) for argument in arguments] or [Path("src/siltstone")]:
        files = sorted(root.rglob("*.py")) if root.is_dir() else [root]
        count = sum(code_lines(file.read_text()) for file in files)
        print(f"{count:6} {root} ({len(files)} files)")
        total += count
    print(f"{total:6} in all")


if __name__ == "__main__":
    main(sys.argv[1:])
