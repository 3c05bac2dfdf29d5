"""A search at a seq returns what brute force over the rows of that seq returns, whatever was done.

With no index, a flat one, or `exact=True` there is no difference at all; an index that finds nearly
the nearest never gives a dead, an old or a foreign row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import siltstone as st
from tests.query.nearest_rows import Rows, distance, found, nearest, rounded, vectors
from tests.query.random_life import FILTERS, IDS, SEEDS, RandomLife

SIZE, STEPS, K = 6, 60, 7
KINDS = {
    "float": (pa.float32(), ("l2", "cosine", "dot")),
    "halffloat": (pa.float16(), ("l2", "cosine", "dot")),
    "double": (pa.float64(), ("l2", "cosine", "dot")),
    "uint8": (pa.uint8(), ("hamming",)),
}


class Life(RandomLife):
    def __init__(self, db: st.Store, kind: Any, seed: int) -> None:
        super().__init__(db, seed)
        self.kind = kind
        schema = pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                pa.field("v", pa.list_(kind, SIZE)),
                pa.field("g", pa.int32()),
            ]
        )
        self.table = db.create_table("t", schema, primary_key="id")

    def vector(self) -> list[float] | None:
        rng = self.random
        if rng.random() < 0.05:
            return None
        if pa.types.is_uint8(self.kind):
            return [rng.choice([0, 1, 3, 255, rng.randrange(256)]) for _ in range(SIZE)]
        if rng.random() < 0.4:  # small integers: many rows are equally far
            return [float(rng.randrange(-1, 2)) for _ in range(SIZE)]
        if rng.random() < 0.03:
            return [float("nan")] * SIZE
        return rounded([rng.gauss(0, 1) for _ in range(SIZE)], self.kind)

    def query(self) -> list[float]:
        while True:
            live = [row for row, _ in self.rows.values() if row is not None]
            found = self.random.choice(live) if live and self.random.random() < 0.4 else None
            found = found or self.vector()
            if found and not np.isnan(found).any() and any(found):
                return found

    def upsert(self) -> None:
        ids = self.some_ids()
        new = {n: (self.vector(), self.random.randrange(3)) for n in ids}
        self.rows.update(new)
        columns = [[*new], [v for v, _ in new.values()], [g for _, g in new.values()]]
        self.table.upsert(
            pa.table(
                [pa.array(columns[0]), vectors(columns[1], SIZE, self.kind), pa.array(columns[2])],
                schema=self.table.schema,
            )
        )

    def one(self) -> None:
        number, row, group = self.random.randrange(IDS), self.vector(), self.random.randrange(3)
        self.rows[number] = (row, group)
        self.table.upsert({"id": number, "v": row, "g": group})

    def value_alone(self) -> None:
        if self.rows:
            number, row = self.random.choice([*self.rows]), self.vector()
            self.rows[number] = (row, self.rows[number][1])
            self.table.update(number, v=row)

    def index(self) -> None:
        if not pa.types.is_uint8(self.kind) and not any(
            i.name == "v" for i in self.table.indexes()
        ):
            self.table.create_index("v", kind="vector", metric="l2")


def of_group(rows: dict[int, Any], wanted: Any) -> Rows:
    return {number: row for number, (row, group) in rows.items() if wanted(number, group)}


def check(life: Life, table: Any, rows: dict[int, Any], metric: str) -> None:
    text, wanted = life.random.choice(FILTERS)
    query = life.query()
    count = life.random.choice([1, K, 200])
    asked: dict[str, Any] = {"k": count, "metric": metric, "filter": text, "columns": ["id", "v"]}
    within = None
    if life.random.random() < 0.3:
        within = life.random.choice([(None, 3.0), (1.0, None), (0.5, 4.0)])
    seen = of_group(rows, wanted)
    best = nearest(seen, query, asked["k"], metric, within or (None, None))
    result = table.search(query, **asked, distance_range=within, exact=life.random.random() < 0.5)
    assert found(result) == best, (asked, within)
    for row in result:
        assert distance(metric, row["v"], query) == row["_distance"]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_seq_is_searched_as_by_brute_force(tmp_path: Path, kind: str, seed: int) -> None:
    element, metrics = KINDS[kind]
    with st.connect(tmp_path / "s", background=False, retention="1h") as db:
        life = Life(db, element, seed)
        for _ in range(STEPS):
            life.step()
            for metric in metrics:
                check(life, db["t"], life.rows, metric)
            seq = life.random.choice([*life.past])
            with db.snapshot(seq=seq) as past:
                check(life, past["t"], life.past[seq], metrics[0])
