"""What an image shows is what a scan of its seq shows, and never changes once it was handed out."""

from __future__ import annotations

import datetime as dt
import random
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.api.store import Store
from siltstone.engine.catalog.table_schema import TableSchema, table_schema_of
from siltstone.engine.columns import image as images_module
from siltstone.engine.columns.image import Image, image_of, is_narrow
from siltstone.engine.columns.images import HOT_SCANS, IDLE_VIEWS_MAX, KEPT_MAX, Images
from siltstone.engine.levels.chunk import Chunk
from siltstone.engine.read.image_scan import carried, carry_images, image_for
from siltstone.engine.read.read_union import KeyedReader
from siltstone.formats.log.group import DELETE, UPSERT
from siltstone.formats.manifest import Column, Schema
from tests.engine.seams import fake_env, open_store

NARROW = {2: pa.bool_(), 3: pa.int8(), 4: pa.int64(), 5: pa.float32(), 6: pa.date32()} | {
    7: pa.timestamp("us"),
    8: pa.decimal128(20, 3),
    9: pa.binary(5),
}
TEXTS = {2: "bool", 3: "int8", 4: "int64", 5: "float32", 6: "date32", 7: "timestamp[us]"} | {
    8: "decimal128(20, 3)",
    9: "fixed_size_binary[5]",
}
TABLE_SCHEMA: TableSchema = table_schema_of(
    Schema(
        1,
        (
            Column(1, "id", "int64", nullable=False),
            *(Column(n, f"c{n}", TEXTS[n]) for n in NARROW),
        ),
        key=(1,),
    )
)
NAMES = [f"c{n}" for n in NARROW]
Row = dict[str, object]


def some_row(rng: random.Random, key: int) -> Row:
    number = rng.randrange(100)
    row: Row = {
        "id": key,
        "c2": number % 2 == 0,
        "c3": number - 50,
        "c4": rng.randrange(1 << 40),
        "c5": float(number),
        "c6": dt.date(2020, 1, 1) + dt.timedelta(days=number),
        "c7": dt.datetime(2020, 1, 1) + dt.timedelta(seconds=number),  # noqa: DTZ001
        "c8": Decimal(number).scaleb(-3) + Decimal("0.000"),
        "c9": b"%05d" % number,
    }
    return {name: None if name != "id" and rng.random() < 0.2 else v for name, v in row.items()}


def chunk_of(rows: list[Row], op: int, seq: int) -> Chunk:
    batch = pa.RecordBatch.from_pylist(rows, schema=TABLE_SCHEMA.arrow)
    if op == DELETE:
        batch = batch.select(["id"])
    count = len(rows)
    codes = TABLE_SCHEMA.codec.codes(batch)
    return Chunk(0, batch, TABLE_SCHEMA, codes, np.full(count, seq), np.full(count, op, np.int8))


def image_of_rows(rows: dict[int, Row], seq: int) -> Image:
    batch = pa.RecordBatch.from_pylist([*rows.values()], schema=TABLE_SCHEMA.arrow)
    codes = TABLE_SCHEMA.codec.codes(batch)
    arrays = [batch.column(name) for name in NAMES]
    return image_of(seq, TABLE_SCHEMA.codec, NARROW, [(codes, arrays)] if rows else [])


def rows_of(image: Image) -> list[str]:
    batches = image.batches([*NARROW], TABLE_SCHEMA.fields(NAMES))
    found = pa.Table.from_batches(batches, TABLE_SCHEMA.fields(NAMES))
    found.validate(full=True)
    return sorted(map(repr, found.to_pylist()))


def rows_in(model: dict[int, Row]) -> list[str]:
    return sorted(repr({name: row[name] for name in NAMES}) for row in model.values())


