"""App: the tree of commands, and the only place where errors become exit codes."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from siltstone.cli import bench as benches
from siltstone.cli import demo as demos
from siltstone.cli import shell as shells
from siltstone.cli.arguments import add_command, said_before
from siltstone.cli.commands import (
    apps,
    backups,
    export,
    indexes,
    maintain,
    queries,
    repairs,
    rows,
    searches,
    serve,
    spark,
    tables,
    tags,
)
from siltstone.cli.exits import Exit, UsageError, code_of, in_one_line
from siltstone.cli.groups import GroupedCommands
from siltstone.cli.imports import commands as imports
from siltstone.errors import SiltstoneError
from siltstone.telemetry.notices import settle

# rich formats help nicely and takes 0.1 s to import: --help goes without it.
app = typer.Typer(
    name="siltstone",
    cls=GroupedCommands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from siltstone import __version__

        print(f"siltstone {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    db: Annotated[
        str | None,
        typer.Option(
            "--db", "-d", envvar="SILTSTONE_URI", help="The store; also after the command."
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", is_eager=True, callback=_show_version, help="Show the version."
        ),
    ] = False,
) -> None:
    """Siltstone: a transactional, multi-table store over open Lance tables."""
    del version  # its callback has shown it
    name = context.invoked_subcommand
    if db is not None and said_before(context) and not _takes_store(context.command, name):
        raise UsageError(f"{name} takes no --db; `siltstone {name} --help` lists what it takes")


def _takes_store(group: Any, name: str | None) -> bool:
    command = group.commands[name]
    return hasattr(command, "commands") or any("--db" in each.opts for each in command.params)


_GROUPS: dict[str, tuple[Callable[..., None] | typer.Typer, ...]] = {
    "Look": (
        *(tables.tables, tables.schema, rows.head, rows.scan, rows.get),
        *(searches.search, queries.query, shells.shell, export.export, tables.info),
    ),
    "Write": (
        *(tables.init, imports.create, rows.insert, rows.upsert, imports.append),
        *(rows.delete, tables.truncate, tables.rename, tables.drop),
    ),
    "Past": (queries.log, queries.changes, queries.diff, tables.undo, tags.app),
    "Maintain": (
        *(maintain.status, maintain.jobs, maintain.maintain, maintain.checkpoint),
        *(maintain.merge, maintain.optimize, maintain.vacuum, maintain.verify),
        *(repairs.repair, backups.backup, backups.mirror, backups.restore),
        *(indexes.app, apps.app),
    ),
    "Run": (serve.serve, serve.token, spark.app, demos.demo, benches.bench),
}
_KEYS: dict[str, Any] = {"context_settings": {"ignore_unknown_options": True}}
"""A key may be a negative number."""

for group, commands in _GROUPS.items():
    for each in commands:
        if isinstance(each, typer.Typer):
            app.add_typer(each, rich_help_panel=group)
        else:
            settings = _KEYS if each in (rows.get, rows.delete) else {}
            add_command(app, each, rich_help_panel=group, **settings)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code. On an error print the reason on stderr.

    Warnings of the store go there, too; a library would write nothing (`telemetry.notices`).
    """
    warnings = logging.lastResort
    assert warnings is not None
    logging.getLogger("siltstone").addHandler(warnings)
    try:
        app(arguments if arguments is None else list(arguments), prog_name="siltstone")
    except SystemExit as end:
        return _code(end)
    except SiltstoneError as error:
        settle()  # the error is the last line: who started the command may read only that
        print(f"siltstone: {in_one_line(error)}", file=sys.stderr)
        return code_of(error)
    except BrokenPipeError:  # `siltstone scan t | head`: the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.DONE
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    return Exit.DONE


def _code(end: SystemExit) -> int:
    return end.code if isinstance(end.code, int) else Exit.DONE if end.code is None else Exit.FAILED
