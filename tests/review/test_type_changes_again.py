"""A column that was widened twice is as one that was widened once."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.formats.types.widening import widens

_ZONES: list[Any] = [None, "UTC", "+01:00"]
_KINDS = [
    *(getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)),
    pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.date64(),
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us") for zone in _ZONES),
    pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
    pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(2), pa.binary(3),
    *(pa.decimal128(digits, scale) for digits in (3, 5, 20, 38) for scale in (-2, 0, 2)),
    *(pa.decimal256(digits, scale) for digits in (5, 40, 76) for scale in (-2, 0, 2)),
]  # fmt: skip


def test_what_two_steps_reach_one_step_reaches() -> None:
    missing = [
        (old, between, new)
        for old, between, new in product(_KINDS, repeat=3)
        if old != new and widens(old, between) and widens(between, new) and not widens(old, new)
    ]
    assert missing == []


@pytest.mark.parametrize("level", ["memory", "history", "base"])
def test_bytes_of_a_fixed_size_become_large_ones_in_two_steps(tmp_path: Path, level: str) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", {"id": "int64", "c": "fixed_size_binary[2]"}, "id")
        table.insert({"id": 1, "c": b"ab"})
        if level != "memory":
            db.checkpoint()
        if level == "base":
            db.merge()
        seq = db.seq
        table.alter_column("c", type="binary")
        table.alter_column("c", type="large_binary")
        table.insert({"id": 2, "c": b"abc"})
        for settle in (lambda: None, db.checkpoint, db.merge):
            settle()
            assert table.to_arrow().column("c").to_pylist() == [b"ab", b"abc"]
            assert db.snapshot(seq=seq)["t"].to_arrow().column("c").to_pylist() == [b"ab"]
        assert db.verify(deep=True).findings == ()


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
@pytest.mark.parametrize("key", ["id", ()])
def test_a_text_whose_number_a_float_cannot_hold_is_refused(
    tmp_path: Path, kind: str, key: str | tuple[()]
) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        for name, texts in {
            "good": ["inf", "-Infinity", "+inf", "1"],
            "bad": ["1", "-1e400"],
        }.items():
            table = db.create_table(name, {"id": "int64", "c": "string"}, key)
            rows = pa.table({"id": range(len(texts)), "c": texts})
            (table.upsert if key else table.append)(rows)
        db["good"].alter_column("c", type=kind)
        with pytest.raises(st.SchemaMismatchError, match="-1e400"):
            db["bad"].alter_column("c", type=kind)
