"""Progress: a bar on stderr if stderr is a terminal, otherwise nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

_WHAT_WIDTH = 48


@contextmanager
def progress_bar(what: str, *, quiet: bool = False) -> Generator[Callable[[str, int, int], None]]:
    """Yield the function to report progress: name of the next item, amount done, total amount."""
    if quiet or not sys.stderr.isatty():
        yield lambda _what, _done, _all: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[name]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None, name="")

        def told(name: str, done: int, total: int) -> None:
            shown = escape(name[-_WHAT_WIDTH:])
            bar.update(task, completed=done, total=max(total, done, 1), name=shown)

        yield told
