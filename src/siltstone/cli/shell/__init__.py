"""Shell: statements of SQL typed by a person, or read from a pipe, on one open store."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from siltstone.cli.arguments import WordedDb
from siltstone.cli.exits import Exit
from siltstone.cli.output import Form

ReadOnly = Annotated[bool, typer.Option("--read-only", help="Refuse statements that write.")]


def shell(db: WordedDb, read_only: ReadOnly = False, *, form: Form) -> None:
    """Type SQL: queries, writes, transactions, the past."""
    from siltstone.cli.sessions import require_store
    from siltstone.cli.shell.interpreter import Interpreter, ScriptError
    from siltstone.cli.shell.screen import Screen
    from siltstone.cli.shell.session import ShellSession
    from siltstone.cli.shell.stopping import Interrupted

    require_store(db)
    is_typed = sys.stdin.isatty()
    with ShellSession(db, read_only=read_only) as session:
        interpreter = Interpreter(session, Screen(form, has_person=is_typed))
        if is_typed:
            from siltstone.cli.shell.terminal import converse

            converse(interpreter, db.uri)
            return
        try:
            interpreter.run_stdin()
        except EOFError:  # .quit
            return
        except ScriptError:  # told already
            raise typer.Exit(Exit.FAILED) from None
        except Interrupted:
            raise KeyboardInterrupt from None
