"""Arguments: the options that commands share, so that each means the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

Db = Annotated[
    str,
    typer.Option(
        "--db", "-d", envvar="SILTSTONE_URI", help="The store: a directory or file:// URL."
    ),
]
Table = Annotated[str, typer.Argument(metavar="TABLE", show_default=False)]
At = Annotated[
    str | None,
    typer.Option(
        help="Read the past as of a moment, with its zone: 2026-11-20T10:00Z, or ...-05:00."
    ),
]
Seq = Annotated[int | None, typer.Option(help="Read the past at a sequence number.")]
Tag = Annotated[str | None, typer.Option(help="Read the past at a tag.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Ndjson = Annotated[bool, typer.Option("--ndjson", help="Print one JSON object per line.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be deleted; delete nothing.")
]
Attempts = Annotated[
    int, typer.Option(min=1, help="How often to plan anew when others win; then it is put off.")
]
PublishAttempts = Annotated[
    int,
    typer.Option(min=1, help="How many records each plan may try at most."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
