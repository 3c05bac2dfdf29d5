"""What travels between a joined process and the owner arrives as what it was."""

from __future__ import annotations

import contextlib
import datetime as dt
import inspect
import zoneinfo
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltstone import errors
from siltstone.errors import RequestError, SiltstoneError
from siltstone.joined.values import decode, encode, error_fields, raised

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.decimals(allow_nan=False),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.datetimes(),
    st.datetimes(timezones=st.just(dt.UTC)),
    st.datetimes(timezones=st.just(zoneinfo.ZoneInfo("Europe/Berlin"))),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.text(), inner, max_size=4),
        st.dictionaries(st.integers(), inner, max_size=4),
    ),
    max_leaves=12,
)


def same(left: object, right: object) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    return left == right


@given(VALUES)
def test_a_value_arrives_with_its_type(value: object) -> None:
    assert same(decode(encode(value)), value)


@pytest.mark.parametrize(
    "value",
    [
        2**63 - 1,
        -(2**63),
        2**64,
        np.int64(2**62 + 1),
        np.float32(1.1),
        np.datetime64("2026-11-20T10:00:00.123456789"),
        np.bool_(True),
        pd.Timestamp(1_234_567_890_123_456_789),
        pd.Timestamp(1_234_567_890_123_456_789, tz="Europe/Berlin"),
        pd.Timestamp("2026-01-01 12:00"),
        pd.Timestamp("2026-01-01 12:00").as_unit("s"),
        pd.Timestamp("2026-01-01 12:00", tz="Europe/Berlin").as_unit("ms"),
        pa.scalar(1, pa.int8()),
        pa.decimal128(20, 3),
        pa.field("x", pa.string(), nullable=False),
        pa.schema([pa.field("x", pa.list_(pa.int8())), pa.field("y", pa.timestamp("ns", "UTC"))]),
        dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
        dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=45))),
        Path("/a/b"),
        Decimal("1.10"),
        "",
    ],
    ids=repr,
)
def test_scalars_of_libraries_arrive_with_their_types(value: object) -> None:
    assert same(decode(encode(value)), value)


def test_a_time_that_is_none_arrives_as_that() -> None:
    assert decode(encode(pd.NaT)) is pd.NaT


def test_rows_arrive_as_a_table() -> None:
    table = pa.table({"a": [1, None], "b": [Decimal("1.5"), None]})
    for rows in (table, table.to_batches()[0], table.to_reader(), pd.DataFrame({"a": [1, 2]})):
        arrived = decode(encode(rows))
        assert isinstance(arrived, pa.Table)
        assert arrived.num_rows == 2


def test_a_filter_of_arrow_arrives_as_the_same_filter() -> None:
    wanted = (pc.field("a") > 3) & pc.field("b").isin(["x"])
    assert decode(encode(wanted)).equals(wanted)


def test_what_does_not_travel_is_refused_by_name() -> None:
    for value in (object(), lambda: None, [1, {"x": object()}], "\ud800"):
        with pytest.raises(RequestError, match="cannot be sent"):
            encode(value)


@given(st.binary(max_size=64))
def test_any_bytes_are_a_value_or_refused(body: bytes) -> None:
    with contextlib.suppress(RequestError):
        decode(body)


def every_error() -> Iterator[SiltstoneError]:
    samples: dict[str, object] = {
        "table": "t",
        "key": (dt.date(2026, 1, 1), 2**60, Decimal("1.50")),
        "wanted": "seq 5",
        "path": Path("/data/x"),
        "host": "here",
        "endpoint": "/run/x.sock",
        "reason": "why",
        "transaction_id": "3-7",
        "differing": {"memory_bytes_max": (1, 2)},
        "found": 9,
        "known": 1,
    }
    for kind in vars(errors).values():
        if inspect.isclass(kind) and issubclass(kind, SiltstoneError):
            if "__init__" not in vars(kind):
                yield kind("what went wrong")
                continue
            names = list(inspect.signature(kind).parameters)
            yield kind(**{name: samples.get(name, 10 + at) for at, name in enumerate(names)})


@pytest.mark.parametrize("error", list(every_error()), ids=lambda error: type(error).__name__)
def test_every_error_arrives_as_itself(error: SiltstoneError) -> None:
    arrived = raised(decode(encode(error_fields(error))))
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)


def test_an_error_of_a_newer_owner_is_at_least_a_siltstone_error() -> None:
    arrived = raised({"class": "NewerError", "message": "what", "fields": {"x": 1}})
    assert type(arrived) is SiltstoneError
    assert str(arrived) == "what"


def test_what_an_error_holds_and_cannot_travel_arrives_as_its_text() -> None:
    error = errors.DuplicateKeyError("t", object())
    arrived = raised(decode(encode(error_fields(error))))
    assert arrived.key.startswith("<object object")
