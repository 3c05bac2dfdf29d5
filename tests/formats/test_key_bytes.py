"""Keys as bytes compare as the keys do, whatever their columns are."""

from __future__ import annotations

import datetime as dt
import itertools
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from siltstone.formats import schema
from siltstone.formats.key_run import joined, merged
from siltstone.formats.keys import KeyCodec
from siltstone.formats.order.key_bytes import ByteKeys

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - as a column without a zone
VALUES: dict[str, tuple[pa.DataType, some.SearchStrategy[Any]]] = {
    "int8": (pa.int8(), some.integers(-128, 127)),
    "int64": (pa.int64(), some.integers(-(2**63), 2**63 - 1)),
    "uint64": (pa.uint64(), some.integers(0, 2**64 - 1)),
    "bool": (pa.bool_(), some.booleans()),
    "date": (pa.date32(), some.dates()),
    "time": (pa.timestamp("us"), some.datetimes(min_value=EPOCH.replace(year=1900))),
    "text": (pa.string(), some.text(some.sampled_from("\x00\x01aé\uffff\U00010000"), max_size=3)),
    "long": (pa.large_string(), some.text(max_size=3)),
    "bytes": (pa.binary(), some.binary(max_size=3)),
    "large": (pa.large_binary(), some.binary(max_size=3)),
    "four": (pa.binary(4), some.binary(min_size=4, max_size=4)),
    "uuid": (pa.uuid(), some.uuids()),
    "decimal": (pa.decimal128(38, 3), some.decimals(-(10**20), 10**20, places=3)),
}


def codec_of(kinds: tuple[str, ...]) -> KeyCodec:
    names = [f"k{at}" for at in range(len(kinds))]
    fields = pa.schema([pa.field(n, VALUES[k][0]) for n, k in zip(names, kinds, strict=True)])
    return KeyCodec(schema.new_schema(fields, names, schema_id=1))


def native(value: Any) -> Any:
    """Return a value that Python compares as the store orders it."""
    if isinstance(value, tuple):
        return tuple(map(native, value))
    return value.bytes if isinstance(value, uuid.UUID) else value


def check(kinds: tuple[str, ...], values: list[Any]) -> None:
    codec = codec_of(kinds)
    keys = [codec.from_user(value) for value in values]
    batch = codec.batch(keys)
    found: list[Any] = codec.ordered(codec.columns(batch)).array.to_pylist()
    assert found == [codec.ordered_key(key) for key in keys]
    assert codec.ordered(codec.columns(batch.slice(1))).array.to_pylist() == found[1:]
    for (one, low), (other, high) in itertools.combinations(zip(values, found, strict=True), 2):
        assert (native(one) < native(other)) == (low < high)
        assert (native(one) == native(other)) == (low == high)


@given(data=some.data())
@pytest.mark.parametrize("kind", VALUES)
def test_keys_of_one_column_compare_as_their_bytes(kind: str, data: Any) -> None:
    check((kind,), data.draw(some.lists(VALUES[kind][1], max_size=8)))


@given(data=some.data())
def test_keys_of_several_columns_compare_as_their_bytes(data: Any) -> None:
    kinds = tuple(data.draw(some.lists(some.sampled_from([*VALUES]), min_size=2, max_size=3)))
    few = some.tuples(*(VALUES[kind][1] for kind in kinds))
    firsts = data.draw(some.lists(few, min_size=1, max_size=4))
    mixed = [
        tuple(data.draw(some.sampled_from(c)) for c in zip(*firsts, strict=True)) for _ in kinds
    ]
    check(kinds, [*firsts, *mixed])


def test_decimals_around_nought_and_at_the_ends_are_in_order() -> None:
    most = "9" * 35 + ".999"
    check(("decimal",), [*map(Decimal, (f"-{most}", "-1", "-0.001", "0", "0.001", "1", most))])


BLOCKS = some.lists(some.lists(some.binary(max_size=2), max_size=9).map(sorted), max_size=5)


@given(runs=BLOCKS, is_turned=some.booleans())
def test_sorted_keys_are_merged_in_both_directions(
    runs: list[list[bytes]], is_turned: bool
) -> None:
    def source(keys: list[bytes]) -> Any:
        for at in range(0, len(keys), 3):
            some = ByteKeys(pa.array(keys[at : at + 3], pa.binary()))
            yield (~some if is_turned else some), np.arange(at, at + len(some), dtype=np.uint64)

    given_ = [run[::-1] if is_turned else run for run in runs]
    found = [*merged([source(run) for run in given_])]
    whole = sorted(itertools.chain(*runs), reverse=is_turned)
    if not found:
        assert not whole
        return
    keys, places = joined(found)
    assert keys.array.to_pylist() == whole
    assert sorted(places.tolist()) == sorted(n for run in runs for n in range(len(run)))
