"""Rows by key are what a sorted list of all rows gives, whatever level they are in.

A store of each kind of key is written at random, over deletes, checkpoints and merges, and each
range, page and direction is compared with a list: now, as of earlier seqs, and in a transaction.
"""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from siltstone.engine.levels import chunk
from siltstone.engine.order import level_order, ordered_rows, placed_rows, sorted_rows
from siltstone.engine.order.ordered_rows import OrderedRead
from siltstone.engine.read import read_union
from siltstone.engine.read.read_union import KeyedReader
from siltstone.formats.order import ordered_run
from siltstone.local.store import LocalStore
from siltstone.storage.tables.keys import key_cover
from tests.maintenance.stores import open_store
from tests.nightly import by_day

COUNT = 240
DAY = dt.date(1969, 12, 1)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
KINDS: dict[str, tuple[dict[str, str], Callable[[int], Any]]] = {
    "int64": ({"id": "int64"}, lambda n: (n - 120) << 40),
    "int8": ({"id": "int8"}, lambda n: n - 120),
    "uint64": ({"id": "uint64"}, lambda n: (1 << 63) - 120 + n),
    "bool": ({"id": "bool"}, lambda n: n % 2 == 1),
    "date": ({"id": "date32"}, lambda n: dt.date(1969, 12, 1) + dt.timedelta(n)),
    "time": ({"id": "timestamp[us, tz=UTC]"}, lambda n: EPOCH + dt.timedelta(hours=n - 100)),
    "text": ({"id": "string"}, lambda n: f"s3://bucket/a/path/of/thirty/{n:05}"),
    "texts": ({"id": "string"}, lambda n: chr(0xF000 + 97 * n) * (1 + n % 3)),
    "bytes": ({"id": "binary"}, lambda n: bytes([n, 255 - n])[: 1 + n % 2]),
    "decimal": ({"id": "decimal(20, 2)"}, lambda n: Decimal(n - 120) / 4),
    "uuid": ({"id": "uuid"}, lambda n: uuid.UUID(int=n * (1 << 120))),
    "pair": ({"region": "string", "id": "int64"}, lambda n: ("nsew"[n % 4], n - 120)),
    "pairs": ({"a": "binary", "b": "date32"}, lambda n: (bytes(n % 3), DAY + dt.timedelta(n))),
}
HASHED = {"string", "binary", "decimal(20, 2)", "uuid"}


