"""The command line: sees the public door alone, and imports Lance and Arrow only when they work."""

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code (see `cli.exits`)."""
    from siltstone.cli.app import run

    return run(arguments)
