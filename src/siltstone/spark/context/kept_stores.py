"""Kept stores: the stores that this process has open to read, for the next plan.

    used by somebody ──last user leaves──▶ idle ──IDLE_S──▶ closed
          ▲───────────────────────────────────┘

A store that stays open follows the log, so a plan after a commit reads what is new in it, and finds
what is new in the overlay. Opened again, it would read all of the log and find all of the overlay.
While it is open, the store's newest record that it has seen is leased, and vacuum keeps its files:
so it is closed when it was not used for `IDLE_S`, or if `STORES_MAX` others are idle.

Lock: one, for the list of stores; none is opened or closed while it is held.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from siltstone.bucket_url import is_bucket_url
from siltstone.local.store import LocalStore
from siltstone.store import connect

IDLE_S = 30.0
STORES_MAX = 8

Place = tuple[str, int, int]


@dataclass(slots=True, eq=False)
class _Kept:
    """An open store; `place` tells it from another one that was made at its path later."""

    store: LocalStore
    place: Place
    users: int = 0
    since_s: float = 0.0  # idle since


_lock = threading.Lock()
_kept: list[_Kept] = []
_timer: threading.Timer | None = None


@contextmanager
def kept(path: str) -> Generator[LocalStore]:
    """Return the store at `path`, read-only, open for as long as the block lasts, and then kept.

    Raises:
        RequestError, UnavailableError: There is no store.
    """
    found = _taken(path) or _opened(path)
    try:
        yield found.store
    finally:
        with _lock:
            found.users -= 1
            found.since_s = time.monotonic()
        close_idle()


def close_idle(idle_s: float = IDLE_S) -> None:
    """Close the stores that were not used for `idle_s`, and the oldest ones above the bound."""
    global _timer  # noqa: PLW0603 - there is one, as there is one list
    now = time.monotonic()
    with _lock:
        idle = sorted((each for each in _kept if not each.users), key=lambda each: each.since_s)
        gone = [each for each in idle if now - each.since_s >= idle_s]
        gone += [each for each in idle[: max(0, len(idle) - STORES_MAX)] if each not in gone]
        _kept[:] = [each for each in _kept if each not in gone]
        if _timer is not None:
            _timer.cancel()
        _timer = threading.Timer(IDLE_S, close_idle) if len(idle) > len(gone) else None
        if _timer is not None:
            _timer.daemon = True
            _timer.start()
    for each in gone:
        each.store.close()


def _taken(path: str) -> _Kept | None:
    place = place_of(path)
    with _lock:
        for each in _kept:
            if each.place == place:
                each.users += 1
                return each
    return None


def _opened(path: str) -> _Kept:
    store = connect(path, read_only=True)
    assert isinstance(store, LocalStore)
    place = place_of(path)
    assert place is not None
    opened = _Kept(store, place, users=1)
    with _lock:
        _kept.append(opened)
    return opened


def place_of(path: str) -> Place | None:
    """Return what tells the store at `path` from all others; None: there is none.

    With the path, because executors get it, and may see no other one to the same directory. A URL
    of a bucket has one store (ADR 119).
    """
    if is_bucket_url(path):
        return path, 0, 0
    try:
        found = (Path(path) / "manifest").stat()
    except OSError:
        return None
    return path, found.st_dev, found.st_ino


def _forget() -> None:
    """Begin anew in the child of a fork, which must not use what its parent has open."""
    global _lock, _timer  # a thread of the parent may hold the one
    _lock, _timer = threading.Lock(), None
    _kept.clear()


os.register_at_fork(after_in_child=_forget)
