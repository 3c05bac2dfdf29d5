"""Workload: one question to every peer, and the sizes at which it is asked."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.peer import Peer, find

Metrics = dict[str, float]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much work: `scale` shrinks tables and batches, `seconds` bounds each measurement."""

    scale: float
    seconds: float
    rounds: int

    def rows(self, full: int, least: int = 1_000) -> int:
        return max(least, int(full * self.scale))


class Workload(Protocol):
    """One question. `prepare` and `measure` are called for each peer that takes `name`."""

    name: str
    title: str

    def prepare(self, peer: Place) -> None:
        """Load what the measurements need; not timed."""

    def measure(self, peer: Place, turn: int) -> Metrics:
        """Do one round; `turn` is its number, and the seed of its keys."""
        ...


class Place:
    """One peer in its own directory; opened late, closed once, opened again at will."""

    def __init__(self, name: str, path: Path, sizes: Sizes) -> None:
        self.name, self.path, self.sizes = name, path, sizes
        self.is_durable = find(name).is_durable
        self.notes: dict[str, object] = {}  # what `prepare` leaves for `measure`
        self._store: Peer | None = None

    @property
    def store(self) -> Peer:
        if self._store is None:
            self._store = find(self.name)(self.path)
        return self._store

    def another(self, suffix: str) -> Place:
        """Return a place of the same peer in a fresh directory beside this one."""
        path = self.path.with_name(f"{self.path.name}-{suffix}")
        shutil.rmtree(path, ignore_errors=True)
        return Place(self.name, path, self.sizes)

    def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def remove(self) -> None:
        self.close()
        shutil.rmtree(self.path, ignore_errors=True)