@pytest.mark.parametrize("seed", range(6))
def test_an_image_follows_any_rows_and_older_ones_stay_as_they_were(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images_module, "BLOCK_ROWS", 16)
    monkeypatch.setattr(images_module, "_DEAD_MIN", 8)
    rng = random.Random(seed)
    model = {key: some_row(rng, key) for key in rng.sample(range(200), rng.choice([0, 50, 100]))}
    image = image_of_rows(model, 1)
    seen: list[tuple[Image, list[str]]] = [(image, rows_in(model))]
    for seq in range(2, 60):
        added: list[Chunk] = []
        for _ in range(rng.randrange(4)):
            keys = [rng.randrange(200) for _ in range(rng.randrange(1, 12))]
            if rng.random() < 0.6:
                rows = [some_row(rng, key) for key in keys]
                model = {**model, **dict(zip(keys, rows, strict=True))}
                added.append(chunk_of(rows, UPSERT, seq))
            else:
                model = {key: row for key, row in model.items() if key not in keys}
                added.append(chunk_of([some_row(rng, key) for key in keys], DELETE, seq))
        begun = image
        image = begun.at(seq, TABLE_SCHEMA.codec, added)
        assert begun.seq < image.seq == seq
        assert image.rows == len(model)
        seen.append((image, rows_in(model)))
        for old, rows in [seen[-1], *rng.sample(seen, min(3, len(seen)))]:
            assert rows_of(old) == rows


def test_arrays_that_a_scan_handed_out_do_not_change_when_rows_are_scattered() -> None:
    model = {key: some_row(random.Random(key), key) for key in range(100)}
    image = image_of_rows(model, 1)
    handed = [*image.batches([*NARROW], TABLE_SCHEMA.fields(NAMES))]
    before = [batch.to_pylist() for batch in handed]
    rows = [some_row(random.Random(-1 - key), key) for key in range(0, 100, 3)]
    image.at(2, TABLE_SCHEMA.codec, [chunk_of(rows, UPSERT, 2)])
    assert [batch.to_pylist() for batch in handed] == before


def test_rows_that_are_deleted_and_come_anew_take_no_space_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(images_module, "_DEAD_MIN", 8)
    rng = random.Random(1)
    image = image_of_rows({}, 1)
    for key in range(300):
        rows = [some_row(rng, key)]
        added = [chunk_of(rows, UPSERT, key + 2)]
        if key >= 10:
            added.append(chunk_of([some_row(rng, key - 10)], DELETE, key + 2))
        image = image.at(key + 2, TABLE_SCHEMA.codec, added)
        assert image.rows == min(key + 1, 10)
        assert image.slots <= 24


def test_narrow_are_the_types_of_at_most_16_bytes() -> None:
    wide = [pa.string(), pa.binary(), pa.list_(pa.int64()), pa.struct([("a", pa.int8())])]
    wide += [pa.decimal256(40, 2), pa.binary(17), pa.dictionary(pa.int8(), pa.string())]
    assert [kind for kind in wide if is_narrow(kind)] == []
    assert all(map(is_narrow, NARROW.values()))


# a store


