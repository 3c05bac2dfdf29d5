"""Beside: maintenance of a store from any process, by its path alone; nobody needs to own it.

An owner that is alive needs not know: it takes over what was published when it looks for news.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from siltstone.engine.past import PastRecords
from siltstone.engine.reader import Readers
from siltstone.errors import RequestError
from siltstone.maintenance import merge_task
from siltstone.maintenance.merge import Deferred, Merged
from siltstone.maintenance.optimize import TARGET_ROWS, Execute, Optimized
from siltstone.options import resolve
from siltstone.storage.manifest_store import ManifestStore
from siltstone.wiring import Env, Maintainers, maintainers, require_store


def merge_beside(
    path: str | os.PathLike[str],
    table: str | None = None,
    *,
    execute: merge_task.Execute | None = None,
    **options: object,
) -> Merged | Deferred:
    """Merge what is flushed from any process, beside a live owner or without one; owns nothing.

    Args:
        path: As for `connect`; the store exists.
        table: One table; by default all, at one seq.
        execute: Runs the `MergeTask`s that write the rows, wherever, and gives their results in
            the same order; by default one writer here does it all.
        options: As for `connect`.

    Raises:
        RequestError, TableNotFoundError: No store, or no such table in its newest record.
        UnavailableError, CorruptionError: Nothing was changed.
    """
    return _beside(path, options).merger.merge(table, execute=execute)


def optimize_beside(
    path: str | os.PathLike[str],
    table: str | None = None,
    *,
    target_rows: int = TARGET_ROWS,
    execute: Execute | None = None,
    **options: object,
) -> Optimized | Deferred:
    """Make few large files of many small ones, from any process, as `merge_beside`.

    Args:
        path: As for `connect`; the store exists.
        table: One table; by default all, in one publish.
        target_rows: How many rows a file should have.
        execute: Runs the `CompactTask`s, wherever, and gives their results in the same order.
        options: As for `connect`.

    Raises:
        RequestError, TableNotFoundError: No store, or no such table in its newest record.
        UnavailableError, CorruptionError: Nothing was changed.
    """
    parts = _beside(path, options)
    return parts.optimizer.optimize(table, target_rows=target_rows, execute=execute)


def _beside(path: str | os.PathLike[str], options: dict[str, object]) -> Maintainers:
    root, env = root_of(path), Env()
    require_store(root, env)
    found = resolve(root, options)
    manifests = ManifestStore(env.files, root, now_us=env.now_us, new_token=env.new_token)
    tables = env.tables(root, env.files, found.verify)
    readers = Readers(tables, PastRecords(manifests), index_bytes_max=found.memory_bytes_max // 4)
    return maintainers(manifests, tables, readers)


def root_of(path: str | os.PathLike[str]) -> Path:
    """Return the directory that a caller means.

    Raises:
        RequestError: Neither a path nor a `file://` URL.
    """
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise RequestError(f"a store is a directory, not {path!r}")
    if "://" in text:
        url = urlsplit(text)
        if url.scheme != "file" or url.netloc not in {"", "localhost"}:
            raise RequestError(f"a store is a directory or a file:// URL, not {text!r}")
        text = unquote(url.path)
    return Path(text).absolute()
