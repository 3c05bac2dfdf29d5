"""Readers are made by any thread, while others ask what those that there are hold in memory."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest

from siltstone.engine.catalog.table_schema import table_schema_of
from siltstone.engine.read.past import PastRecords
from siltstone.engine.read.reader import Readers
from siltstone.formats.manifest import Column, Pin, Schema
from siltstone.storage.manifest.manifest_store import ManifestStore
from tests.engine.seams import Threads
from tests.support.fake_lance import fake_lance
from tests.support.simulated_files import SimFiles

ROOT = Path("/data/shop")
THREADS, TURNS, ALIVE = 4, 1_000, 30


@pytest.mark.usefixtures("hasty")
def test_memory_is_counted_while_other_threads_make_readers() -> None:
    files = SimFiles()
    records = PastRecords(ManifestStore(files, ROOT))
    tables = fake_lance(ROOT, files)
    readers = Readers(tables.reader, tables.keys, records, index_bytes_max=1 << 20)
    table_schema = table_schema_of(Schema(1, (Column(1, "id", "int64", nullable=False),), key=(1,)))
    pin = Pin(1, "somewhere", size=1, xxh3="", rows=1, inventory="")

    def work(number: int) -> None:
        alive = deque[object](maxlen=ALIVE)
        for _ in range(TURNS):
            if number % 2:
                alive.append(readers.base_of(pin, table_schema))
            else:
                assert readers._bytes_left() == 1 << 20

    threads = Threads()
    for number in range(THREADS):
        threads.start(work, number)
    threads.join()
