"""A store that builds, drops and catches up indexes between all else answers like a dict."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import siltstone as st

ROWS = 20_000  # from 16,384 on filters ask indexes
KEYS = ROWS + 200
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("many", pa.int64()),
        ("few", pa.string()),
        ("real", pa.float64()),
    ]
)
INDEXES = {
    "a": ("many", "btree"),
    "b": ("few", "bitmap"),
    "c": ("id", "btree"),
    "d": ("real", "btree"),
}
Row = dict[str, object]


class Life:
    """A store, the rows that it should have, and what may happen to both."""

    def __init__(self, db: st.Store, seed: int) -> None:
        self.db, self.random = db, Random(seed)
        self.rows: dict[int, Row] = {}
        self.table = db.create_table("t", SCHEMA, "id")
        self._write(range(ROWS))
        db.checkpoint()
        db.merge()

    def _row(self, key: int) -> Row:
        some = self.random
        return {
            "id": key,
            "many": some.choice((None, *range(9_000, 9_003), *[some.randrange(ROWS)] * 20)),
            "few": some.choice((None, *["x"] * 60, *(f"rare {n}" for n in range(2)))),
            "real": some.choice((None, 0.0, -0.0, float("inf"), float("nan"), some.random())),
        }

    def _write(self, keys) -> None:
        rows = [self._row(key) for key in keys]
        self.table.upsert(pa.Table.from_pylist(rows, SCHEMA))
        self.rows |= {row["id"]: row for row in rows}

    def _keys(self) -> list[int]:
        return self.random.sample(range(KEYS), self.random.randint(1, 60))

    def upsert(self) -> None:
        self._write(self._keys())

    def update(self) -> None:
        for key in self._keys()[:5]:
            if self.table.update(key, many=9_001).rows:
                self.rows[key]["many"] = 9_001

    def delete(self) -> None:
        keys = self._keys()
        self.table.delete(keys)
        for key in keys:
            self.rows.pop(key, None)

    def flush(self) -> None:
        self.db.checkpoint()

    def merge(self) -> None:
        self.db.checkpoint()
        self.db.merge()

    def optimize(self) -> None:
        self.db.optimize(target_rows=self.random.choice((500, 50_000)))

    def create(self) -> None:
        free = sorted(set(INDEXES) - {index.name for index in self.table.indexes()})
        if free:
            name = self.random.choice(free)
            column, kind = INDEXES[name]
            self.table.create_index(column, kind, name=name, build=self.random.random() < 0.7)

    def drop(self) -> None:
        names = [index.name for index in self.table.indexes()]
        if len(names) > 2:
            self.table.drop_index(self.random.choice(names))

    def step(self) -> None:
        writes = [self.upsert, self.update, self.delete]
        self.random.choice(
            [*writes, self.flush, self.merge, self.optimize, self.create, self.drop]
        )()

    def check(self) -> None:
        key = self.random.randrange(KEYS)
        for wanted, holds in (
            ("many = 9001", lambda row: row["many"] == 9_001),
            ("many IS NULL", lambda row: row["many"] is None),
            ("many BETWEEN 9000 AND 9002", lambda row: 9_000 <= (row["many"] or 0) <= 9_002),
            ("few = 'rare 1' AND id > 50", lambda row: row["few"] == "rare 1" and row["id"] > 50),
            (f"id IN ({key}, 7)", lambda row: row["id"] in {key, 7}),
            ("real = 0.0 AND many = 9002", lambda r: r["real"] == 0.0 and r["many"] == 9_002),
        ):
            expected = sorted(number for number, row in self.rows.items() if holds(row))
            found = self.table.to_arrow(["id"], wanted)["id"].to_pylist()
            assert sorted(found) == expected, wanted


@pytest.mark.parametrize("seed", range(3))
def test_answers_are_those_of_a_dict(tmp_path: Path, seed: int) -> None:
    with st.connect(tmp_path / "db", background=False, segment_bytes=1 << 20) as db:
        life = Life(db, seed)
        life.create()
        for _ in range(25):
            life.step()
            life.check()
        assert db.verify(deep=True).is_sound
    with st.connect(tmp_path / "db", background=False) as db:
        life.db, life.table = db, db["t"]
        life.check()
