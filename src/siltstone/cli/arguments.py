"""Arguments: the options that commands share, so that each means the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

Db = Annotated[
    str,
    typer.Option(
        "--db", "-d", envvar="SILTSTONE_URI", help="The store: a directory or a file:// URL."
    ),
]
Table = Annotated[str, typer.Argument(metavar="TABLE", show_default=False)]
At = Annotated[
    str | None,
    typer.Option(help="Read the store as of a time with a zone: 2026-11-20T10:00Z, or ...-05:00."),
]
Seq = Annotated[int | None, typer.Option(help="Read the store as of a sequence number.")]
Tag = Annotated[str | None, typer.Option(help="Read the store as of a tag.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Ndjson = Annotated[bool, typer.Option("--ndjson", help="Print one JSON object per line.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="List what the command would do; change nothing.")
]
Attempts = Annotated[
    int,
    typer.Option(min=1, help="Plan at most this often if other writers win; then defer the work."),
]
PublishAttempts = Annotated[
    int,
    typer.Option(min=1, help="Try to publish each plan on at most this many records."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")]
