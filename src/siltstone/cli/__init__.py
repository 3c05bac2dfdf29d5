"""The command line: sees the public door alone, and imports Lance and Arrow only when they work."""

import sys
from collections.abc import Sequence

_COLUMNAR = (["merge"], ["optimize"])
"""The commands that make no Python value of a user's: Arrow would need pandas for nanoseconds."""


class _Frameless:
    """Finds no pandas: for the children that the background starts, over and over.

    Arrow imports pandas with the first array that it builds of Python objects, wherever pandas is
    installed: more than a second.
    """

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("merge and optimize do without pandas", name=name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code (see `cli.exits`).

    Without `arguments` it is the one of this process, which then has no pandas if it needs none.
    """
    if arguments is None and sys.argv[1:2] in _COLUMNAR:
        sys.meta_path.insert(0, _Frameless)
    from siltstone.cli.app import run

    return run(arguments)
