"""The command line: sees the public door alone, and imports Lance and Arrow only when they work."""

import sys
from collections.abc import Sequence


class _Frameless:
    """Finds no pandas. No command shows a frame, and a merge child is a command.

    Arrow imports pandas with the first array that it builds of Python objects, wherever pandas is
    installed: more than a second.
    """

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("a siltstone command does without pandas", name=name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code (see `cli.exits`).

    Without `arguments` it is the one of this process, which then has no pandas; Spark asks for it.
    """
    if arguments is None and "--spark" not in sys.argv:
        sys.meta_path.insert(0, _Frameless)
    from siltstone.cli.app import run

    return run(arguments)