@pytest.fixture(autouse=True)
def _few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, runs and sorts so small that a range has many of each."""
    monkeypatch.setattr(placed_rows, "_ROWS_MIN", 3)
    monkeypatch.setattr(placed_rows, "_ROWS_FIRST", 5)
    monkeypatch.setattr(ordered_rows, "_LOOKED_AT_MIN", 20)
    monkeypatch.setattr(ordered_rows, "_LOOKED_AT_PER_ROW", 1)
    monkeypatch.setattr(ordered_rows, "_LOOKED_UP_MAX", 10)
    monkeypatch.setattr(sorted_rows, "_BYTES_MAX", 900)
    monkeypatch.setattr(sorted_rows, "_ROWS_AHEAD", 4)
    monkeypatch.setattr(key_cover, "_WIDTH", 8)
    monkeypatch.setattr(ordered_run, "PAGE_BYTES", 256)
    monkeypatch.setattr(chunk, "_SORTED_FIRST", 5)


class Model:
    """A table and the rows that it must have, by key."""

    def __init__(self, db: LocalStore, kind: str, seed: int) -> None:
        columns, self.key = KINDS[kind]
        self.names, self.random = list(columns), random.Random(seed)
        self.db = db
        self.table = db.create_table("t", {"v": "int64", **columns, "w": "string"}, self.names)
        self.rows: dict[Any, int] = {}
        self.written = 0
        for _ in range(3):  # base has most keys, in no order, and levels above it have some
            self.write(self.table, self.rows, most=COUNT)
        db.checkpoint()
        db.merge()
        for _ in range(3):
            self.step()

    def row(self, key: Any, value: int) -> dict[str, Any]:
        parts = key if len(self.names) > 1 else (key,)
        named = dict(zip(self.names, parts, strict=True))
        return {"v": value, **named, "w": f"text {value % 7}"}

    def write(self, table: Any, rows: dict[Any, int], most: int = 40) -> None:
        numbers = self.random.sample(range(COUNT), self.random.randint(1, most))
        if self.random.random() < 0.3:
            keys = [self.key(n) for n in numbers]
            table.delete(keys)
            for key in keys:
                rows.pop(key, None)
            return
        self.written += 1
        put = {self.key(n): self.written for n in numbers}
        given = [self.row(key, value) for key, value in put.items()]
        if table is self.table and self.random.random() < 0.2:
            self.load(given)
        else:
            table.upsert(given)
        rows.update(put)

    def load(self, given: list[dict[str, Any]]) -> None:
        """Write rows as a bulk commit, which stays in its files, with key runs of its own."""
        stage = self.db.stage("t")
        rows = pa.Table.from_pylist(given, self.table.schema)
        writer = self.db._core.tables.writer  # pyright: ignore[reportPrivateUsage]
        staged = stage.run_through(writer, rows)
        with self.db.transaction() as tx:
            tx.attach(stage, [staged])

    def step(self) -> None:
        what = self.random.random()
        if what < 0.7:
            self.write(self.table, self.rows)
        elif what < 0.88:
            self.db.checkpoint()
        else:
            self.db.checkpoint()
            self.db.merge()

    def check(self, table: Any, rows: dict[Any, int], times: int = 3) -> None:
        for _ in range(times):
            ends = sorted(self.key(n) for n in self.random.choices(range(COUNT), k=2))
            low, high = (None if self.random.random() < 0.25 else end for end in ends)
            self.check_range(table, rows, low, high)

    def check_range(self, table: Any, rows: dict[Any, int], low: Any, high: Any) -> None:
        choose = self.random.choice
        descending = choose([False, True])
        limit, offset = choose([None, 0, 1, 4, 30, 500]), choose([0, 0, 1, 7, 90, 1_000])
        test, keeps = choose([(None, None), ("v % 2 = 0", 2), ("w = 'text 3'", 7)])
        wanted = [
            (key, value)
            for key, value in sorted(rows.items(), reverse=descending)
            if (low is None or low <= key) and (high is None or key < high)
            if keeps != 2 or value % 2 == 0
            if keeps != 7 or value % 7 == 3
        ][offset:][:limit]
        given = {"filter": test, "limit": limit, "offset": offset, "descending": descending}
        columns = choose([None, ["w", *self.names, "v"]])
        found = table.range(low, high, columns=columns, **given).read_all()
        assert self.pairs(found) == wanted, (low, high, given)
        if low is None and high is None:
            order = choose([self.names, self.names[0]])
            assert self.pairs(table.scan(order_by=order, **given).read_all()) == wanted, given

    def pairs(self, found: pa.Table) -> list[tuple[Any, int]]:
        rows = found.to_pylist()
        names = self.names
        keys = [row[names[0]] if len(names) == 1 else tuple(map(row.get, names)) for row in rows]
        return [(key, row["v"]) for key, row in zip(keys, rows, strict=True)]


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Model]:
    with open_store(tmp_path / "s", load_rows_min=2) as db:
        yield Model(db, request.param, seed=17)


def test_ranges_are_parts_of_a_sorted_list(model: Model) -> None:
    for _ in range(by_day(10, 200)):
        model.step()
        model.check(model.table, model.rows)
    model.check_range(model.table, model.rows, None, None)


@pytest.mark.parametrize("kind", [k for k, (c, _) in KINDS.items() if {*c.values()} & HASHED])
def test_ranges_of_keys_without_an_order_are_parts_of_a_sorted_list(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More rows than may be sorted lie above base, so all that match are."""
    monkeypatch.setattr(level_order, "ROWS_MAX", -1)
    with open_store(tmp_path / "s", load_rows_min=2) as db:
        model = Model(db, kind, seed=17)
        for _ in range(by_day(6, 100)):
            model.step()
            model.check(model.table, model.rows)
        model.check_range(model.table, model.rows, None, None)


