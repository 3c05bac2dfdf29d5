"""Two values differ if they read differently; NaN is NaN, and a null is a null."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from siltstone.query.diff.values import differing

NAN = float("nan")
INNER = pa.struct([("f", pa.float64()), ("l", pa.list_(pa.int64()))])
VALUES: dict[pa.DataType, list[Any]] = {
    pa.float64(): [None, NAN, 0.0, -0.0, 1.5, math.inf],
    pa.float16(): [None, np.float16(NAN), np.float16(0.0), np.float16(-0.0), np.float16(1.5)],
    pa.int64(): [None, 0, -1, 1 << 62],
    pa.string(): [None, "", "a", "ä"],
    pa.binary(2): [None, b"ab", b"ba"],
    pa.bool_(): [None, True, False],
    pa.decimal128(10, 2): [None, 0, 1],
    pa.timestamp("ns", tz="UTC"): [None, 0, 1],
    pa.list_(pa.float64()): [None, [], [NAN], [0.0], [-0.0], [1.0, None], [None, 1.0]],
    pa.list_(pa.float32(), 2): [None, [NAN, 0.0], [NAN, -0.0], [NAN, None], [1.0, 2.0]],
    pa.list_(INNER): [None, [], [None], [{"f": NAN, "l": None}], [{"f": NAN, "l": []}]],
    INNER: [None, {"f": None, "l": None}, {"f": NAN, "l": [1]}, {"f": NAN, "l": [2]}],
    pa.map_(pa.string(), pa.float64()): [None, [], [("a", NAN)], [("a", 0.0)], [("b", None)]],
    pa.large_list(pa.string()): [None, [], ["a"], ["a", "b"]],
    pa.null(): [None],
}


def is_same(one: Any, other: Any) -> bool:
    """Say whether two values of Python read the same."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[k], other[k]) for k in one)
    if isinstance(one, float | np.floating) and isinstance(other, float | np.floating):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return bool(one == other) and math.copysign(1, one) == math.copysign(1, other)
    return bool(one == other)


@pytest.mark.parametrize("kind", VALUES, ids=str)
@given(data=some.data())
def test_columns_differ_where_their_values_do(kind: pa.DataType, data: some.DataObject) -> None:
    value = some.sampled_from(VALUES[kind])
    pairs = data.draw(some.lists(some.tuples(value, value), max_size=8))
    one, other = [each for each, _ in pairs], [each for _, each in pairs]
    before = data.draw(some.integers(0, 2))  # a slice of a longer array has its own offsets
    arrays = [pa.array([None] * before + each, kind).slice(before) for each in (one, other)]
    wanted = [not is_same(a, b) for a, b in zip(one, other, strict=True)]
    assert differing(*arrays).tolist() == wanted


def test_columns_of_two_types_are_compared_as_the_second() -> None:
    ints, texts = pa.array([1, 2, None], pa.int32()), pa.array(["1", "x", None])
    assert differing(ints, pa.array([1, 3, None], pa.int64())).tolist() == [False, True, False]
    assert differing(texts, pa.array([1, 2, None], pa.int64())).tolist() == [True, True, False]
