"""Each table: work on all tables that is done for each by itself when it fails for all.

What is wrong with one table, whatever it is, leaves no other one out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TypeVar

from siltstone.engine.catalog import catalog as catalogs
from siltstone.errors import ReplacedError, SiltstoneError, TableNotFoundError
from siltstone.formats.manifest import Record
from siltstone.storage.manifest.manifest_store import ManifestStore

R = TypeVar("R")


def isolated(
    manifests: ManifestStore,
    table: int | None,
    work: Callable[[int | None, Record], R],
    sum_of: Callable[[R, R], R],
) -> R:
    """Do `work` for one table (an id), or for all (None); return its result, or the sum of them.

    `work` is given the record that was the newest when it all began: what it reads must follow it.

    Raises:
        SiltstoneError: What `work` raises for a table. It is done for the others.
        ReplacedError: Another store is at the path by now: nothing more is done.
    """
    known = manifests.newest()
    try:
        return work(table, known)
    except SiltstoneError as error:
        if table is not None or isinstance(error, ReplacedError):
            raise
        whole = error
    done, failed = list[R](), list[SiltstoneError]()
    newest = manifests.newest()
    manifests.require_follows(known, newest)
    for each in filter(catalogs.is_alive, newest.catalog.tables):
        try:
            done.append(work(each.id, known))
        except TableNotFoundError:
            continue  # it was dropped meanwhile
        except ReplacedError:
            raise
        except SiltstoneError as error:
            failed.append(error)
    if failed or not done:
        raise failed[0] if failed else whole
    return reduce(sum_of, done)
