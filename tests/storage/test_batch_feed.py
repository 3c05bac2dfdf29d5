"""The feed of a writer of Lance runs in threads of Rust, where no Python function has run yet."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from siltstone.errors import SchemaMismatchError
from siltstone.storage.tables.staging import BatchFeed

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
BATCH = pa.record_batch({"v": [7, None], "id": [1, 2]})

# The thread runs C alone until the feed is asked: it says that it waits, gets a batch, and says
# that it is done. Between the two there is no memory.
WITHOUT_MEMORY = """
import _thread, queue, resource, sys
from itertools import chain
from pathlib import Path
import pyarrow as pa
from siltstone.storage.tables import staging

batch = pa.record_batch({"id": [1]})
for _ in range(100):
    assert len(list(staging.BatchFeed([batch], batch.schema))) == 1
before = sys.getrefcount(staging.arranged)
source, said, rows = queue.SimpleQueue(), queue.SimpleQueue(), []

def say(word):
    return filter(None, map(said.put, [word]))

batches = chain(say("waits"), iter(source.get, None), say("done"))
_thread.start_new_thread(rows.extend, (iter(staging.BatchFeed(batches, batch.schema)),))
said.get()
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used, resource.RLIM_INFINITY))
try:
    source.put(batch)
    source.put(None)
    try:
        said.get(timeout=10)
    except queue.Empty:
        pass
finally:
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(len(rows), sys.getrefcount(staging.arranged) - before)
"""


def test_batches_are_arranged_and_empty_ones_left_out() -> None:
    feed = BatchFeed([BATCH, BATCH.slice(0, 0), BATCH.slice(1)], SCHEMA)
    table = feed.reader().read_all()
    assert table.to_pylist() == [{"id": 1, "v": 7}, {"id": 2, "v": None}, {"id": 2, "v": None}]
    assert feed.error is None


def test_what_the_callers_iterator_raises_is_kept() -> None:
    broken = pa.record_batch({"v": [7], "id": pa.array([None], pa.int64())})
    feed = BatchFeed([BATCH, broken], SCHEMA)
    with pytest.raises(Exception, match="has nulls"):
        feed.reader().read_all()
    assert isinstance(feed.error, SchemaMismatchError)


def test_a_thread_without_memory_for_frames_loses_no_function() -> None:
    """CPython 3.11 loses a reference to a function if the frame of its inlined call has no memory.

    Twice, and a function that is in use is freed. A generator has its frame elsewhere, so in a
    fresh thread the first function that it calls is the one whose frame needs memory.
    """
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MEMORY],
        text=True, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["1", "0"], done.stderr[-2_000:]
