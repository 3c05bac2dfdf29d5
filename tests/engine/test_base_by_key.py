"""Base finds the row of each key by its runs, whatever folds, compactions and merges did."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from siltstone.engine.catalog.table_schema import TableSchema, table_schema_of
from siltstone.engine.levels.base import Base
from siltstone.engine.read.past import PastRecords
from siltstone.engine.read.reader import Readers
from siltstone.formats.keys import Key, KeyCodec, KeyColumns, KeysAt
from siltstone.formats.manifest import Column, Pin, Schema
from siltstone.storage.manifest.manifest_store import ManifestStore
from siltstone.storage.tables.keys import key_cover
from tests.support.fake_lance import fake_lance
from tests.support.simulated_files import SimFiles

ROOT = Path("/data/shop")
KEYS = some.lists(some.integers(0, 30), max_size=8, unique=True)


def table_schema(kind: str) -> TableSchema:
    columns = (Column(1, "id", kind, nullable=False), Column(2, "v", "int64"))
    return table_schema_of(Schema(1, columns, key=(1,)))


class FewBits(RuleBasedStateMachine):
    """A base of a table against a dict. Codes of texts have four values, so that keys collide."""

    kind = "string"

    def __init__(self) -> None:
        super().__init__()
        self.files = SimFiles()
        self.tables = fake_lance(ROOT, self.files)
        self.readers = self.new_readers()
        self.table_schema = table_schema(self.kind)
        self.codec = self.table_schema.codec
        self.rows: dict[Key, int] = {}
        self.next = 0

    @initialize()
    def create(self) -> None:
        self.pin = self.tables.writer.create("tables/t-1/base", self.table_schema.arrow)
        self.base = self.readers.base_of(self.pin, self.table_schema)

    def new_readers(self) -> Readers:
        records = PastRecords(ManifestStore(self.files, ROOT))
        return Readers(self.tables.reader, self.tables.keys, records, index_bytes_max=1 << 20)

    def key(self, number: int) -> Key:
        return number if self.kind == "int64" else f"key {number}"

    def _became(self, pin: Pin, *, is_covered: bool, is_carried: bool) -> None:
        if pin == self.pin:
            return
        self.pin = self.tables.keys.cover(pin, self.codec) if is_covered else pin
        new = self.readers.base_of(self.pin, self.table_schema)
        if is_carried:
            new.carry(self.base)
        self.base = new

    @rule(
        upserted=KEYS, deleted=KEYS, below=some.sampled_from([0, 4]), is_covered=some.booleans(),
        is_carried=some.booleans(),
    )  # fmt: skip
    def fold(
        self, upserted: list[int], deleted: list[int], below: int, is_covered: bool,
        is_carried: bool,
    ) -> None:  # fmt: skip
        written = {self.key(n): n for n in [*deleted, *upserted]}
        codes = self.codec.codes_of([*written])
        order = np.argsort(codes, kind="stable")
        keys = [*written]
        drop = self.base.positions(codes[order], self.columns(keys, order))
        hidden = np.flatnonzero(~self.tables.reader.open(self.pin).live.bools())
        drop = np.unique(np.concatenate([drop, hidden]))
        for key in written:
            self.rows.pop(key, None)
        new = {self.key(n): self.next + at for at, n in enumerate(upserted)}
        self.next += len(upserted)
        self.rows |= new
        columns = [pa.array([*new], self.table_schema.arrow.field("id").type),
                   pa.array([*new.values()], pa.int64())]  # fmt: skip
        batch = pa.record_batch(columns, schema=self.table_schema.arrow)
        made = self.tables.rewriter.fold(self.pin, drop=drop, batches=[batch], compact_below=below)
        self._became(made, is_covered=is_covered, is_carried=is_carried)

    def columns(self, keys: list[Key], order: np.ndarray) -> KeysAt:
        def columns_at(at: np.ndarray) -> KeyColumns:
            return self.codec.columns(self.codec.batch([keys[i] for i in order[at].tolist()]))

        return columns_at

    @rule(data=some.data())
    def compact(self, data: some.DataObject) -> None:
        table = self.tables.reader.open(self.pin)
        whole = [s for s in table.spans if table.live.bools(*s).all()]
        if len(whole) != len(table.spans) or not whole:
            return
        first = data.draw(some.integers(0, len(whole) - 1))
        done = self.tables.compactor.compact(self.pin, (whole[first][0], whole[-1][1]))
        self._became(self.tables.compactor.swap(self.pin, [done]), is_covered=True, is_carried=True)

    @rule()
    def drop_the_runs_as_an_older_siltstone_does(self) -> None:
        self.pin = msgspec.structs.replace(self.pin, runs=())
        self.base = self.readers.base_of(self.pin, self.table_schema)

    @invariant()
    def every_key_has_its_row(self) -> None:
        for number in range(32):
            key = self.key(number)
            row = {"id": key, "v": self.rows[key]} if key in self.rows else None
            for _ in range(2):  # the second time from the cache
                assert self.base.find(key) == row
        assert len(self.pin.runs) <= key_cover.RUNS_MAX

    @invariant()
    def rows_that_are_read_together_are_those_of_their_keys(self) -> None:
        cold = self.new_readers().base_of(self.pin, self.table_schema)
        found = cold.find_many([self.key(number) for number in range(32)])
        all_rows = {key: {"id": key, "v": value} for key, value in self.rows.items()}
        assert found == (all_rows if cold.has_all_keys else {})

    @invariant()
    def every_living_row_is_found_among_many(self) -> None:
        keys = [self.key(number) for number in range(32)]
        codes = self.codec.codes_of(keys)
        order = np.argsort(codes)
        found = self.base.positions(codes[order], self.columns(keys, order))
        live = np.flatnonzero(self.tables.reader.open(self.pin).live.bools())
        assert np.sort(found).tolist() == live.tolist()


@pytest.mark.parametrize("kind", ["int64", "string"])
def test_base_finds_what_a_dict_finds(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Machine(FewBits):
        pass

    Machine.kind = kind
    if kind == "string":
        whole, many, of = KeyCodec.code, KeyCodec.codes, KeyCodec.codes_of
        monkeypatch.setattr(KeyCodec, "code", lambda *a: whole(*a) & 3)
        monkeypatch.setattr(KeyCodec, "codes", lambda *a: many(*a) & 3)
        monkeypatch.setattr(KeyCodec, "codes_of", lambda *a: of(*a) & 3)
    case = Machine.TestCase
    case.settings = settings(max_examples=30, stateful_step_count=15, deadline=None)
    case().runTest()


@pytest.mark.parametrize("is_covered", [False, True])
def test_a_hit_in_a_part_that_is_gone_does_not_end_the_search_in_older_runs(
    monkeypatch: pytest.MonkeyPatch, is_covered: bool
) -> None:
    """All keys have one code, so that the run of the newer part is hit for the older key."""
    monkeypatch.setattr(KeyCodec, "code", lambda *_: 3)
    for name in ("codes", "codes_of"):
        many = getattr(KeyCodec, name)
        monkeypatch.setattr(KeyCodec, name, lambda *a, many=many: many(*a) & 0 | 3)
    files, schema = SimFiles(), table_schema("string")
    tables = fake_lance(ROOT, files)
    records = PastRecords(ManifestStore(files, ROOT))
    readers = Readers(tables.reader, tables.keys, records, index_bytes_max=1 << 20)

    def folded(pin: Pin, key: str) -> Pin:
        batch = pa.record_batch([[key], [len(key)]], schema=schema.arrow)
        none = np.zeros(0, np.int64)
        return tables.rewriter.fold(pin, drop=none, batches=[batch], compact_below=0)

    pin = folded(tables.writer.create("tables/t-1/base", schema.arrow), "old")
    pin = tables.keys.cover(pin, schema.codec)
    pin = tables.keys.cover(folded(folded(pin, "newer"), "newest"), schema.codec)
    done = tables.compactor.compact(pin, tables.reader.open(pin).spans[1])
    pin = tables.compactor.swap(pin, [done])
    if is_covered:
        pin = tables.keys.cover(pin, schema.codec)
    assert len(pin.runs) == 2 + is_covered
    newer, older = tables.keys.open(pin).newest_first[-2:]
    assert [len(each.starts) for each in (newer, older)] == [1, 1]
    assert [len(each.run.find(3)) for each in (newer, older)] == [2, 1]  # one of a part that went
    base = readers.base_of(pin, schema)
    for key in ("old", "newer", "newest"):
        assert base.find(key) == {"id": key, "v": len(key)}
    assert base.find("none") is None


def test_a_cached_row_of_a_part_whose_number_is_used_again_is_not_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files, schema = SimFiles(), table_schema("int64")
    tables = fake_lance(ROOT, files)
    monkeypatch.setattr("tests.support.fake_pinned.zlib.crc32", lambda _: 7)
    records = PastRecords(ManifestStore(files, ROOT))
    readers = Readers(tables.reader, tables.keys, records, index_bytes_max=1 << 20)

    def base(pin: Pin) -> Base:
        return readers.base_of(tables.keys.cover(pin, schema.codec), schema)

    def batch(value: int) -> pa.RecordBatch:
        return pa.record_batch([pa.array([1]), pa.array([value])], schema=schema.arrow)

    pin = tables.writer.append(tables.writer.create("tables/t-1/base", schema.arrow), [batch(5)])
    old = base(pin)
    assert old.find(1) == {"id": 1, "v": 5}
    # As a repair does: a base begins again, in the same dataset.
    again = tables.writer.overwrite(tables.keys.cover(pin, schema.codec), schema.arrow, [batch(6)])
    assert not again.runs
    new = base(again)
    new.carry(old)
    assert new.find(1) == {"id": 1, "v": 6}
