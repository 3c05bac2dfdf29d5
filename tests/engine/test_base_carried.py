"""What finds rows in a base is carried over a fold; what did not fit then is read later."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from siltstone.engine.catalog.table_schema import table_schema_of
from siltstone.engine.levels.base import Base
from siltstone.engine.read.past import PastRecords
from siltstone.engine.read.reader import Readers
from siltstone.formats.manifest import Column, Pin, Schema
from siltstone.storage.manifest.manifest_store import ManifestStore
from siltstone.storage.tables.store_tables import Tables
from tests.support.fake_lance import fake_lance
from tests.support.fake_pinned import FakePinned
from tests.support.simulated_files import SimFiles

ROOT = Path("/data/shop")
TABLE_SCHEMA = table_schema_of(
    Schema(1, (Column(1, "id", "int64", nullable=False), Column(2, "v", "string")), key=(1,))
)
PART, ROW_BYTES = 500, 1_000


@pytest.fixture
def files() -> SimFiles:
    return SimFiles()


@pytest.fixture
def tables(files: SimFiles) -> Tables:
    return fake_lance(ROOT, files)


def two_parts(tables: Tables) -> Pin:
    pin = tables.writer.create("tables/t-1/base", TABLE_SCHEMA.arrow)
    for first in (0, PART):
        columns = [pa.array(range(first, first + PART)), pa.array(["x" * ROW_BYTES] * PART)]
        batch = pa.record_batch(columns, schema=TABLE_SCHEMA.arrow)
        pin = tables.writer.append(pin, [batch])
    return pin


def read_often(base: Base, first: int) -> None:
    for key in range(first, first + 100):
        assert base.find(key) == {"id": key, "v": "x" * ROW_BYTES}


def test_rows_that_do_not_fit_beside_those_of_the_base_before_are_resident_later(
    files: SimFiles, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = PastRecords(ManifestStore(files, ROOT))
    bound = 5 * PART * ROW_BYTES // 2  # for the rows of two parts, not of three
    readers = Readers(tables.reader, tables.keys, records, index_bytes_max=bound)
    pin = two_parts(tables)
    old = readers.base_of(pin, TABLE_SCHEMA)
    read_often(old, 0)
    folded = tables.rewriter.fold(pin, drop=np.arange(PART // 2), batches=(), compact_below=0)
    new = readers.base_of(folded, TABLE_SCHEMA)
    new.carry(old)
    del old
    read_often(new, 300)
    with monkeypatch.context() as patch:
        patch.setattr(FakePinned, "take", None)
        read_often(new, 600)


def test_rows_that_bases_share_over_folds_count_once(
    files: SimFiles, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = PastRecords(ManifestStore(files, ROOT))
    bound = 3 * PART * ROW_BYTES  # for the rows of two parts and of what two folds add
    readers = Readers(tables.reader, tables.keys, records, index_bytes_max=bound)
    pin = two_parts(tables)
    bases = [readers.base_of(pin, TABLE_SCHEMA)]
    read_often(bases[0], 0)
    for first in (2 * PART, 2 * PART + 1):
        batch = pa.record_batch([pa.array([first]), pa.array(["new"])], schema=TABLE_SCHEMA.arrow)
        pin = tables.rewriter.fold(pin, drop=np.zeros(0, int), batches=[batch], compact_below=0)
        bases.append(readers.base_of(pin, TABLE_SCHEMA))
        bases[-1].carry(bases[-2])
    with monkeypatch.context() as patch:
        patch.setattr(FakePinned, "take", None)
        read_often(bases[-1], 600)
