"""Tag commands: tag ls, tag add, tag rm. A tag names a seq and keeps its past."""

from __future__ import annotations

from typing import Annotated

import typer

from siltstone.cli.arguments import AsOf, At, Consent, Db, Seq, add_command, form_of
from siltstone.cli.exits import named
from siltstone.cli.output import Form, emit, emit_record
from siltstone.cli.sessions import agreed, past, reading, writing

app = typer.Typer(
    name="tag", help="Tag sequence numbers, so that they stay readable.", no_args_is_help=True
)
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


def ls(db: Db, *, form: Form) -> None:
    """List the tags and their seqs."""
    with reading(db) as store:
        found = sorted(store.tags().items())
    emit(["tag", "seq"], found, form)


def add(name: Name, db: Db, at: At = None, seq: Seq = None, *, form: Form) -> None:
    """Tag the newest seq, or an older one. It keeps all row versions since, too, until removed."""
    with writing(db) as store:
        with past(store, AsOf(at, seq)) as snapshot:
            tagged = snapshot.seq
        store.tag(name, tagged)
    emit_record({"tag": name, "seq": tagged}, form)


def rm(name: Name, db: Db, *, consent: Consent) -> None:
    """Remove a tag. Vacuum may then delete the past that only this tag kept."""
    with reading(db) as store:
        seq = named("tag", name, store.tags())
    question = f"Remove the tag {name!r} of seq {seq}?"
    if agreed(question, {"tag": name, "seq": seq}, form_of(), consent):
        with writing(db) as store:
            store.untag(name)


for command in (ls, add, rm):
    add_command(app, command)
