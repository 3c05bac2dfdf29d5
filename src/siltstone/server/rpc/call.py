"""Call: one request of a joined process as its handler sees it, and what the handler returns."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from siltstone.server.sessions import Session

Turn = Callable[[], AbstractContextManager[object]]
"""What one batch of rows is read within, and nothing else that uses the same transaction."""


@dataclass(frozen=True, slots=True)
class RpcCall:
    """One request: its session, verb and arguments; `path` has the words of its address."""

    session: Session
    verb: str
    arguments: list[Any]
    named: dict[str, Any]
    transaction: str | None = None
    snapshot: str | None = None
    statement: str | None = None
    path: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call returned; rows that are read later are read in a `turn` of their own each."""

    value: object
    turn: Turn | None = None
