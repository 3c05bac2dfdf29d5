"""A diff of a table without a key compares the values that are stored, inside of others, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import siltstone as st

_VALUES = {
    "time64[ns]": (pa.time64("ns"), 1, 2),
    "duration[ns]": (pa.duration("ns"), 1, 2),
    "timestamp[ns]": (pa.timestamp("ns"), 1, 2),
    "year 33658": (pa.timestamp("s"), 10**12, 10**12 + 1),
    "date": (pa.date32(), 1, 2),
}


def _nested(kind: pa.DataType, shape: str, value: int) -> pa.Array:
    stored = pa.array([value], pa.int64() if kind.bit_width == 64 else pa.int32()).view(kind)
    offsets: Any = pa.array([0, 1], pa.int32())
    if shape == "list":
        return pa.ListArray.from_arrays(offsets, stored)
    if shape == "fixed list":
        return pa.FixedSizeListArray.from_arrays(stored, 1)
    if shape == "map":
        return pa.MapArray.from_arrays(offsets, pa.array(["k"]), stored)
    return pa.StructArray.from_arrays([pa.ListArray.from_arrays(offsets, stored)], ["a"])


@pytest.mark.parametrize("shape", ["list", "fixed list", "struct", "map"])
@pytest.mark.parametrize("name", _VALUES)
def test_values_within_others_differ_as_they_are_stored(
    tmp_path: Path, name: str, shape: str
) -> None:
    kind, old, new = _VALUES[name]
    rows = [pa.table({"id": [1], "c": _nested(kind, shape, value)}) for value in (old, new)]
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", rows[0].schema)
        table.append(rows[0])
        before = db.seq
        table.overwrite(rows[0])
        assert (db.diff(before)["t"].added, db.diff(before)["t"].removed) == (0, 0)
        table.overwrite(rows[1])
        assert (db.diff(before)["t"].added, db.diff(before)["t"].removed) == (1, 1)


@pytest.mark.parametrize("key", [(), "id"])
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_one_nan_is_as_another(tmp_path: Path, name: str, key: str | tuple[()]) -> None:
    nans = np.array([np.nan, -np.nan], name)
    assert list(np.signbit(nans)) == [False, True]
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", {"id": "int64", "c": name}, key)
        write = table.upsert if key else table.overwrite
        write(pa.table({"id": [1], "c": pa.array(nans[:1])}))
        before = db.seq
        write(pa.table({"id": [1], "c": pa.array(nans[1:])}))
        found = db.diff(before)["t"]
        assert (found.added, found.removed, found.changed) == (0, 0, 0)
