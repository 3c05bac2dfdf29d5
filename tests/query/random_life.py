"""Random lives of one table of rows with a group, for tests of searches at each seq."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import siltstone as st

IDS = 150
SEEDS = range(8 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 2)
Rows = dict[int, tuple[Any, int]]
FILTERS: list[tuple[str | None, Callable[[int, int], bool]]] = [
    (None, lambda _, __: True),
    ("g = 1", lambda _, group: group == 1),
    ("id % 3 = 0", lambda number, _: number % 3 == 0),
    ("g < 2 and id >= 40", lambda number, group: group < 2 and number >= 40),
    ("g < 2 and id % 3 = 0", lambda number, group: group < 2 and number % 3 == 0),
    ("g > 5", lambda _, __: False),
]
"""Each as SQL, and what it keeps of keys and groups."""


class RandomLife:
    """A random life of one table, and a model of its rows at each seq: by key a value and a group.

    Who inherits makes `table`, and has `upsert`, `one`, `value_alone` and `index`.
    """

    table: Any

    def __init__(self, db: st.Store, seed: int) -> None:
        self.db, self.random = db, random.Random(seed)
        self.rows: Rows = {}
        self.past: dict[int, Rows] = {}

    def step(self) -> None:
        name = self.random.choices(
            ["upsert", "one", "value_alone", "delete", "checkpoint", "merge", "optimize", "index"],
            [6, 6, 4, 3, 3, 3, 1, 1],
        )[0]
        getattr(self, name)()
        self.past[self.db.seq] = dict(self.rows)

    def some_ids(self) -> list[int]:
        return self.random.sample(range(IDS), self.random.randrange(1, 40))

    def delete(self) -> None:
        some = [n for n in self.rows if self.random.random() < 0.1]
        self.table.delete(some)
        for number in some:
            del self.rows[number]

    def checkpoint(self) -> None:
        self.db.checkpoint()

    def merge(self) -> None:
        self.db.merge()

    def optimize(self) -> None:
        self.db.optimize()
