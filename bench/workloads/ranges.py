"""ranges: pages of 100 rows by key, of 10 M rows and of 100,000, in processor time.

The rows of the large tables do not fit in memory, those of the small one are there; files are in
the page cache. One large table got its keys in their order, so that neighbours lie side by side,
the others in none. Each page begins at another key. "SQL" is the next 50 rows behind a key, with a
text that was not seen before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

import siltstone as st
from bench import data
from bench.workload import Metrics, Place

_LARGE, _SMALL = 10_000_000, 100_000
_REPEATS, _WARM = 200, 100
_PAGE = 100


class Ranges:
    name = "ranges"
    title = "pages by key"

    def prepare(self, peer: Place) -> None:
        large, small = peer.sizes.rows(_LARGE), peer.sizes.rows(_SMALL)
        _fill(_path(peer, "large"), data.base(large))
        _fill(_path(peer, "ordered"), data.accounts(np.arange(large, dtype=np.int64), seed=1))
        _fill(_path(peer, "small"), data.base(small))

    def measure(self, peer: Place, turn: int) -> Metrics:
        rng = np.random.default_rng(turn)
        found: Metrics = {}
        for label, full in (("large", _LARGE), ("ordered", _LARGE), ("small", _SMALL)):
            keys = rng.integers(0, peer.sizes.rows(full) - _PAGE, _REPEATS + _WARM).tolist()
            with st.connect(_path(peer, label), background=False) as db:
                found[f"{label}: {_PAGE} rows ms"] = _mean_ms(partial(_page, db["accounts"]), keys)
                found[f"{label}: SQL ms"] = _mean_ms(partial(_sql_page, db), keys[: _WARM + 20])
        found["large / small"] = found[f"large: {_PAGE} rows ms"] / found[f"small: {_PAGE} rows ms"]
        return found


def _path(peer: Place, label: str) -> Path:
    return peer.path.with_name(f"{peer.path.name}-{label}")


def _fill(path: Path, rows: pa.Table) -> None:
    with st.connect(path, background=False) as db:
        db.create_table("accounts", data.ACCOUNTS, primary_key="id").upsert(rows)
        db.checkpoint()
        db.merge()


def _page(table: st.Table, key: int) -> int:
    return table.range(key, key + _PAGE).read_all().num_rows


def _sql_page(db: st.Store, key: int) -> int:
    query = f"SELECT * FROM accounts WHERE id > {key} ORDER BY id LIMIT 50"
    return db.sql(query).to_arrow().num_rows


def _mean_ms(read: Callable[[int], int], keys: list[int]) -> float:
    """Return the processor time of a page, all threads together."""
    for key in keys[:_WARM]:
        if not read(key):
            message = f"no rows from key {key} on"
            raise LookupError(message)
    begun = time.process_time()
    for key in keys[_WARM:]:
        read(key)
    return 1e3 * (time.process_time() - begun) / len(keys[_WARM:])
