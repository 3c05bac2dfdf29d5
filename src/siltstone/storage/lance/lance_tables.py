"""Lance tables: `tables.Tables` on pylance, every version private until it is promoted.

Lance is imported at the first use, by this package alone.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from siltstone.errors import RequestError
from siltstone.process.shares import LanceShares, Shares
from siltstone.storage.files.files import Files
from siltstone.storage.lance.external.client_views import LanceClientViews
from siltstone.storage.lance.external.external_tables import LanceExternal
from siltstone.storage.lance.external.public_names import LanceNames
from siltstone.storage.lance.files.dataset_files import DatasetFiles
from siltstone.storage.lance.files.reach import LanceReach
from siltstone.storage.lance.files.staged_catalog import lance_module
from siltstone.storage.lance.read.needed_paths import LancePaths
from siltstone.storage.lance.read.reader import OPEN_PARTS_MAX, LanceReader
from siltstone.storage.lance.write.commits import LanceCommits
from siltstone.storage.lance.write.compactor import LanceCompactor
from siltstone.storage.lance.write.indexer import LanceIndexer
from siltstone.storage.lance.write.writer import LanceRewriter, LanceWriter
from siltstone.storage.tables.keys.key_cover import TableKeys
from siltstone.storage.tables.store_tables import Tables

_THREADS = "LANCE_IO_THREADS"
SHARES = Shares.of(1 << 30).lance
"""Of processes that know no options of the store: tasks, and the children of an owner."""


def require_threads() -> None:
    """Refuse a number of threads with which Lance does not work in this process.

    With one thread it hangs at its first write, and with none, without a word; with what is no
    number its threads panic. It reads the variable when it first needs it.

    Raises:
        RequestError: The environment has such a number.
    """
    value = os.environ.get(_THREADS)
    if value is not None and not (value.isascii() and value.isdigit() and int(value) > 1):
        raise RequestError(
            f"{_THREADS} is {value!r} in the environment of this process, and Lance hangs with"
            " fewer than two threads: unset it, or set it to 2 or more, before the process starts"
        )


def lance_tables(
    root: Path,
    files: Files,
    verify: str = "first_use",
    *,
    token: Callable[[], str] = lambda: uuid.uuid4().hex,
    open_parts_max: int = OPEN_PARTS_MAX,
    shares: LanceShares = SHARES,
    reach: LanceReach | None = None,
) -> Tables:
    """Return the datasets of the store at `root`. One per open store; threads may share it.

    Args:
        verify: "first_use": a data file is checked before this process first reads it;
            "scrub": only by `check`.
        token: Gives names that were never used before.
        open_parts_max: How many parts the versions that are kept open may have together.
        shares: What Lance's caches and a scan may hold; `TableReader.bound` says otherwise.
        reach: How Lance reaches the files in a bucket; None: they are on this machine.

    Raises:
        RequestError: Lance would hang, see `require_threads`.
    """
    require_threads()
    data = DatasetFiles(root, files, token, reach)
    reader = LanceReader(data, verify=verify, open_parts_max=open_parts_max, shares=shares)
    commits = LanceCommits(data)
    return Tables(
        reader=reader,
        paths=LancePaths(data, reader),
        writer=LanceWriter(data, reader, commits),
        rewriter=LanceRewriter(data, reader, commits),
        compactor=LanceCompactor(data, reader, commits),
        indexer=LanceIndexer(data, reader, commits),
        names=LanceNames(data),
        external=LanceExternal(data, reader),
        clients=LanceClientViews(data, reader, commits),
        keys=TableKeys(data.root, files, data.inventories, reader, token=token),
    )


def warm_up() -> None:
    """Import Lance and plan a first scan: 1-2 s, for its own thread."""
    dataset = lance_module().write_dataset(pa.table({"warm": [1]}), "memory://siltstone-warm-up")
    dataset.to_table()
