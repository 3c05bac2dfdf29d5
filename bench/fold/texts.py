"""Texts as keys: what each step of a table's life takes more than with whole numbers as keys.

Two loads of half of the rows, the second in any order, then deletes of a tenth: the keys are whole
numbers in one table, and texts of 18 characters, made of the same numbers, in the other.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import siltstone as st
from bench.fold.rows import SCHEMA, apart, rows

_compute: Any = pc
KEYS: dict[str, Callable[[np.ndarray], pa.Array]] = {
    "numbers": pa.array,
    "texts": lambda keys: _compute.binary_join_element_wise(
        "key-", _compute.utf8_lpad(pa.array(keys).cast(pa.string()), 14, "0"), ""
    ),
}


def texts(root: Path, given: argparse.Namespace) -> None:
    """Print the microseconds of processor time of each row, step by step."""
    for kind in KEYS:
        apart(_life, root / kind, kind, given.rows)


def _life(root: Path, kind: str, count: int) -> None:
    random, make, half = np.random.default_rng(1), KEYS[kind], count // 2
    with st.connect(root, background=False, memory_bytes_max=2 << 30) as db:
        fields = {**SCHEMA, "id": "int64" if kind == "numbers" else "string"}
        table = db.create_table("t", fields, primary_key="id")
        first, second = np.arange(half), half + random.permutation(half)
        loads = [rows(keys, 1).set_column(0, "id", make(keys)) for keys in (first, second)]
        deleted = make(random.choice(first, count // 10, replace=False))
        gone = pa.table({"id": deleted})
        _told(kind, "first load", half, lambda: table.upsert(loads[0]))
        _told(kind, "second load", half, lambda: table.upsert(loads[1]))
        _told(kind, "its merge", half, lambda: (db.checkpoint(), db.merge()))
        _told(kind, "deletes", len(gone), lambda: table.delete(gone))
        _told(kind, "their checkpoint", len(gone), db.checkpoint)
        _told(kind, "their merge", len(gone), db.merge)


def _told(kind: str, step: str, count: int, work: Callable[[], object]) -> None:
    before = time.process_time()
    work()
    used = (time.process_time() - before) / count * 1e6
    print(f"{kind:8} {step:17} {used:6.3f} us of a core for each of {count:,} rows", flush=True)