def test_no_page_needs_a_pass_over_all_keys(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Base, loads and memtables give their keys in order, also beside a writer."""
    monkeypatch.setattr(OrderedRead, "by_sort", None)
    for _ in range(by_day(5, 60)):
        model.step()
        whole = sorted(model.rows.items())
        assert model.pairs(model.table.range().read_all()) == whole
        given = {"order_by": model.names, "offset": 3, "limit": 9, "descending": True}
        assert model.pairs(model.table.scan(**given).read_all()) == whole[::-1][3:12]
        with model.db.transaction() as tx:
            own = dict(model.rows)
            model.write(tx["t"], own)
            assert model.pairs(tx["t"].range(limit=20).read_all()) == sorted(own.items())[:20]
            tx.rollback()


def test_a_short_range_of_texts_is_found_by_its_filter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter says between which keys its rows are: pages of all kinds are read that way."""
    with open_store(tmp_path / "s") as db:
        for name, kind in (("s", "string"), ("b", "binary"), ("d", "decimal(9, 1)")):
            db.create_table(name, {"id": kind, "v": "int64"}, "id")
        for n in range(300):
            db["s"].upsert({"id": f"k{n:03}", "v": n})
            db["b"].upsert({"id": b"k%03d" % n, "v": n})
            db["d"].upsert({"id": Decimal(n) / 2, "v": n})
            if n in (100, 200):
                db.checkpoint()
                db.merge()
        monkeypatch.setattr(ordered_rows, "_LOOKED_AT_MIN", 1_024)
        monkeypatch.setattr(read_union, "_FEW_ROWS", 200)
        monkeypatch.setattr(OrderedRead, "by_sort", None)
        monkeypatch.setattr(KeyedReader, "_scan_levels", None)
        for name, test in (
            ("s", "id > 'k089' AND id <= 'k210' AND v % 2 = 0"),
            ("b", "id >= X'6b303930' AND id < X'6b323131' AND v % 2 = 0"),
            ("d", "id > 44.7 AND id <= 105 AND v % 2 = 0"),
        ):
            wanted = [*range(90, 211, 2)]
            found = db[name].scan(["v"], filter=test, order_by="id").read_all()
            assert found["v"].to_pylist() == wanted
            found = db[name].scan(["v"], filter=test, order_by="id", descending=True, limit=3)
            assert found.read_all()["v"].to_pylist() == wanted[:-4:-1]
            assert sorted(db[name].scan(["v"], filter=test).read_all()["v"].to_pylist()) == wanted
            assert db[name].scan(filter=f"{test} AND id > id").read_all().num_rows == 0
        for test, count in (("<=", 300), ("<", 300), (">=", 0), (">", 0)):
            wanted = f"id {test} 99999999.9"
            assert db["d"].scan(filter=wanted, order_by="id").read_all().num_rows == count


def test_pages_of_some_columns_of_a_key_are_found_by_their_filter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a filter says about the first columns of a key is between which bytes its rows are."""
    with open_store(tmp_path / "s") as db:
        fields = {"region": "string", "n": "int16", "day": "date32", "v": "int64"}
        table = db.create_table("t", fields, ["region", "n", "day"])
        for n in range(400):
            region = ("", "no", "no\x00", "north", "s")[n % 5]
            table.upsert(
                {"region": region, "n": n // 5 % 9 - 4, "day": DAY + dt.timedelta(n), "v": n}
            )
            if n in (150, 300):
                db.checkpoint()
                db.merge()
        rows = table.to_arrow().to_pylist()
        monkeypatch.setattr(ordered_rows, "_LOOKED_AT_MIN", 1_024)
        monkeypatch.setattr(read_union, "_FEW_ROWS", 400)
        monkeypatch.setattr(OrderedRead, "by_sort", None)
        monkeypatch.setattr(KeyedReader, "_scan_levels", None)
        for test, keeps in (
            ("region = 'no'", lambda r: r["region"] == "no"),
            ("region = 'no' AND n > 2", lambda r: r["region"] == "no" and r["n"] > 2),
            ("region = 'no' AND n <= -2", lambda r: r["region"] == "no" and r["n"] <= -2),
            ("region > 'no' AND n = 0", lambda r: r["region"] > "no" and r["n"] == 0),
            ("region <= 'no' AND v < 90", lambda r: r["region"] <= "no" and r["v"] < 90),
            ("region = '' AND n = 4 AND day < '1970-02-01'",
             lambda r: (r["region"], r["n"]) == ("", 4) and r["day"] < dt.date(1970, 2, 1)),
            ("region = 's' AND n = 1 AND day >= '1970-02-01'",
             lambda r: (r["region"], r["n"]) == ("s", 1) and r["day"] >= dt.date(1970, 2, 1)),
            ("region = 's' AND n > 32767", lambda _: False),
        ):  # fmt: skip
            wanted = sorted(filter(keeps, rows), key=lambda r: (r["region"], r["n"], r["day"]))
            order = {"order_by": ["region", "n", "day"]}
            assert table.scan(filter=test, **order).read_all().to_pylist() == wanted, test
            down = table.scan(filter=test, descending=True, limit=5, **order).read_all()
            assert down.to_pylist() == wanted[::-1][:5], test
            found = table.scan(filter=test).read_all().to_pylist()
            assert sorted(found, key=lambda r: (r["region"], r["n"], r["day"])) == wanted, test


def test_ranges_of_earlier_seqs_are_what_they_were(model: Model) -> None:
    past: list[tuple[Any, dict[Any, int]]] = []
    for _ in range(by_day(10, 60)):
        model.step()
        past.append((model.db.snapshot(), dict(model.rows)))
        for snapshot, rows in past[::3]:
            model.check(snapshot["t"], rows, times=1)
    seqs = [(snapshot.seq, rows) for snapshot, rows in past]
    for snapshot, _ in past:
        snapshot.close()
    for seq, rows in seqs[::2]:
        with model.db.snapshot(seq=seq) as snapshot:
            model.check(snapshot["t"], rows, times=1)


def test_ranges_in_a_transaction_have_its_own_rows(model: Model) -> None:
    for _ in range(by_day(3, 20)):
        with model.db.transaction() as tx:
            own = dict(model.rows)
            for _ in range(3):
                model.write(tx["t"], own)
                model.check(tx["t"], own)
            model.check(model.table, model.rows)
            tx.rollback()
        model.step()


def next_page(model: Model, last: Any, descending: bool) -> list[Any]:
    """Return the keys of the page behind a key: by a filter where one can name it."""
    table = model.table
    if last is None:
        found = table.scan(order_by=model.names, limit=7, descending=descending)
    elif isinstance(last, tuple | uuid.UUID):  # no filter compares these
        high, low = (last, None) if descending else (None, last)
        found = table.range(low, high, limit=8, descending=descending)
    else:
        kind = table.schema.field("id").type
        end, column = pa.scalar(last, kind), pc.field("id")
        behind = column < end if descending else column > end
        found = table.scan(filter=behind, order_by="id", limit=7, descending=descending)
    keys = [key for key, _ in model.pairs(found.read_all())]
    is_first_known = isinstance(last, tuple | uuid.UUID) and not descending
    return [key for key in keys if key != last] if is_first_known else keys[:7]


@pytest.mark.parametrize("descending", [False, True])
def test_pages_have_each_row_once_while_others_insert(model: Model, descending: bool) -> None:
    """Each row that stays is in one of them; a new one may be there or not, and never twice."""
    stay, seen, last = set(model.rows), list[Any](), None
    while found := next_page(model, last, descending):
        seen += found
        assert len(set(seen)) == len(seen)
        last = found[-1]
        free = [key for n in range(COUNT) if (key := model.key(n)) not in model.rows]
        for key in model.random.sample(free, min(len(free), 2)):
            model.table.insert(model.row(key, 0))
            model.rows[key] = 0
        model.table.upsert(model.row(last, 1_000))
        model.random.choice([lambda: None, model.db.checkpoint, model.db.merge])()
    assert seen == sorted(seen, reverse=descending)
    assert stay <= set(seen)


def test_a_stream_in_order_is_of_one_seq(model: Model) -> None:
    wanted = sorted(model.rows.items())
    found: list[pa.RecordBatch] = []
    for batch in (reader := model.table.range()):
        found.append(batch)
        model.step()
    assert model.pairs(pa.Table.from_batches(found, reader.schema)) == wanted


def test_rows_without_columns_are_counted(model: Model) -> None:
    found = model.table.range(columns=[]).read_all()
    assert found.num_rows == len(model.rows)
    assert found.num_columns == 0
