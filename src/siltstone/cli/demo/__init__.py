"""Demo."""


def demo() -> None:
    """X."""
