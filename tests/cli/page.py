"""Page: the table of commands in docs/cli.md, as the commands themselves say it.

`python -m tests.cli.page` prints it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import typer.main

from siltstone.cli.app import app

SHARED = frozenset(
    [
        *("--db", "--token-file", "--cafile", "--json", "--ndjson", "--csv"),
        *("--at", "--seq", "--tag"),
        *("--quiet", "--yes", "--dry-run", "--help", "--null", "--delimiter"),
    ]
)


def commands(group: Any, words: str) -> Iterator[tuple[str, Any]]:
    """Yield each command with the words that call it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{words} {name}")
        else:
            yield f"{words} {name}", command


def table() -> str:
    """Return a line for each command: how it is called, what it does, its own options."""
    lines = ["| command | what it does | its own options |", "| --- | --- | --- |"]
    tree = typer.main.get_command(app)
    for words, command in sorted(commands(tree, "siltstone")):
        named, options = [words], list[str]()
        for each in command.params:
            if each.param_type_name == "argument":
                named.append(each.metavar or each.name.upper())
            else:
                options += [name for name in each.opts if name.startswith("--")]
                options += [name for name in each.secondary_opts if name.startswith("--")]
        own = ", ".join(f"`{name}`" for name in options if name not in SHARED)
        does = " ".join((command.help or "").split("\n\n")[0].split())
        lines.append(f"| `{' '.join(named)}` | {does} | {own} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
