"""App: the tree of commands, and the only place where errors become exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from siltstone.cli import (
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
    tables,
    tags,
)
from siltstone.cli import bench as benches
from siltstone.cli import demo as demos
from siltstone.cli.arguments import add_command
from siltstone.cli.exits import Exit, code_of, in_one_line
from siltstone.errors import SiltstoneError

# rich formats help nicely and takes 0.1 s to import: --help goes without it.
app = typer.Typer(
    name="siltstone",
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
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", is_eager=True, callback=_show_version, help="Show the version."
        ),
    ] = False,
) -> None:
    """Siltstone: a transactional, multi-table store over open Lance tables."""
    del version  # its callback has shown it


for command in (
    demos.demo,
    tables.init,
    tables.info,
    tables.tables,
    tables.schema,
    tables.create,
    tables.rename,
    tables.truncate,
    tables.drop,
    rows.upsert,
    rows.insert,
    rows.append,
    rows.head,
    rows.scan,
    searches.search,
    export.export,
    queries.query,
    queries.changes,
    queries.log,
    maintain.checkpoint,
    maintain.merge,
    maintain.optimize,
    maintain.maintain,
    maintain.vacuum,
    maintain.verify,
    maintain.jobs,
    maintain.status,
    repairs.repair,
    backups.backup,
    backups.restore,
    benches.bench,
    serve.serve,
    serve.token,
):
    add_command(app, command)
# A key may be a negative number.
for command in (rows.get, rows.delete):
    add_command(app, command, context_settings={"ignore_unknown_options": True})
app.add_typer(tags.app, name="tag")
app.add_typer(apps.app, name="apps")
app.add_typer(indexes.app, name="index")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code. On an error print the reason on stderr."""
    try:
        app(arguments if arguments is None else list(arguments))
    except SystemExit as end:
        return _code(end)
    except SiltstoneError as error:
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
