"""Route: one operation that clients may ask for, as the pipeline and the router see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from siltstone.operations import Role

JSON = "json"
ARROW = "arrow"
NOTHING = "nothing"
MESSAGE = "message"

Handler = Callable[[Any], Any]
"""A plain function of one call value, in a thread; what it raises becomes the answer."""


@dataclass(frozen=True, eq=False, slots=True)
class Grouping:
    """What one thread does for several requests of a route at once."""

    prepare: Callable[[Any], Any | None]
    """Takes what the handler takes, and waits for nothing. None: the handler has to do it."""
    run: Callable[[Sequence[Any]], Sequence[Any]]
    """Takes what was prepared; returns for each the reply, the error, or None, as before."""


@dataclass(frozen=True, slots=True)
class Route:
    """An operation: its address, the role it needs, what it takes and gives, its handler."""

    method: str
    path: str
    """Words between slashes; `{name}` stands for any word."""
    role: Role
    handler: Handler
    summary: str = ""
    """What the document of the routes says of it."""
    takes: str = JSON
    gives: str = JSON
    query: tuple[str, ...] = ()
    request: Any = None
    """The type of a JSON body, as its schema is described; None: it has none."""
    answer: Any = None
    """The type of a JSON answer."""
    name: str = ""
    """The verb of RPC; without one the address has it, as `{verb}`."""
    is_timed: bool = True
    """Whether the request is given up when the policy's `statement_timeout_s` is over."""
    is_statement: bool = False
    """Whether it waits for its turn in the lane, and runs there."""
    is_at_once: bool = False
    """Whether the event loop runs its handler, which reads what is in memory and waits for nothing:
    no other request, and no thread, holds its answer up. It has no body."""
    is_read: bool = False
    """Whether it reads rows: `siltstone_read_seconds` has how long it takes."""
    is_checked: bool = False
    """Whether the members of its JSON body may be such as it does not offer."""
    is_query_typed: bool = False
    """Whether its query has all members of its request: its handler refuses others."""
    grouping: Grouping | None = None
    is_commit_of_version: bool = False
    """Its clients take every refusal for a commit that was perhaps lost, and show no reason."""