class Life:
    """A store and what it must hold; columns by name, as its newest schema has them."""

    def __init__(self, db: Store, seed: int) -> None:
        self.db, self.random = db, random.Random(seed)
        schema = {"id": "int64", "v": "int64", "b": "bool", "x": "float64", "s": "string"}
        self.table = db.create_table("t", schema, primary_key="id")
        self.rows: dict[int, Row] = {}
        self.snapshots: list[tuple[st.Snapshot, dict[int, Row], list[str]]] = []
        self.served = 0

    @property
    def names(self) -> list[str]:
        return self.table.schema.names

    def row(self) -> Row:
        key, value = self.random.randrange(150), self.random.randrange(1 << 40)
        row: Row = {"id": key, "v": value, "b": value % 2 == 0, "x": value / 4, "s": str(value)}
        row["y"], row["x2"] = None if value % 5 == 0 else -value, row["x"]
        return {name: row[name] for name in self.names}

    def upsert(self) -> None:
        rows = [self.row() for _ in range(self.random.randrange(1, 40))]
        as_arrow = self.random.random() < 0.5
        given = pa.Table.from_pylist(rows, schema=self.table.schema) if as_arrow else rows
        self.table.upsert(given)
        self.rows = {**self.rows, **{row["id"]: row for row in rows}}  # type: ignore[dict-item]

    def delete(self) -> None:
        keys = [self.random.randrange(150) for _ in range(self.random.randrange(1, 20))]
        self.table.delete(keys)
        self.rows = {key: row for key, row in self.rows.items() if key not in keys}

    def both(self) -> None:
        """One commit that writes and deletes, read in the transaction itself."""
        with self.db.transaction() as tx:
            row, gone = self.row(), self.random.randrange(150)
            tx["t"].upsert([row])
            tx["t"].delete([gone])
            rows = {**self.rows, row["id"]: row}
            rows.pop(gone, None)
            self.rows = rows  # type: ignore[assignment]
            self.check(tx["t"], self.rows, self.names)

    def stage(self) -> None:
        rows = [self.row() for _ in range(30)]
        rows = [*{row["id"]: row for row in rows}.values()]
        task = self.db.stage("t")
        given = pa.Table.from_pylist(rows, schema=self.table.schema)
        piece = task.run_through(self.db._core.tables.writer, given)
        with self.db.transaction() as tx:
            tx.attach(task, [piece])
        self.rows = {**self.rows, **{row["id"]: row for row in rows}}  # type: ignore[dict-item]

    def alter(self) -> None:
        choice = self.random.randrange(4)
        if choice == 0 and "v" in self.names:  # the same name, another column
            self.table.drop_column("v")
            self.table.add_column("v", "int64")
            self._change(lambda row: {**row, "v": None})
        elif choice == 1:
            name = "x" if "x" in self.names else "x2"
            new = "x2" if name == "x" else "x"
            self.table.rename_column(name, new)
            self._rename(name, new)
        elif choice == 2 and "y" not in self.names:
            self.table.add_column("y", "int64")
            self._change(lambda row: {**row, "y": None})
        elif "y" in self.names:
            self.table.drop_column("y")
            self._change(lambda row: {name: row[name] for name in row if name != "y"})

    def _change(self, change) -> None:
        self.rows = {key: change(row) for key, row in self.rows.items()}

    def _rename(self, name: str, new: str) -> None:
        self._change(lambda row: {new if n == name else n: v for n, v in row.items()})

    def truncate(self) -> None:
        self.table.truncate()
        self.rows = {}
        if self.random.random() < 0.5:  # a load of an empty table goes straight to base
            self.stage()

    def step(self) -> None:
        steps = [self.upsert, self.delete, self.both, self.stage, self.alter, self.truncate]
        steps += [self.db.checkpoint, self.db.merge, self.db.optimize, self.remember]
        weights = [30, 15, 8, 4, 6, 1, 10, 10, 2, 6]
        self.random.choices(steps, weights)[0]()

    def remember(self) -> None:
        self.snapshots.append((self.db.snapshot(), self.rows, self.names))

    def check_all(self) -> None:
        for _ in range(2):
            self.check(self.table, self.rows, self.names)
        if self.snapshots:
            snapshot, rows, names = self.random.choice(self.snapshots)
            self.check(snapshot["t"], rows, names)

    def check(self, table, rows: dict[int, Row], names: list[str]) -> None:
        narrow = [name for name in names if name != "s"]
        chosen = [narrow, *([n] for n in narrow[1:]), names][self.random.randrange(len(narrow) + 1)]
        found = table.scan(columns=chosen).read_all()
        found.validate(full=True)
        wanted = sorted(repr({name: row[name] for name in chosen}) for row in rows.values())
        assert sorted(map(repr, found.to_pylist())) == wanted
        few = table.scan(columns=["id"], filter="id < 40").read_all()["id"].to_pylist()
        assert sorted(few) == sorted(key for key in rows if key < 40)


