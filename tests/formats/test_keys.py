"""A key is the same key as a user's value, in a row, in a batch and by its code."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from siltstone.errors import SchemaMismatchError
from siltstone.formats import schema
from siltstone.formats.keys import KeyCodec, newest_rows, same_keys
from tests.compat.golden_bytes import golden
from tests.formats.test_rows import VALUES

KINDS = [kind for kind in VALUES if not kind.startswith(("float", "time3", "time6"))]
COMPOSITE = {
    "a": "string", "b": "int64", "c": "decimal128(10, 2)", "d": "timestamp[us, tz=UTC]",
    "e": "bool", "f": "date32", "g": "binary",
}  # fmt: skip
KEYS = [
    ("", -1, Decimal("1.50"), dt.datetime(2020, 1, 1, tzinfo=dt.UTC), True, dt.date(1, 1, 1), b""),
    ("é", 1 << 62, Decimal("-0.01"), dt.datetime(1969, 1, 1, tzinfo=dt.UTC), False,
     dt.date(9999, 12, 31), b"\0"),
]  # fmt: skip


def codec_of(columns: dict[str, str], secret: int = 0) -> KeyCodec:
    fields = [(name, schema.parse_type(kind)) for name, kind in columns.items()]
    made = schema.new_schema(pa.schema(fields), list(columns), schema_id=1)
    return KeyCodec(msgspec.structs.replace(made, secret=secret))


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_survives_its_batch_and_keeps_its_code(kind: str) -> None:
    codec = codec_of({"k": kind})

    @given(some.lists(VALUES[kind], max_size=5))
    def survives(values: list[object]) -> None:
        keys = [codec.from_user(value) for value in values]
        batch = codec.batch(keys)
        assert codec.keys(batch) == keys
        assert [codec.to_user(key) for key in keys] == values
        assert codec.codes(batch).tolist() == codec.codes_of(keys).tolist()
        assert codec.codes(batch).tolist() == [codec.code(key) for key in keys]

    survives()


@pytest.mark.parametrize("kind", KINDS)
def test_a_code_is_the_same_of_a_key_and_of_its_batch(kind: str) -> None:
    @given(some.lists(VALUES[kind], max_size=5), some.integers(0, (1 << 64) - 1))
    def is_same(values: list[object], secret: int) -> None:
        codec = codec_of({"k": kind}, secret)
        keys = [codec.from_user(value) for value in values]
        batch = codec.batch(keys)
        found = codec.codes(batch).tolist()
        assert found == [codec.code(key) for key in keys] == codec.codes_of(keys).tolist()
        assert found == codec_of({"k": kind}).seeded_codes(batch, secret).tolist()
        assert codec.keys_of(codec.columns(batch)) == keys

    is_same()


def test_composite_keys_with_the_same_text_have_different_codes() -> None:
    columns = {"a": "string", "b": "string"}
    codec, other = codec_of(columns, 7), codec_of(columns, 8)
    keys = [("ab", "c"), ("a", "bc"), ("", "abc"), ("abc", "")]
    assert len(set(codec.codes_of(keys).tolist())) == 4
    assert codec.code(keys[0]) != other.code(keys[0])


def test_keys_are_compared_as_columns_whichever_layout_they_have() -> None:
    codec = codec_of({"a": "string", "b": "int64"})
    some_rows = codec.batch([("x", 1), ("y", 2), ("", 3)])
    texts = pa.array(["x", "y", "z"]).dictionary_encode()
    others = pa.record_batch([pa.array([1, 3, 3], pa.int32()), texts], names=["b", "a"])
    found = same_keys(codec.columns(some_rows), codec.columns(others))
    assert found.tolist() == [True, False, False]


NEAR_ONE = [
    ({"a": "string", "b": "int64"}, [("x", -1), ("x", -2), ("x", 1)]),
    ({"a": "int8", "b": "int64"}, [(-1, -1), (-1, -2), (-2, -1), (-2, -2), (-1, 0)]),
    ({"a": "date32", "b": "bool"}, [(dt.date(1969, 12, 31), True), (dt.date(1969, 12, 30), True)]),
    ({"a": "decimal128(10, 2)"}, [Decimal("-0.01"), Decimal("-0.02"), Decimal(-1)]),
    ({"a": "string"}, ["-1", "-2"]),
]


@pytest.mark.parametrize(("columns", "values"), NEAR_ONE, ids=[str([*c]) for c, _ in NEAR_ONE])
def test_keys_with_minus_one_and_with_minus_two_have_different_codes(
    columns: dict[str, str], values: list[object]
) -> None:
    codec = codec_of(columns)
    keys = [codec.from_user(value) for value in values]
    codes = codec.codes_of(keys).tolist()
    assert len(set(codes)) == len(keys)
    assert codes == [codec.code(key) for key in keys] == codec.codes(codec.batch(keys)).tolist()
    assert codec.codes_of([]).tolist() == []


@given(some.lists(some.tuples(some.text(), some.integers(-(1 << 63), (1 << 63) - 1)), max_size=5))
def test_a_composite_key_survives_its_batch(values: list[tuple[str, int]]) -> None:
    codec = codec_of({"a": "string", "b": "int64"})
    keys = [codec.from_user(value) for value in values]
    assert codec.keys(codec.batch(keys)) == keys == values
    assert codec.codes(codec.batch(keys)).tolist() == codec.codes_of(keys).tolist()


def test_a_composite_key_is_packed_in_the_log_as_it_was_committed() -> None:
    codec = codec_of(COMPOSITE)
    keys = [codec.from_user(value) for value in KEYS]
    data = msgspec.msgpack.encode(keys)
    assert data == golden("group/keys.msgpack", data)
    read = [tuple(key) for key in msgspec.msgpack.decode(golden("group/keys.msgpack", data))]
    assert [codec.to_user(key) for key in read] == KEYS


def test_a_key_is_given_as_a_tuple_a_list_or_a_dict_in_any_order() -> None:
    codec = codec_of({"b": "int64", "a": "string"})
    for given_key in ((1, "x"), [1, "x"], {"a": "x", "b": 1}, {"b": 1, "a": "x"}):
        assert codec.from_user(given_key) == (1, "x")
    for bad in (("x", 1), (1,), (1, "x", 2), {"a": "x"}, {"a": "x", "b": 1, "c": 2}, (1, None)):
        with pytest.raises(SchemaMismatchError):
            codec.from_user(bad)


def test_codes_of_integers_are_the_integers_also_above_the_sign() -> None:
    codec = codec_of({"k": "uint64"})
    assert codec.exact
    keys = [0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
    assert codec.codes(codec.batch(keys)).tolist() == [0, (1 << 63) - 1, -(1 << 63), -1]
    assert len(set(codec.codes_of(keys).tolist())) == 4


@given(some.lists(some.integers(0, 5), max_size=30), some.booleans())
def test_the_last_row_of_each_key_is_the_newest(values: list[int], is_text: bool) -> None:
    codec = codec_of({"k": "string" if is_text else "int64"})
    keys = [str(value) if is_text else value for value in values]
    codes = codec.codes_of(keys)
    chosen = newest_rows(codec, codes, lambda at: codec.columns(codec.batch([keys[i] for i in at])))
    assert sorted(chosen.tolist()) == sorted({key: at for at, key in enumerate(keys)}.values())
    ordered = codes[chosen]
    assert (ordered[1:] > ordered[:-1]).all()


def test_two_keys_with_one_code_are_two_keys() -> None:
    codec = codec_of({"k": "string"})
    keys = ["a", "b", "a"]
    codes = np.zeros(3, np.int64)  # as if their hashes were equal
    chosen = newest_rows(codec, codes, lambda at: codec.columns(codec.batch([keys[i] for i in at])))
    assert sorted(chosen.tolist()) == [1, 2]
