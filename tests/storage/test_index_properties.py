"""Whatever is done to a table, a filter answers the same with its indexes and without them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from siltstone.formats.manifest import Pin
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.tables.values import POSITION, IndexSpec

FOLDER = "t"
FILTERS = (
    "k = 3",
    "k <> 3",
    "k IN (1, 5, 90)",
    "k > 5 AND k <= 9",
    "NOT (k < 7)",
    "k IS NULL",
    "k IS NOT NULL AND b = 'b2'",
    "b = 'b1' OR k = 4",
    "b IS NULL OR b >= 'b3'",
    "f = 0.0",
    "f < 1.5",
    "id = 17",
)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("k", pa.int64()),
        ("b", pa.string()),
        ("f", pa.float64()),
    ]
)
SPECS = (
    IndexSpec("k1", "k", "btree"),
    IndexSpec("b1", "b", "bitmap"),
    IndexSpec("id1", "id", "btree"),
    IndexSpec("k2", "k", "bitmap"),
)
FLOATS = (None, float("nan"), 0.0, -0.0, 1.0, float("inf"), -1e300)


class Life:
    """A table under random changes."""

    def __init__(self, root: Path, seed: int) -> None:
        self.random, self.tables = Random(seed), lance_tables(root, RealFiles())
        self.pin: Pin = self.tables.writer.create(FOLDER, SCHEMA)
        self.next_id = self.seq = 0

    def rows(self, count: int) -> pa.RecordBatch:
        some = self.random
        ids = list(range(self.next_id, self.next_id + count))
        self.next_id += count
        columns = [
            ids,
            [some.choice((None, *range(12))) for _ in ids],
            [some.choice((None, "b1", "b2", "b3")) for _ in ids],
            [some.choice(FLOATS) for _ in ids],
        ]
        return pa.record_batch(columns, schema=SCHEMA)

    def append(self) -> None:
        self.seq += 1
        rows, seqs = [self.rows(self.random.randint(1, 40))], (self.seq, self.seq)
        self.pin = self.tables.writer.append(self.pin, rows, seqs=seqs)

    def merge(self) -> None:
        """Drop rows and add some, as a merge does."""
        self.seq += 1
        size = min(self.pin.rows, self.random.randint(0, 20))
        drop = np.array(sorted(self.random.sample(range(self.pin.rows), size)), np.int64)
        self.pin = self.tables.rewriter.rewrite(
            self.pin,
            drop=drop,
            batches=[self.rows(self.random.randint(0, 30))],
            seqs=(self.seq, self.seq),
        )

    def optimize(self) -> None:
        spans = self.tables.reader.open(self.pin).spans
        if len(spans) > 1:
            first = self.random.randrange(len(spans) - 1)
            end = self.random.randint(first + 2, len(spans))
            within = (spans[first][0], spans[end - 1][1])
            done = self.tables.compactor.compact(self.pin, within)
            self.pin = self.tables.compactor.swap(self.pin, [done])

    def index(self) -> None:
        table = self.tables.reader.open(self.pin)
        spec = self.random.choice(SPECS)
        mine = [segment for segment in table.segments if segment.index == spec.name]
        covered = {span for segment in mine for span in segment.covered}
        open_spans = [span for span in table.spans if span not in covered]
        built = [self.tables.indexer.build(self.pin, spec, open_spans)] if open_spans else []
        gone = [segment.id for segment in mine if not segment.covered]
        self.pin = self.tables.indexer.put(self.pin, built, gone)

    def drop_index(self) -> None:
        segments = self.tables.reader.open(self.pin).segments
        if segments:
            gone = [self.random.choice(segments).id]
            self.pin = self.tables.indexer.put(self.pin, [], gone)

    def step(self) -> None:
        self.random.choice(
            [self.append, self.merge, self.optimize, self.index, self.index, self.drop_index]
        )()

    def check(self) -> None:
        table = self.tables.reader.open(self.pin)
        for wanted in FILTERS:
            with_indexes, without = (
                pa.Table.from_batches(
                    table.scan(["id"], prefilter=wanted, positions=True, indexed=indexed),
                    pa.schema([SCHEMA.field("id"), pa.field(POSITION, pa.int64(), nullable=False)]),
                )
                for indexed in (True, False)
            )
            assert with_indexes.equals(without), wanted


@pytest.mark.parametrize("seed", range(6))
def test_filters_answer_the_same_with_indexes_and_without(tmp_path: Path, seed: int) -> None:
    life = Life(tmp_path, seed)
    life.append()
    for _ in range(16):
        life.step()
        life.check()


def of_type(kind: pa.DataType, values: list[object], test: str, tmp_path: Path) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), ("x", kind)])
    repeated = values * 50
    rows = pa.record_batch([range(len(repeated)), repeated], schema=schema)
    pin = tables.writer.append(tables.writer.create(FOLDER, schema), [rows])
    plain = pa.Table.from_batches(tables.reader.open(pin).scan(["n"], prefilter=test))
    assert 0 < plain.num_rows < len(repeated)
    for name in ("btree", "bitmap"):
        spans = tables.reader.open(pin).spans
        built = tables.indexer.build(pin, IndexSpec(name, "x", name), spans)  # type: ignore[arg-type]
        made = tables.indexer.put(pin, [built])
        found = tables.reader.open(made).scan(["n"], prefilter=test, indexed=True)
        assert pa.Table.from_batches(found).equals(plain), name


MOMENT = dt.datetime(2026, 11, 21, 10, 0, 0, 123456, tzinfo=dt.UTC)
EARLY = dt.datetime(1969, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("kind", "values", "test"),
    [
        (pa.bool_(), [True, False, None], "x"),
        (pa.int8(), [-128, 0, 127, None], "x = -128"),
        (pa.uint64(), [0, 5, None], "x > 3"),
        (pa.decimal128(10, 2), [Decimal("1.10"), Decimal("-2.20"), None], "x < 0"),
        (pa.large_string(), ["", "a", "ä", None], "x = ''"),
        (pa.binary(), [b"", b"\x00", b"\xff", None], "x = X'00'"),
        (pa.date32(), [dt.date(1969, 12, 31), dt.date(2026, 1, 1), None], "x < DATE '1970-01-01'"),
        (
            pa.timestamp("us", "UTC"),
            [MOMENT, EARLY, None],
            "x < TIMESTAMP '1970-01-01T00:00:00Z'",
        ),
        (pa.time64("us"), [dt.time(1, 2, 3), dt.time(0), None], "x IS NULL"),
        (pa.float64(), [1.0, float("nan"), None], "x = 1.0"),
    ],
    ids=str,
)
def test_a_column_of_any_scalar_type_is_indexed(
    kind: pa.DataType, values: list[object], test: str, tmp_path: Path
) -> None:
    of_type(kind, values, test, tmp_path)