@pytest.fixture(params=[1 << 20, 1 << 30], ids=["spilling", "roomy"])
def db(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
    options = {"memory_bytes_max": request.param, "memtable_bytes_max": 8192}
    with open_store(tmp_path / "db", fake_env(), **options) as db:
        yield db


@pytest.mark.parametrize("seed", range(4))
def test_every_scan_shows_its_seq_whoever_scanned_before(
    db: Store, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images_module, "BLOCK_ROWS", 64)
    monkeypatch.setattr(images_module, "_DEAD_MIN", 16)
    made = count_images(monkeypatch)
    life = Life(db, seed)
    for _ in range(60):
        life.step()
        life.check_all()
    assert made["carried"] > 10


def count_images(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    counts = {"carried": 0}
    at = Image.at

    def counted(self: Image, *given) -> Image:
        counts["carried"] += 1
        return at(self, *given)

    monkeypatch.setattr(Image, "at", counted)
    return counts


def images_of(db: Store, name: str = "t") -> Images:
    view = db._core.state().view
    (table,) = [t for t in view.catalog.tables if t.names[-1].name == name]
    return view.levels[table.incarnations[-1].id].images


def merged(db: Store, rows: int = 1000) -> st.Table:
    table = db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
    table.upsert(pa.table({"id": range(rows), "v": [1] * rows}))
    db.checkpoint()
    db.merge()
    return table


def total(table) -> int:
    return sum(sum(b["v"].to_pylist()) for b in table.scan(columns=["v"]))


def heat(table: st.Table) -> None:
    table.upsert({"id": 0, "v": 1})
    for _ in range(HOT_SCANS):
        assert total(table) == table.count()


def test_a_column_without_rows_over_its_base_needs_no_image(db: Store) -> None:
    table = merged(db)
    for _ in range(3 * HOT_SCANS):
        assert total(table) == 1000
    assert images_of(db)._kept == ()


def test_a_hot_column_has_an_image_that_serves_one_seq(db: Store) -> None:
    table = merged(db)
    heat(table)
    (image,) = images_of(db)._kept
    assert image.seq == db.seq
    old = db.snapshot()
    table.upsert({"id": 5, "v": 11})
    assert total(table) == 1010
    assert [each.seq for each in images_of(db)._kept] == [db.seq, image.seq]
    assert total(old["t"]) == 1000
    with db.transaction() as tx:
        tx["t"].upsert({"id": 6, "v": 21})
        assert total(tx["t"]) == 1030
        tx.rollback()
    assert total(table) == 1010


def test_an_image_is_carried_on_to_the_seq_of_its_reader_and_no_further(db: Store) -> None:
    table = merged(db)
    heat(table)
    (image,) = images_of(db)._kept
    seqs = [table.upsert({"id": 5, "v": value}).seq for value in (11, 21)]
    state = db._core.state()
    (definition,) = state.view.catalog.tables
    for seq, wanted in zip(seqs, (1010, 1020), strict=True):
        reader = db._core.readers.open(state.view, definition, seq)
        assert isinstance(reader, KeyedReader)
        for _ in range(2):
            found = carried(reader.levels, seq, image)
            assert found.seq == seq
            fields = reader.table_schema.fields(["v"])
            batches = found.batches([reader.table_schema.ids["v"]], fields)
            assert sum(sum(batch["v"].to_pylist()) for batch in batches) == wanted


def test_an_image_lives_through_flushes_folds_and_optimizes(db: Store) -> None:
    table = merged(db)
    heat(table)
    for step, do in enumerate([db.checkpoint, db.merge, db.optimize, db.checkpoint, db.merge] * 2):
        table.upsert({"id": step, "v": 1001})
        table.upsert({"id": 5000 + step, "v": 1})
        do()
        assert images_of(db)._kept, step
        assert images_of(db)._kept[0].seq >= min(
            levels.storage.merged_seq for levels in db._core.state().view.levels.values()
        )
        table.upsert({"id": 999, "v": 2})
        assert total(table) == 1000 + (step + 1) * 1001 + 1


def test_a_transaction_at_the_same_seq_takes_no_image_from_scans(db: Store) -> None:
    table = merged(db)
    heat(table)
    with db.transaction() as tx:
        tx["t"].upsert({"id": 1, "v": 2})
    with db.transaction() as tx:
        assert tx["t"].get(1) == {"id": 1, "v": 2}
        assert total(table) == 1001
    assert images_of(db)._kept[0].seq == db.seq


def test_a_reader_behind_all_images_makes_none_and_drops_none(db: Store) -> None:
    table = merged(db)
    heat(table)
    state = db._core.state()
    (definition,) = state.view.catalog.tables
    for value in (2, 3, 4):
        table.upsert({"id": 0, "v": value})
        assert total(table) == 999 + value
    kept = images_of(db)._kept
    late = db._core.readers.open(state.view, definition, state.visible)
    assert isinstance(late, KeyedReader)
    assert image_for(late.levels, late.seq, ["v"], late.scan) is None
    carry_images(late.levels, late.seq, images_of(db))
    assert images_of(db)._kept == kept


def test_an_image_of_an_older_base_serves_no_reader_of_a_newer_one(db: Store) -> None:
    table = db.create_table("t", {"id": "int64", "v": "int64", "w": "int64"}, primary_key="id")
    table.upsert(pa.table({"id": range(1000), "v": [1] * 1000, "w": [1] * 1000}))
    db.checkpoint()
    db.merge()
    table.upsert({"id": 0, "v": 1, "w": 1})
    for _ in range(HOT_SCANS):
        assert total(table) == 1000
    state = db._core.state()
    (definition,) = state.view.catalog.tables
    late = db._core.readers.open(state.view, definition, state.visible)
    assert isinstance(late, KeyedReader)
    table.upsert({"id": 5, "v": 11, "w": 1})
    db.checkpoint()
    db.merge()
    for _ in range(HOT_SCANS):
        image_for(late.levels, late.seq, ["w"], late.scan)
    assert images_of(db)._kept[0].seq == late.seq, "it has more columns than the newer one"
    table.upsert({"id": 6, "v": 21, "w": 1})
    assert total(table) == 1030


def test_a_column_of_one_transaction_is_not_that_of_another(db: Store) -> None:
    table = merged(db)
    heat(table)
    first, second = db.transaction(), db.transaction()
    first["t"].add_column("w", "float64")
    second["t"].add_column("w", "bool")
    for tx, kind in ((first, pa.float64()), (second, pa.bool_())):
        for _ in range(HOT_SCANS + 1):
            found = tx["t"].scan(columns=["w"]).read_all()
            assert found.schema.field("w").type == kind
            assert found["w"].null_count == 1000
    first.rollback()
    second.commit()
    table.upsert({"id": 1, "v": 1, "w": True})
    check_flags(table, 999)
    db.checkpoint()
    db.merge()
    table.upsert({"id": 2, "v": 1, "w": False})
    check_flags(table, 998)


def check_flags(table: st.Table, nulls: int) -> None:
    for _ in range(HOT_SCANS + 1):
        found = table.scan(columns=["w"]).read_all()["w"]
        assert (found.null_count, found.to_pylist().count(True)) == (nulls, 1)


def test_an_image_that_nobody_asks_for_is_dropped(db: Store) -> None:
    table = merged(db)
    heat(table)
    assert images_of(db).nbytes
    for key in range(IDLE_VIEWS_MAX + 1):
        table.upsert({"id": key, "v": 1})
        db.checkpoint()
    assert images_of(db).nbytes == 0


def test_truncated_rows_leave_no_image(db: Store) -> None:
    table = merged(db)
    heat(table)
    before = images_of(db)
    table.truncate()
    assert total(table) == 0
    assert images_of(db) is not before
    table.upsert({"id": 1, "v": 7})
    db.checkpoint()
    assert before.nbytes == 0
    assert total(table) == 7


def test_images_are_memory_that_is_counted_and_bounded(tmp_path: Path) -> None:
    with open_store(tmp_path / "db", fake_env(), memory_bytes_max=1 << 20) as db:
        table = merged(db, 10_000)
        heat(table)
        for _ in range(HOT_SCANS):
            total(table)
        assert images_of(db).nbytes == 0, "two times 200 kB do not fit in a quarter of a MiB"
    with open_store(tmp_path / "db2", fake_env(), memory_bytes_max=4 << 20) as db:
        table = merged(db, 10_000)
        heat(table)
        assert 200_000 <= images_of(db).nbytes < 220_000
        assert db.status().memory.images == images_of(db).nbytes
        assert db._core.readers._taken() >= images_of(db).nbytes


def test_images_of_few_seqs_are_kept(db: Store) -> None:
    table = merged(db)
    heat(table)
    for value in range(2, 9):
        table.upsert({"id": 0, "v": value})
        assert total(table) == 999 + value
    assert len(images_of(db)._kept) == KEPT_MAX


def test_scans_beside_writers_and_maintenance_show_whole_commits(db: Store) -> None:
    table = merged(db, 200)
    heat(table)

    def scan(columns: list[str]) -> None:
        found = table.scan(columns=columns).read_all()
        assert found.num_rows == 200
        assert len({*found["v"].to_pylist()}) == 1

    def maintain() -> None:
        db.checkpoint()
        db.merge()

    def write() -> None:
        for value in range(2, 120):
            rows = pa.table({"id": range(200), "v": [value] * 200})
            table.upsert(rows if value % 2 else rows.to_pylist())

    reads = [partial(scan, columns) for columns in (["v"], ["v"], ["v", "id"])]
    beside(write, [*reads, maintain])
    assert images_of(db)._kept


def beside(first: Callable[[], None], others: list[Callable[[], None]]) -> None:
    """Do the first while threads do each of the others again and again; none may fail."""
    is_over, failures = threading.Event(), list[Exception]()

    def again(call: Callable[[], None]) -> None:
        try:
            while not is_over.is_set():
                call()
        except Exception as error:  # noqa: BLE001 - raised by the test
            failures.append(error)

    threads = [threading.Thread(target=again, args=(call,)) for call in others]
    for thread in threads:
        thread.start()
    try:
        first()
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
