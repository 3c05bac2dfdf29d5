"""The command line: uses the public API alone, and imports Lance and Arrow only when they work."""

import gc
import os
import sys
from collections.abc import Sequence

_WITH_PANDAS = frozenset(("demo", "bench", "serve"))
"""The commands that run the code of others, or serve them, and so leave their pandas to them."""

_GARBAGE_OBJECTS = 100_000
"""How many new objects Python looks through for garbage: to import makes many, and none is."""


class _Frameless:
    """Finds no pandas: a command makes no data frame, and to import pandas takes a second.

    Arrow imports it, wherever it is installed, with its data sets and with the first array that it
    builds of Python objects. It remembers for the rest of the process that there is none, so this
    is for a process that has nothing else to do.
    """

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("commands do without pandas", name=name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code (see `cli.exits`).

    Without `arguments` it is the one of this process, which then has no pandas if it needs none.
    """
    if arguments is None:
        os.environ.setdefault("SILTSTONE_TUNE_MALLOC", "true")  # its children have it, too
        if _command_in(sys.argv[1:]) not in _WITH_PANDAS:
            sys.meta_path.insert(0, _Frameless)
            gc.set_threshold(_GARBAGE_OBJECTS)
    from siltstone.cli.app import run

    return run(arguments)


def _command_in(words: Sequence[str]) -> str:
    """Return the word that names the command; options may be before it."""
    left = list(words)
    while left and left[0].startswith("-"):
        del left[: 2 if left[0] in {"--db", "-d"} else 1]
    return left[0] if left else ""
