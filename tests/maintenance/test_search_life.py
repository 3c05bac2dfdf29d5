"""Searches by vectors and words find the live rows, through every door."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from siltstone.api.store import Store
from siltstone.lance_versions.fresh import FreshVersions
from siltstone.maintenance.merge import merge
from siltstone.namespace import SiltstoneNamespace
from tests.server.rest import Rest, rest_of
from tests.storage.searches import SCHEMA, SIZE, WORDS, check, with_word

KEYS = 500
INDEXES = {"place": "vector", "words": "fts", "id": "btree", "kind": "bitmap"}
FIELDS = SCHEMA.append(pa.field("kind", pa.string()))
Row = dict[str, Any]


class Life:
    """A store, the rows that it should have, and what may happen to both."""

    def __init__(self, db: Store, seed: int) -> None:
        self.db, self.random = db, Random(seed)
        self.fresh = SiltstoneNamespace(db, keyed="fresh")
        self.numbers = np.random.default_rng(seed)
        self.rows: dict[int, Row] = {}
        self.table = db.create_table("t", FIELDS, "id")
        for first in range(0, 400, 100):
            self._write(range(first, first + 100))
            self.merge()

    def _write(self, keys: Any) -> None:
        rows = [
            {
                "id": key,
                "words": f"{self.random.choice(WORDS)} stone",
                "place": self._somewhere(),
                "kind": self.random.choice("ab"),
            }
            for key in keys
        ]
        self.table.upsert(pa.Table.from_pylist(rows, FIELDS))
        self.rows |= {row["id"]: row for row in rows}

    def _somewhere(self) -> list[float]:
        return self.numbers.normal(size=SIZE).astype(np.float32).tolist()

    def upsert(self) -> None:
        self._write(self.random.sample(range(KEYS), self.random.randint(1, 60)))

    def move_nothing(self) -> None:
        """Change a column that has no vector and no text."""
        for key in self.random.sample(sorted(self.rows), 10):
            self.table.update(key, kind="c")
            self.rows[key]["kind"] = "c"

    def delete(self) -> None:
        """Delete the rows that the next search would find first."""
        keys = self.nearest(self.asked, self.random.randint(1, 60))
        self.table.delete(keys)
        for key in keys:
            del self.rows[key]

    def flush(self) -> None:
        self.db.checkpoint()

    def merge(self) -> None:
        self.db.checkpoint()
        self.db.merge()

    def optimize(self) -> None:
        self.db.optimize(target_rows=self.random.choice((150, 300, 50_000)))

    def change_indexes(self) -> None:
        there = [index.name for index in self.table.indexes()]
        free = sorted(set(INDEXES) - set(there))
        if free and (self.random.random() < 0.8 or not there):
            name = self.random.choice(free)
            self.table.create_index(name, INDEXES[name], name=name)
        else:
            self.table.drop_index(self.random.choice(there))

    def step(self) -> None:
        self.asked = self.numbers.normal(size=SIZE).astype(np.float32)
        writes = [self.upsert, self.upsert, self.move_nothing, self.delete, self.delete]
        keeps = [self.flush, self.merge, self.merge, self.merge, self.optimize]
        self.random.choice([*writes, *keeps, self.change_indexes])()

    def nearest(self, asked: np.ndarray, k: int) -> list[int]:
        ids = sorted(self.rows)
        places = np.array([self.rows[key]["place"] for key in ids], np.float32)
        order = np.argsort(((places - asked) ** 2).sum(axis=1), kind="stable")
        return [ids[n] for n in order[:k]]

    def check(self, rest: Rest) -> None:
        asked, k = self.asked, self.random.randint(1, 12)
        wanted = self.nearest(asked, k)
        query = {"vector": asked.tolist(), "vector_column": "place", "k": k, "columns": ["id"]}
        found = rest.post("/v1/table/t/query", query).rows
        assert [row["id"] for row in found] == wanted
        answer = self.fresh.query_table({"id": ["t"], **query})
        assert pa.ipc.open_file(answer.data).read_all()["id"].to_pylist() == wanted
        self._check_counts(rest)
        shown = lance.dataset(namespace_client=self.fresh, table_id=["t"])
        assert sorted(shown.to_table(columns=["id"])["id"].to_pylist()) == sorted(self.rows)
        check(shown, asked, k)
        merged = lance.dataset(self.db.path / "tables/t-1/base")
        assert merged.count_rows() == len(merged.to_table(columns=["id"]))
        check(merged, asked, k)

    def _check_counts(self, rest: Rest) -> None:
        of_kind = sum(row["kind"] == "c" for row in self.rows.values())
        assert self.table.count() == len(self.rows)
        assert self.table.count("kind = 'c'") == of_kind
        counted = rest.post("/v1/table/t/count_rows", {"predicate": "kind = 'c'"})
        assert counted.json == of_kind
        key = self.random.randrange(KEYS)
        assert self.table.count(f"id = {key}") == (key in self.rows)


@pytest.mark.parametrize("seed", range(4))
def test_searches_find_the_live_rows_once(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "COMPACT_BELOW_ROWS", 60 * (seed % 2))
    with rest_of(tmp_path / "db") as (db, _, rest):
        db._parts.fresh = FreshVersions(db._core, interval_s=0)
        life = Life(db, seed)
        for kind in ("place", "words"):
            life.table.create_index(kind, INDEXES[kind], name=kind)
        for _ in range(25):
            life.step()
            life.check(rest)
        life.merge()
        life.optimize()
        assert all(index.lagging_rows == 0 for index in life.table.indexes())
        merged = lance.dataset(db.path / "tables/t-1/base")
        assert merged.count_rows() == len(life.rows)
        if life.table.indexes() and any(i.name == "words" for i in life.table.indexes()):
            assert with_word(merged, "stone") == sorted(life.rows)
        assert db.verify(deep=True).is_sound
