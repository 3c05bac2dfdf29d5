"""What JSON has no form for is spelled as a text, and the text is that very value again."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from siltstone.text.spelled import ERRORS, has_spelled, span_text, value_of

SPANS = some.timedeltas(dt.timedelta(days=-999_999), dt.timedelta(days=999_999))
KINDS: dict[str, tuple[pa.DataType, some.SearchStrategy[Any]]] = {
    "binary": (pa.binary(), some.binary(max_size=5)),
    "fixed": (pa.binary(3), some.binary(min_size=3, max_size=3)),
    "day": (pa.date64(), some.dates()),
    "moment": (pa.timestamp("us"), some.datetimes()),
    "time": (pa.time64("us"), some.times()),
    "span": (pa.duration("us"), SPANS),
    "sum": (pa.decimal256(76, 2), some.decimals(allow_nan=False, allow_infinity=False, places=2)),
    "list": (pa.large_list(pa.binary()), some.lists(some.none() | some.binary(max_size=3))),
    "vector": (pa.list_(pa.date32(), 2), some.lists(some.dates(), min_size=2, max_size=2)),
    "struct": (
        pa.struct([("span", pa.duration("us")), ("n", pa.int64())]),
        some.fixed_dictionaries({"span": some.none() | SPANS, "n": some.integers(0, 9)}),
    ),
    "pairs": (
        pa.map_(pa.date32(), pa.binary()),
        some.lists(some.tuples(some.dates(), some.none() | some.binary(max_size=3))),
    ),
}


@pytest.mark.parametrize("name", KINDS)
@given(some.data())
def test_a_value_is_read_as_it_was_written(name: str, data: some.DataObject) -> None:
    kind, values = KINDS[name]
    value = data.draw(some.none() | values)
    assert has_spelled(kind)
    assert value_of(msgspec.json.decode(msgspec.json.encode(value)), kind) == value


@given(some.integers(-(1 << 62), 1 << 62))
def test_a_duration_keeps_its_nanoseconds(nanos: int) -> None:
    found = value_of(span_text(nanos), pa.duration("ns"))
    exact = found if isinstance(found, np.timedelta64) else np.timedelta64(found, "ns")
    assert int(exact.astype(np.int64)) == nanos


@pytest.mark.parametrize("text", ["2026-01-02T03:04:05.123456789", "2026-01-02 03:04:05.123456789"])
def test_a_moment_keeps_its_nanoseconds(text: str) -> None:
    found = value_of(text, pa.timestamp("ns"))
    assert found == np.datetime64("2026-01-02T03:04:05.123456789", "ns")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("YQ", pa.binary()),
        ("2026-13-01", pa.date64()),
        ("2026-01-02T03:04:05.1234567891", pa.timestamp("ns")),
        ("03:04:05.1234567", pa.time64("ns")),
        ("a second", pa.duration("s")),
        ("P1DT0.1234567S", pa.duration("ns")),
        ("ten", pa.decimal256(50, 0)),
        (True, pa.decimal128(5, 0)),
        (["YQ"], pa.list_(pa.binary())),
    ],
)
def test_a_text_that_is_no_such_value_is_refused_and_never_cut(text: Any, kind: Any) -> None:
    with pytest.raises(ERRORS):
        value_of(text, kind)


def test_what_looks_as_it_is_is_left_alone() -> None:
    for value, kind in (("a", pa.string()), (1, pa.int64()), ("x", pa.int64()), ("{", pa.json_())):
        assert value_of(value, kind) == value
        assert not has_spelled(kind)
    assert value_of({"a": 1}, pa.map_(pa.string(), pa.int64())) == [("a", 1)]
    assert value_of({"odd": "YQ=="}, pa.struct([("b", pa.binary())])) == {"odd": "YQ=="}
    assert value_of("1.5", pa.decimal128(5, 1)) == Decimal("1.5")
