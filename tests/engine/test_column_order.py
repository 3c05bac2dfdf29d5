"""Rows by a column with an index are a sorted list, whatever level they are in.

A table of each kind of column is written at random, over deletes, checkpoints, merges and renewals
of the index, and each page in both directions is compared with a list: by value, equal values by
key, nulls last.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from siltstone.engine.order import column_order, ordered_rows, value_windows
from siltstone.local.store import LocalStore
from siltstone.maintenance.merge import merge
from tests.maintenance.stores import open_store
from tests.nightly import by_day

COUNT = 160
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
KINDS: dict[str, tuple[str, Callable[[int], Any]]] = {
    "numbers": ("int64", lambda n: (n - 20) << 40),
    "large": ("uint64", lambda n: (1 << 63) - 20 + n),
    "few": ("int8", lambda n: n // 20),
    "bools": ("bool", lambda n: n % 2 == 1),
    "days": ("date32", lambda n: dt.date(1969, 12, 20) + dt.timedelta(n)),
    "moments": ("timestamp[us, tz=UTC]", lambda n: EPOCH + dt.timedelta(hours=n - 20)),
    "clock": ("time64[us]", lambda n: dt.time(n // 3, n % 3)),
    "texts": ("string", lambda n: chr(0xF000 + 97 * n) * (1 + n % 3)),
    "bytes": ("binary", lambda n: bytes([n, 255 - n])[: 1 + n % 2]),
    "prices": ("decimal(20, 2)", lambda n: Decimal(n - 20) / 4),
}


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows so small that a page has many, and a value may have too many rows for one."""
    monkeypatch.setattr(merge, "COMPACT_BELOW_ROWS", 0)  # new parts stay, which no index has yet
    monkeypatch.setattr(value_windows, "ROWS_MIN", 3)
    monkeypatch.setattr(value_windows, "ROWS_MAX", 6)
    monkeypatch.setattr(column_order, "ROWS_MIN", 3)
    monkeypatch.setattr(column_order, "ROWS_MAX", 6)
    monkeypatch.setattr(column_order, "_ROWS_MIN", 2)
    monkeypatch.setattr(ordered_rows, "_LOOKED_AT_MIN", 20)
    monkeypatch.setattr(ordered_rows, "_LOOKED_AT_PER_ROW", 1)


class Model:
    """A table and the rows that it must have: by key the value `c` and a number `v`."""

    def __init__(self, db: LocalStore, kind: str, seed: int) -> None:
        self.type, self.value = KINDS[kind]
        self.db, self.random = db, random.Random(seed)
        columns = {"v": "int64", "a": "string", "c": self.type, "b": "int64"}
        self.table = db.create_table("t", columns, ["a", "b"])
        self.rows: dict[tuple[str, int], tuple[Any, int]] = {}
        for _ in range(3):  # base has most keys, and levels above it have some
            self.write(self.table, self.rows, most=COUNT)
        db.checkpoint()
        db.merge()
        self.table.create_index("c")
        for _ in range(3):
            self.step()

    def write(self, table: Any, rows: dict[Any, Any], most: int = 14) -> None:
        numbers = self.random.sample(range(COUNT), self.random.randint(1, most))
        keys = [("nsew"[n % 4], n) for n in numbers]
        if self.random.random() < 0.3:
            table.delete(keys)
            for key in keys:
                rows.pop(key, None)
            return
        for a, b in keys:
            drawn = self.random.randrange(40)
            rows[a, b] = (None if drawn < 4 else self.value(drawn)), self.random.randrange(9)
        names = ("a", "b", "c", "v")
        table.upsert([dict(zip(names, (*key, *rows[key]), strict=True)) for key in keys])

    def step(self) -> None:
        what = self.random.random()
        if what < 0.6:
            self.write(self.table, self.rows)
        elif what < 0.75:
            self.db.checkpoint()
        elif what < 0.9:
            self.db.checkpoint()
            self.db.merge()
        else:
            self.db.optimize()

    def check(self, table: Any, rows: dict[Any, Any], times: int = 3) -> None:
        for _ in range(times):
            self.check_page(table, rows)

    def check_page(self, table: Any, rows: dict[Any, Any]) -> None:
        choose = self.random.choice
        descending = choose([False, True])
        limit, offset = choose([None, 0, 1, 4, 30, 500]), choose([0, 0, 1, 7, 60, 1_000])
        test, keeps = choose([self.above, self.below, self.of_v, lambda: (None, lambda _: True)])()
        kept = [(c, *key, v) for key, (c, v) in rows.items() if keeps((c, v))]
        known = sorted((row for row in kept if row[0] is not None), reverse=descending)
        nulls = sorted((row for row in kept if row[0] is None), key=lambda row: row[1:3])
        wanted = [*known, *(nulls[::-1] if descending else nulls)][offset:][:limit]
        given = {"filter": test, "limit": limit, "offset": offset, "descending": descending}
        columns = choose([None, ["v", "b", "a", "c"]])
        order = choose(["c", ["c", "a"], ["c", "a", "b"]])
        found = table.scan(columns, order_by=order, **given).read_all()
        tuples = [(row["c"], row["a"], row["b"], row["v"]) for row in found.to_pylist()]
        assert tuples == wanted, (order, given)

    def above(self) -> tuple[Any, Any]:
        end = self.value(self.random.randrange(40))
        return self._compared(">", end), lambda row: row[0] is not None and row[0] > end

    def below(self) -> tuple[Any, Any]:
        end = self.value(self.random.randrange(40))
        return self._compared("<=", end), lambda row: row[0] is not None and row[0] <= end

    def of_v(self) -> tuple[Any, Any]:
        return "v = 3", lambda row: row[1] == 3

    def _compared(self, sign: str, end: Any) -> Any:
        column: Any = pc.field("c")
        value = pa.scalar(end, self.table.schema.field("c").type)
        return column > value if sign == ">" else column <= value


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Model]:
    with open_store(tmp_path / "s", real_lance=True) as db:
        yield Model(db, request.param, seed=23)


def test_pages_by_a_column_are_parts_of_a_sorted_list(model: Model) -> None:
    for _ in range(by_day(8, 120)):
        model.step()
        model.check(model.table, model.rows)


def test_pages_of_earlier_seqs_are_what_they_were(model: Model) -> None:
    past: list[tuple[Any, dict[Any, Any]]] = []
    for _ in range(by_day(6, 40)):
        model.step()
        past.append((model.db.snapshot(), dict(model.rows)))
        for snapshot, rows in past[::3]:
            model.check(snapshot["t"], rows, times=1)
    for snapshot, _ in past:
        snapshot.close()


def test_pages_in_a_transaction_have_its_own_rows(model: Model) -> None:
    for _ in range(by_day(2, 12)):
        with model.db.transaction() as tx:
            own = dict(model.rows)
            for _ in range(2):
                model.write(tx["t"], own)
                model.check(tx["t"], own)
            model.check(model.table, model.rows)
            tx.rollback()
        model.step()
