"""A statement that has a deadline ends by it, also where Lance has no row to give."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from siltstone.errors import RequestError
from siltstone.formats.manifest import Pin
from siltstone.process.deadline import Deadline, within
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.lance.read import pinned
from siltstone.storage.lance.read.pinned import LancePinned
from siltstone.storage.tables.store_tables import Tables

FOLDER = "tables/t-1/base"
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
FOREVER = Deadline(1, lambda: False)


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tables:
    """Tables whose scans are done part by part."""
    monkeypatch.setattr(pinned, "PIECE_BYTES", 1)
    return lance_tables(tmp_path, RealFiles())


@pytest.fixture
def pin(tables: Tables) -> Pin:
    """Ten parts of ten rows."""
    pin = tables.writer.create(FOLDER, SCHEMA)
    for first in range(0, 100, 10):
        pin = tables.writer.append(pin, [pa.record_batch([range(first, first + 10)], SCHEMA)])
    return pin


def opened(tables: Tables, pin: Pin) -> LancePinned:
    table = tables.reader.open(pin)
    assert isinstance(table, LancePinned)
    list(table.scan())  # files are checked at the first use; that is looked at elsewhere
    return table


def test_a_scan_that_finds_nothing_is_given_up_between_two_parts(tables: Tables, pin: Pin) -> None:
    table, asked = opened(tables, pin), itertools.count()
    with (
        within(Deadline(7, lambda: next(asked) >= 4)),
        pytest.raises(RequestError, match="longer than 7 s"),
    ):
        list(table.scan(prefilter="id < 0"))
    assert next(asked) == 5, "it went on after its deadline"
    assert list(table.scan(prefilter="id < 0")) == []


@pytest.mark.usefixtures("tables")
def test_the_check_of_a_tables_files_is_given_up_too(pin: Pin, tmp_path: Path) -> None:
    table, asked = lance_tables(tmp_path, RealFiles()).reader.open(pin), itertools.count()
    with within(Deadline(7, lambda: next(asked) >= 4)), pytest.raises(RequestError, match="7 s"):
        table.scan()
    assert next(asked) == 5


@pytest.mark.parametrize("prefilter", [None, "id % 7 = 0", "id >= 35 AND id < 62"])
@pytest.mark.parametrize("limit", [None, 3, 13])
@pytest.mark.parametrize("positions", [False, True])
def test_a_scan_in_pieces_gives_the_same_rows_in_the_same_order(
    tables: Tables, pin: Pin, prefilter: str | None, limit: int | None, positions: bool
) -> None:
    table = opened(tables, pin)
    options = {"prefilter": prefilter, "limit": limit, "positions": positions, "within": (20, 90)}
    plain = pa.Table.from_batches(table.scan(**options))
    with within(FOREVER):
        pieces = pa.Table.from_batches(table.scan(**options))
    assert pieces.equals(plain)
    assert np.all(np.diff(pieces["id"]) > 0)
