"""Groups: the commands, listed by what a user wants to do."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from siltstone.cli.usage import told

_MARGINS = 6
"""Columns of a line for all but the name of a command and what it does, as typer lays them out."""


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
