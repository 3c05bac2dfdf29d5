"""Pages: one page of a list that has an order; its token is the last entry of the page before.

So an entry that comes or goes between two pages moves no other one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

PAGE_MAX = 10_000
Entry = TypeVar("Entry")


class HasPage(Protocol):
    """A request for a page of a list."""

    page_token: str | None
    limit: int | None


def page(
    found: Sequence[Entry], asked: HasPage, name_of: Callable[[Entry], str] = str
) -> tuple[list[Entry], str | None]:
    """Return one page, and the token of the next one if there is one.

    Args:
        found: All entries, in the order of their names.
        asked: A limit of 0 is an empty page, without a next one; none is `PAGE_MAX`, at most.
        name_of: Returns the name of an entry.
    """
    after = asked.page_token or ""
    left = [entry for entry in found if name_of(entry) > after]
    shown = left[: most_of(asked)]
    return shown, name_of(shown[-1]) if 0 < len(shown) < len(left) else None


def most_of(asked: HasPage) -> int:
    """Return how many entries a page has at most."""
    return PAGE_MAX if asked.limit is None else min(asked.limit, PAGE_MAX)
