"""App commands: apps ls, apps forget. A token app is a program whose batches apply once."""

from __future__ import annotations

from typing import Annotated

import typer

from siltstone.cli.arguments import Consent, Db, add_command, form_of
from siltstone.cli.exits import named
from siltstone.cli.output import Form, emit
from siltstone.cli.sessions import agreed, reading, writing

app = typer.Typer(name="apps", help="List and forget the apps of tokens.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="APP", show_default=False)]
_FIELDS = ("batch", "seq", "rows", "claim", "holder")


def ls(db: Db, *, form: Form) -> None:
    """List the apps with their last batch and claim. The one used last comes last."""
    with reading(db) as store:
        found = store.token_apps()
    emit(["app", *_FIELDS], [[a.name, *(getattr(a, f) for f in _FIELDS)] for a in found], form)


def forget(name: Name, db: Db, *, consent: Consent) -> None:
    """Forget an app that is over. If an old batch of it comes again, it is applied again."""
    with reading(db) as store:
        found = named("token app", name, {each.name: each for each in store.token_apps()})
    would = {"app": name, **{f: getattr(found, f) for f in _FIELDS}}
    question = f"Forget the app {name!r}, and that batch {found.batch} was applied?"
    if agreed(question, would, form_of(), consent):
        with writing(db) as store:
            store.forget_token_app(name)


for command in (ls, forget):
    add_command(app, command)
