"""Bench: the limits of this machine and disk, next to the rates of a store on it.

It uses its own store, in a new directory that it removes at the end; it opens no other store. What
it runs is in `bench/` of the source, not in the package.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from siltstone.cli.arguments import Quiet
from siltstone.cli.demo import SOURCE
from siltstone.cli.output import Form, emit, emit_record
from siltstone.cli.sessions import note
from siltstone.errors import UnavailableError

Dir = Annotated[
    Path | None,
    typer.Option(help="Measure the disk of this directory. Default: the temporary directory."),
]
Rows = Annotated[
    int, typer.Option(min=1_000, max=50_000_000, help="The number of rows of the table.")
]
Seconds = Annotated[
    float, typer.Option(min=0.05, max=600, help="The duration of each measurement.")
]


def bench(
    dir: Dir = None,  # noqa: A002 - the name of the option
    rows: Rows = 2_000_000,
    seconds: Seconds = 4.0,
    *,
    form: Form,
    quiet: Quiet = False,
) -> None:
    """Measure a store on this machine, next to its limits. It needs a checkout."""
    if not (SOURCE / "bench" / "trial.py").is_file():
        raise UnavailableError(
            "the bench is in the source of siltstone (bench/), not in the package: run this command"
            " in a checkout"
        )
    sys.path.insert(0, str(SOURCE))
    from bench.machine import facts
    from bench.trial import Trial, scratch

    with scratch(dir, rows) as folder:
        machine = facts(folder)
        if machine["file system"] in {"tmpfs", "ramfs"}:
            note("a sync costs nothing in memory; give a directory on a disk with --dir")
        is_heard = sys.stderr.isatty() and not quiet
        # Lines, not a bar: a bar would compete with the measurement for the interpreter.
        found = Trial(folder, rows, seconds, note if is_heard else lambda _: None).run()
    if form is Form.JSON:
        emit_record({**machine, "rows": rows, "measured": [one.as_dict() for one in found]}, form)
        return
    cells = [list(one.as_dict().values()) for one in found]
    emit(["measured", "value", "unit", "share", "of"], cells, form, _title(machine))


def _title(machine: dict[str, str]) -> str:
    named = ("cpu", "cores", "file system", "siltstone", "lance")
    return ", ".join(f"{name} {machine[name]}" for name in named)
