"""Groups: the commands, listed by what a user wants to do; and what is wrong with a command line.

A wrong one is reported in one sentence with the next step.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from siltstone.cli.exits import UsageError

_MARGINS = 6
"""Columns of a line for all but the name of a command and what it does, as typer lays them out."""
_WRONG: type[Exception] = typer.BadParameter.__mro__[1]
"""What typer raises of a wrong command line; the class has no public name."""
_EXTRA = re.compile(r"Got unexpected extra argument\w*(?:\(s\))? \((.*)\)")
_COMMAND = re.compile(r"No such command ('.*?')\.(?: Did you mean (.*)\?)?")

_RANGE = re.compile(r"\b(int|float) range")
_KINDS = {"int": "integer", "float": "number"}


class GroupedCommands(TyperGroup):
    """Commands, listed by their `rich_help_panel`, in the order in which they were added."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the options before the command."""
        with told():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Read the command and its words, and run it."""
        with told():
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group."""
        width = max(map(len, self.commands))
        groups: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.commands[name]
            does = command.get_short_help_str(formatter.width - _MARGINS - width)
            groups.setdefault(command.rich_help_panel, []).append((name.ljust(width), does))
        for group, lines in groups.items():
            with formatter.section(group):
                formatter.write_dl(lines)


@contextmanager
def told() -> Generator[None]:
    """Raise what is wrong with the command line as one of our errors.

    Raises:
        UsageError: A word or an option is wrong, or one is missing.
    """
    try:
        yield
    except _WRONG as error:
        if "NoArgs" in type(error).__name__:  # typer prints the help
            raise
        raise UsageError(_sentence(error)) from None


def _sentence(error: Any) -> str:
    context = error.ctx
    path = "siltstone" if context is None else context.command_path
    name = path.removeprefix("siltstone").strip()
    what = _what(error, name)
    if hasattr(getattr(context, "command", None), "commands"):
        return f"{what}; `{path} --help` lists the commands"
    return f"{what}; `{path} --help` lists what it takes"


def _what(error: Any, name: str) -> str:
    """Return what is wrong, without what to do."""
    text = error.format_message()
    if text.startswith("No such option"):
        if not name:
            return f"siltstone takes no {error.option_name} before the command"
        return f"{name} takes no {error.option_name}{_meant(sorted(error.possibilities or ()))}"
    if found := _COMMAND.match(text):
        return f"there is no command {found[1]}{_meant([found[2]] if found[2] else [])}"
    if found := _EXTRA.match(text):
        return f"{name} takes no word{'s' if ' ' in found[1] else ''} '{found[1]}'"
    if text.startswith("Missing argument"):
        return f"{name} needs {error.param.make_metavar(error.ctx).strip('{}')}"
    text = _RANGE.sub(lambda found: _KINDS[found[1]], text[:1].lower() + text[1:].rstrip("."))
    return f"{name}: {text}" if name else text


def _meant(likely: Sequence[str]) -> str:
    return f" (did you mean {', '.join(likely)}?)" if likely else ""
