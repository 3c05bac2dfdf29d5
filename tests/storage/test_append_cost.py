"""An append to a dataset of many parts asks Lance for each part as seldom as it can."""

from __future__ import annotations

import cProfile
import pstats
from pathlib import Path

import pyarrow as pa

from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.lance_tables import lance_tables

SCHEMA = pa.schema([pa.field("id", pa.int64())])
PARTS = 20


def test_an_append_asks_for_a_part_once_to_commit_and_once_to_open_the_version(
    tmp_path: Path,
) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    batches = pa.table([[1]], schema=SCHEMA).to_batches()
    pin = tables.writer.create("tables/t-1", SCHEMA)
    for _ in range(PARTS):
        pin = tables.writer.append(pin, batches)
    tables.reader.open(pin)
    with cProfile.Profile() as profile:
        pin = tables.writer.append(pin, batches)
        assert tables.reader.open(pin).rows == PARTS + 1
    calls = {name: count for (_, _, name), (count, *_) in pstats.Stats(profile).stats.items()}
    assert 0 < calls["metadata"] <= 2 * (PARTS + 1)
    assert calls.get("path", 0) <= 2  # of the file that was written: each answer costs a class
