"""ranges: pages of 100 rows by key, of 10 M rows and of 100,000, in processor time.

The rows of the large tables do not fit in memory, those of the small ones are there; files are in
the page cache. Tables in order got their keys in their order, so that neighbours lie side by side,
the others in none. Texts as keys begin with 30 equal bytes. Each page begins at another key. "SQL"
is the next 50 rows behind a key, with a text that was not seen before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import siltstone as st
from bench import data
from bench.workload import Metrics, Place

_LARGE, _SMALL = 10_000_000, 100_000
_REPEATS, _WARM = 200, 100
_PAGE = 100
_SLICE_ROWS = 1_000_000
_PATH = "s3://bucket/a/path/of/thirty/0"
_compute: Any = pc


class _Table(NamedTuple):
    rows: int
    is_ordered: bool = False
    is_text: bool = False

    def key(self, number: int) -> int | str:
        return f"{_PATH}{number:010}" if self.is_text else number


_TABLES = {
    "large": _Table(_LARGE),
    "ordered": _Table(_LARGE, is_ordered=True),
    "small": _Table(_SMALL),
    "texts": _Table(_LARGE, is_ordered=True, is_text=True),
    "texts, small": _Table(_SMALL, is_ordered=True, is_text=True),
}


class Ranges:
    name = "ranges"
    title = "pages by key"

    def prepare(self, peer: Place) -> None:
        for label, table in _TABLES.items():
            _fill(_path(peer, label), table, peer.sizes.rows(table.rows))

    def measure(self, peer: Place, turn: int) -> Metrics:
        rng = np.random.default_rng(turn)
        found: Metrics = {}
        for label, table in _TABLES.items():
            most = peer.sizes.rows(table.rows) - _PAGE
            keys = rng.integers(0, most, _REPEATS + _WARM).tolist()
            with st.connect(_path(peer, label), background=False) as db:
                page, sql = partial(_page, db["accounts"], table), partial(_sql_page, db, table)
                found[f"{label}: {_PAGE} rows ms"] = _mean_ms(page, keys)
                found[f"{label}: SQL ms"] = _mean_ms(sql, keys[: _WARM + 20])
        for large, small in (("large", "small"), ("texts", "texts, small")):
            times = (found[f"{label}: {_PAGE} rows ms"] for label in (large, small))
            found[f"{large} / small"] = next(times) / next(times)
        return found


def _path(peer: Place, label: str) -> Path:
    return peer.path.with_name(f"{peer.path.name}-{label.replace(', ', '-')}")


def _fill(path: Path, table: _Table, count: int) -> None:
    """Write the rows in stretches of `_LARGE`, so that memory does not grow with the table."""
    fields = data.ACCOUNTS
    if table.is_text:
        fields = fields.set(0, pa.field("id", pa.string(), nullable=False))
    ids = np.arange(count, dtype=np.int64)
    if not table.is_ordered:
        np.random.default_rng(1).shuffle(ids)
    with st.connect(path, background=False) as db:
        accounts = db.create_table("accounts", fields, primary_key="id")
        for first in range(0, count, _LARGE):
            rows = data.accounts(ids[first : first + _LARGE], seed=1)
            accounts.upsert(_with_text_keys(rows, fields) if table.is_text else rows)
            db.checkpoint()
        db.merge()


def _with_text_keys(rows: pa.Table, fields: pa.Schema) -> pa.Table:
    slices = (rows["id"].slice(at, _SLICE_ROWS) for at in range(0, rows.num_rows, _SLICE_ROWS))
    texts = [_texts(part) for part in slices]
    return rows.set_column(0, fields.field(0), pa.chunked_array(texts, pa.string()))


def _texts(numbers: pa.ChunkedArray) -> pa.Array:
    digits = _compute.utf8_lpad(numbers.cast(pa.string()), 10, "0")
    return pa.concat_arrays(_compute.binary_join_element_wise(_PATH, digits, "").chunks)


def _page(table: st.Table, kind: _Table, key: int) -> int:
    return table.range(kind.key(key), kind.key(key + _PAGE)).read_all().num_rows


def _sql_page(db: st.Store, kind: _Table, key: int) -> int:
    query = f"SELECT * FROM accounts WHERE id > {kind.key(key)!r} ORDER BY id LIMIT 50"
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
