"""Demo: the main job on real input, checked all the way: the flights of 2013 as transactions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from siltstone.cli.arguments import Ndjson

Keep = Annotated[
    Path | None, typer.Option(help="Keep the store in this new directory.", show_default=False)
]


def demo(
    seconds: Annotated[float, typer.Option(min=1.0, help="How long to replay.")] = 40.0,
    threads: Annotated[int, typer.Option(min=1, max=64, help="Threads that write.")] = 4,
    kills: Annotated[int, typer.Option(min=0, max=20, help="How often to kill a writer.")] = 2,
    keep: Keep = None,
    ndjson: Ndjson = False,
) -> None:
    """Replay the flights of 2013 as transactions; check every snapshot; kill it; ask it."""
    from siltstone.cli.demo.run import run

    run(seconds=seconds, threads=threads, kills=kills, keep=keep, ndjson=ndjson)
