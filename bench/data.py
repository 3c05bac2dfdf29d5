"""Data: the tables, and rows for them that look like no other row.

    accounts(id int64 key, balance int64, name string, updated timestamp)
    ledger(id int64 key, account int64, delta int64, note string)
    documents(id int64 key, rank int64, text string): 1 kB a row, of the memory workload

Constant columns would flatter columnar encodings, so every value is drawn.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

ACCOUNTS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("balance", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("updated", pa.timestamp("us")),
    ]
)
LEDGER = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("account", pa.int64()),
        pa.field("delta", pa.int64()),
        pa.field("note", pa.string()),
    ]
)
DOCUMENTS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("rank", pa.int64()),
        pa.field("text", pa.string()),
    ]
)
DOCUMENT_BYTES = 1_000
_TEXT_BYTES = 984
_EPOCH_US = 1_750_000_000_000_000
_EPOCH = dt.datetime(2025, 6, 15, 15, 6, 40)  # noqa: DTZ001 - the column has no zone


class Row(NamedTuple):
    """One account; `updated` in both forms, so that no peer pays for another's choice."""

    id: int
    balance: int
    name: str
    updated: dt.datetime
    updated_us: int


def as_dict(row: Row) -> dict[str, object]:
    """Return a row as siltstone takes it."""
    return {"id": row.id, "balance": row.balance, "name": row.name, "updated": row.updated}


class Move(NamedTuple):
    """One transfer of `amount`; its two ledger rows have the ids `entry` and `entry + 1`."""

    source: int
    target: int
    amount: int
    entry: int


def accounts(ids: npt.NDArray[np.int64], seed: int) -> pa.Table:
    """Return one account for each of `ids`, in that order."""
    rng = np.random.default_rng(seed)
    return pa.table(
        [
            pa.array(ids),
            pa.array(rng.integers(0, 100_000, len(ids))),
            pc.binary_join_element_wise("user-", pc.cast(pa.array(ids), pa.string()), ""),
            pa.array(_EPOCH_US + rng.integers(0, 10**12, len(ids))).cast(pa.timestamp("us")),
        ],
        schema=ACCOUNTS,
    )


def base(rows: int, seed: int = 1) -> pa.Table:
    """Return the accounts 0 .. `rows` - 1, shuffled: no store gets its keys in order."""
    ids = np.random.default_rng(seed).permutation(rows).astype(np.int64)
    return accounts(ids, seed)


def batches(base_rows: int, size: int, seed: int) -> Iterator[pa.Table]:
    """Yield batches without end: half of the keys from the base, half never seen before."""
    rng = np.random.default_rng(seed)
    fresh = base_rows + seed * 1_000_000_000
    while True:
        old = rng.choice(base_rows, min(size // 2, base_rows), replace=False)
        new = np.arange(fresh, fresh + size - len(old))
        fresh += len(new)
        yield accounts(rng.permutation(np.concatenate([old, new])).astype(np.int64), seed)


def documents(keys: int, size: int, seed: int) -> Iterator[pa.Table]:
    """Yield batches without end, of keys below `keys`; no two keys of a batch are equal."""
    rng = np.random.default_rng(seed)
    letters = rng.integers(97, 123, 2 * size * _TEXT_BYTES, dtype=np.uint8).tobytes()
    ends = pa.py_buffer(np.arange(0, (size + 1) * _TEXT_BYTES, _TEXT_BYTES, dtype=np.int32))
    while True:
        ids = rng.choice(keys, min(size, keys), replace=False).astype(np.int64)
        start = int(rng.integers(0, size * _TEXT_BYTES))
        texts = pa.StringArray.from_buffers(len(ids), ends, pa.py_buffer(letters[start:]))
        yield pa.table([ids, rng.integers(0, 1 << 40, len(ids)), texts], schema=DOCUMENTS)


def rows(base_rows: int, seed: int) -> Iterator[Row]:
    """Yield rows without end: half of the keys from the base, half never seen before."""
    rng = np.random.default_rng(seed)
    fresh = base_rows + seed * 1_000_000_000
    while True:
        old = rng.integers(0, base_rows, 1024).tolist()
        balances = rng.integers(0, 100_000, 1024).tolist()
        for turn, (key, balance) in enumerate(zip(old, balances, strict=True)):
            chosen = key
            if turn % 2:
                fresh += 1
                chosen = fresh
            updated = _EPOCH + dt.timedelta(microseconds=balance)
            yield Row(chosen, balance, f"user-{chosen}", updated, _EPOCH_US + balance)


def moves(choices: int, seed: int) -> Iterator[Move]:
    """Yield transfers without end between two different accounts of 0 .. `choices` - 1."""
    rng = np.random.default_rng(seed)
    entry = seed * 1_000_000_000
    while True:
        sources = rng.integers(0, choices, 1024).tolist()
        steps = rng.integers(1, choices, 1024).tolist()
        for source, step in zip(sources, steps, strict=True):
            entry += 2
            yield Move(source, (source + step) % choices, 1 + step % 9, entry)
