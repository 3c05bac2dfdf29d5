"""A part file has the rows of a part as Arrow has them, each found by itself."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from siltstone.formats.parts.flat_rows import BLOCK_BYTES, FlatRows, is_flat
from siltstone.formats.parts.part_file import Group, PartIdentity, groups_of, is_sound, sealed

ROWS = 500
SOME = random.Random(7)
DAY, NOON = dt.date(2020, 2, 29), dt.time(12, 30, 1)
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - naive, as the column
WHEN = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001 - as above
NUMBERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def column(kind: Any, values: Sequence[object]) -> pa.Array:
    """Return values, every fifth of them null."""
    return pa.array([None if SOME.random() < 0.2 else value for value in values], kind)


def extension(kind: Any, values: Sequence[object]) -> pa.Array:
    return pa.ExtensionArray.from_storage(kind, column(kind.storage_type, values))


def columns() -> dict[str, pa.Array]:
    each = range(ROWS)
    structs = pa.struct([pa.field("a", pa.int8()), pa.field("b", pa.date32())])
    nested = {
        "vector": column(pa.list_(pa.float32(), 3), [[0.5, None, n] for n in each]),
        "list": column(pa.list_(pa.string()), [["a"] * (n % 4) for n in each]),
        "struct": column(structs, [{"a": 1, "b": DAY}] * ROWS),
        "map": column(pa.map_(pa.string(), pa.int64()), [[("k", n)] for n in each]),
    }
    return nested | {
        **{name: column(pa.type_for_alias(name), [n % 128 for n in each]) for name in NUMBERS},
        "bool": column(pa.bool_(), [n % 3 == 0 for n in each]),
        "half": column(pa.float16(), [np.float16(n / 2) for n in each]),
        "float": column(pa.float32(), [n / 3 for n in each]),
        "double": column(pa.float64(), [float("nan") if n % 7 else n / 3 for n in each]),
        "day": column(pa.date32(), [DAY] * ROWS),
        "date64": column(pa.date64(), [DAY] * ROWS),
        "second": column(pa.time32("s"), [NOON] * ROWS),
        "time": column(pa.time64("us"), [NOON] * ROWS),
        "when": column(pa.timestamp("us"), [WHEN] * ROWS),
        "zoned": column(pa.timestamp("ms", "Europe/Berlin"), [WHEN.replace(tzinfo=dt.UTC)] * ROWS),
        "span": column(pa.duration("ms"), [dt.timedelta(-1)] * ROWS),
        "decimal": column(pa.decimal128(20, 3), [Decimal(-n) / 8 for n in each]),
        "wide": column(pa.decimal256(60, 3), [Decimal(n) / 8 for n in each]),
        "text": column(pa.string(), ["ä\0" * (n % 5) for n in each]),
        "large_text": column(pa.large_string(), ["x" * n for n in each]),
        "bytes": column(pa.binary(), [b"\0" * (n % 9) for n in each]),
        "large_bytes": column(pa.large_binary(), [b"k" * (n * 40) for n in each]),
        "five": column(pa.binary(5), [b"ab\0\0\0"] * ROWS),
        "uuid": extension(pa.uuid(), [UUID(int=n).bytes for n in each]),
        "json": extension(pa.json_(pa.string()), ['{"a": [1]}'] * ROWS),
    }


def laid_out(group: Group, batch: pa.RecordBatch) -> list[tuple[bytes, int]]:
    """Return where each row of a batch is: its block, and its index there."""
    blocks = [(first, b"".join(pieces)) for first, pieces in group.blocks(batch)]
    ends = [*(first for first, _ in blocks[1:]), batch.num_rows]
    return [
        (block, row)
        for (first, block), end in zip(blocks, ends, strict=True)
        for row in range(end - first)
    ]


def shown(rows: Sequence[dict[str, object]]) -> list[dict[str, str]]:
    return [{name: f"{type(v)} {v!r}" for name, v in row.items()} for row in rows]


@pytest.mark.parametrize("cut", [slice(0, ROWS), slice(13, 401), slice(8, 9)])
def test_each_type_has_its_value_in_each_row(cut: slice) -> None:
    batch = pa.RecordBatch.from_pydict(columns())
    batch = batch.slice(cut.start, cut.stop - cut.start)
    for group in groups_of(batch.schema):
        mine = batch.select(group.schema.names)
        places = laid_out(group, mine)
        assert shown([group.row(*place) for place in places]) == shown(mine.to_pylist())


def test_columns_of_some_rows_are_those_of_arrow() -> None:
    batch = pa.RecordBatch.from_pydict(columns())
    some = [499, 3, 3, 250, 0]
    for group in groups_of(batch.schema):
        names = group.schema.names[::-1]
        places = laid_out(group, batch.select(group.schema.names))
        for name, found in zip(names, group.batch([places[n] for n in some], names), strict=True):
            found.validate(full=True)
            wanted = batch.column(name).take(pa.array(some))
            assert found.type == wanted.type
            assert shown([{"v": v} for v in found.to_pylist()]) == shown(
                [{"v": v} for v in wanted.to_pylist()]
            )


def test_a_nested_column_is_a_group_of_its_own() -> None:
    schema = pa.RecordBatch.from_pydict(columns()).schema
    groups = groups_of(schema)
    names = ("vector", "list", "struct", "map")
    assert [group.schema.names for group in groups[1:]] == [[name] for name in names]
    assert all(is_flat(field.type) for field in groups[0].schema)


def test_a_row_shares_no_block_with_a_large_one() -> None:
    sizes = [10, 10, 3 * BLOCK_BYTES, 10, 10, BLOCK_BYTES, BLOCK_BYTES, 1]
    batch = pa.record_batch({"v": pa.array(["x" * size for size in sizes])})
    assert [first for first, _ in FlatRows(batch.schema).blocks(batch)] == [0, 2, 3, 5, 6, 7]


def test_blocks_of_small_rows_have_about_as_many_bytes() -> None:
    batch = pa.record_batch({"n": pa.array(range(5_000)), "v": pa.array(["x" * 80] * 5_000)})
    sizes = [sum(map(len, pieces)) for _, pieces in FlatRows(batch.schema).blocks(batch)]
    assert max(sizes) <= BLOCK_BYTES + 120
    assert min(sizes[:-1]) >= BLOCK_BYTES - 120


def test_no_rows_make_no_block() -> None:
    batch = pa.RecordBatch.from_pydict(columns()).slice(0, 0)
    assert [[*g.blocks(batch.select(g.schema.names))] for g in groups_of(batch.schema)] == [[]] * 5


def test_a_value_that_python_lacks_is_refused_as_arrow_does_and_others_are_read() -> None:
    beyond = pa.array([1 << 62, 0, None], pa.int64()).view(pa.timestamp("us"))
    batch = pa.record_batch({"when": beyond, "n": pa.array([1, 2, 3])})
    group = FlatRows(batch.schema)
    places = laid_out(group, batch)
    with pytest.raises(OverflowError):
        group.row(*places[0])
    assert group.row(*places[1]) == {"when": EPOCH, "n": 2}
    assert group.row(*places[2]) == {"when": None, "n": 3}


def test_a_null_says_nothing_of_what_lies_there() -> None:
    stored = pa.array([1 << 62], pa.int64())
    null = pa.Array.from_buffers(
        pa.timestamp("us"), 1, cast("Any", [pa.py_buffer(b"\0"), stored.buffers()[1]])
    )
    batch = pa.record_batch({"when": null})
    group = FlatRows(batch.schema)
    assert group.row(*laid_out(group, batch)[0]) == {"when": None}


def test_a_block_of_another_place_or_file_or_with_another_byte_is_not_sound() -> None:
    block = sealed([b"some", b" rows"], 5, 3)
    assert is_sound(block, 5, 3)
    assert not is_sound(block, 5, 4)
    assert not is_sound(block, 6, 3)
    for at in range(len(block)):
        changed = bytearray(block)
        changed[at] ^= 1
        assert not is_sound(bytes(changed), 5, 3), at


def test_rows_are_named_by_all_that_they_depend_on() -> None:
    whose = PartIdentity("store", "tables/t-1/base", 3, ("a.lance",), 10, ((1, "id", "int64"),))
    others = [
        PartIdentity("other", *fields(whose)[1:]),
        PartIdentity("store", "tables/t-2/base", *fields(whose)[2:]),
        PartIdentity("store", "tables/t-1/base", 4, *fields(whose)[3:]),
        PartIdentity("store", "tables/t-1/base", 3, ("b.lance",), *fields(whose)[4:]),
        PartIdentity("store", "tables/t-1/base", 3, ("a.lance",), 11, whose.columns),
        PartIdentity("store", "tables/t-1/base", 3, ("a.lance",), 10, ((2, "id", "int64"),)),
        PartIdentity("store", "tables/t-1/base", 3, ("a.lance",), 10, ((1, "key", "int64"),)),
        PartIdentity("store", "tables/t-1/base", 3, ("a.lance",), 10, ((1, "id", "int32"),)),
    ]
    assert len({each.encoded for each in [whose, *others]}) == len(others) + 1
    assert len({each.name for each in [whose, *others]}) == len(others) + 1


def fields(identity: PartIdentity) -> tuple[Any, ...]:
    return (
        identity.store_id,
        identity.folder,
        identity.number,
        identity.paths,
        identity.rows,
        identity.columns,
    )
