"""The payload of a frame gives back the commits that went in; its bytes are format 1 for ever."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as some

from siltstone.formats.log import group
from siltstone.formats.log.group import Member, Token
from siltstone.formats.manifest import Column, Pin, Schema
from tests.compat.golden_bytes import golden

PIN = Pin(7, "tables/t-1/base/_siltstone/x/7.manifest", 1234, "0123456789abcdef", 10, "inventory/a")
SCHEMA = Schema(2, (Column(1, "id", "int64", nullable=False), Column(2, "Größe", "string")), (1,))
BATCH = pa.record_batch({"id": pa.array([1, 2], pa.int64()), "Größe": pa.array(["a", None])})
ENTRIES: list[group.Entry] = [
    group.RowsEntry(1, 2, [(1, "a", -0.0, None, b"\0\xff", True)], [7, "key"]),
    group.Batch(1, 2, group.UPSERT, 0),
    group.Batch(1, 2, group.DELETE, 1),
    group.Advance(4, 6, PIN),
    group.Create(5, "orders", SCHEMA),
    group.Drop(5),
    group.Rename(5, "bestellungen"),
    group.Alter(5, SCHEMA, 3),
    group.Truncate(5, 6),
    group.Tagged("v1", 12),
    group.Tagged("v1", None),
    group.Claim("etl", 3),
]
MEMBERS = [
    Member(1, 3, None, ENTRIES[:3]),
    Member(2, 0, Token("etl", (1 << 63) - 1), ENTRIES[3:]),
    Member((1 << 64) - 1, 0, None, []),
]
BLOBS = [pa.py_buffer(b"seventeen bytes.."), pa.py_buffer(b"")]


def joined(buffers: list) -> bytes:
    return b"".join(bytes(memoryview(buffer)) for buffer in buffers)


def test_the_bytes_are_those_that_were_committed_and_are_read() -> None:
    data = joined(group.encode(3, 1_700_000_000_000_000, MEMBERS, BLOBS))
    assert data == golden("group/entries.bin", data)
    head, blobs = group.decode(golden("group/entries.bin", data))
    assert (head.epoch, head.time_us) == (3, 1_700_000_000_000_000)
    assert [blob.to_pybytes() for blob in blobs] == [blob.to_pybytes() for blob in BLOBS]
    first, second, third = head.members
    assert second.entries == ENTRIES[3:]
    assert second.token == Token("etl", (1 << 63) - 1)
    assert first.entries[1:] == ENTRIES[1:3]
    rows = first.entries[0]
    assert isinstance(rows, group.RowsEntry)
    assert [tuple(row) for row in rows.upserts] == [(1, "a", -0.0, None, b"\0\xff", True)]
    assert str(rows.upserts[0][2]) == "-0.0"
    assert rows.deletes == [7, "key"]
    assert third == MEMBERS[2]


def require_golden(name: str, member: Member) -> None:
    """Check that a member is written as it was committed, and read from that."""
    data = joined(group.encode(3, 1_700_000_000_000_000, [member]))
    assert data == golden(f"group/{name}.bin", data)
    assert group.decode(golden(f"group/{name}.bin", data))[0].members == [member]


def test_a_claim_with_a_holder_is_written_and_read_as_committed() -> None:
    member = Member(1, 0, None, [group.Claim("etl", 4, "run 7")])
    require_golden("claim-of-a-holder", member)


def test_a_tag_for_a_time_is_written_and_read_as_committed() -> None:
    member = Member(1, 0, None, [group.Tagged("stream", 12, 604_800)])
    require_golden("tag-for-a-time", member)


def test_a_forgotten_app_is_written_and_read_as_committed() -> None:
    member = Member(1, 0, None, [group.ForgetApp("etl")])
    require_golden("forget", member)


def test_a_compaction_of_a_plain_table_is_written_and_read_as_committed() -> None:
    member = Member(1, 0, None, [group.Compact(4, 6, PIN)])
    require_golden("compact", member)


def test_namespaces_are_written_and_read_as_committed() -> None:
    entries = [group.CreateNamespace("a.b", {"owner": "Größe"}), group.DropNamespace("a.b")]
    member = Member(1, 0, None, entries)  # pyright: ignore[reportArgumentType]
    require_golden("namespaces", member)


def test_blobs_lie_at_multiples_of_8_and_a_batch_comes_back_from_one() -> None:
    blob = BATCH.serialize()
    payload = joined(group.encode(1, 1, [Member(1, 2, None, [])], [pa.py_buffer(b"x"), blob, blob]))
    assert len(payload) % 8 == 0
    start = pa.py_buffer(payload).address
    _, blobs = group.decode(payload)
    found = group.decode(pa.py_buffer(payload))[1]  # pyright: ignore[reportArgumentType]
    assert [len(b) for b in blobs] == [1, blob.size, blob.size]
    assert {(b.address - start) % 8 for b in found} == {0}
    for each in blobs[1:]:
        assert pa.ipc.read_record_batch(each, BATCH.schema).equals(BATCH)


values = some.one_of(
    some.none(), some.booleans(), some.integers(-(1 << 63), (1 << 64) - 1), some.text(),
    some.binary(), some.floats(allow_nan=False),
)  # fmt: skip
rows = some.lists(some.tuples(values, values), max_size=4)
row_entries = some.builds(
    group.RowsEntry,
    some.integers(0, 1 << 40),
    some.integers(0, 9),
    rows,
    some.lists(values, max_size=3),
)
members = some.builds(
    Member,
    some.integers(0, 1 << 63),
    some.integers(0, 1 << 40),
    some.none() | some.builds(Token, some.text(), some.integers(0, 1 << 62)),
    some.lists(row_entries, max_size=3),
)


@given(some.lists(members, max_size=4), some.lists(some.binary(max_size=40), max_size=4))
def test_any_group_survives_encoding(given_members: list[Member], blobs: list[bytes]) -> None:
    payload = joined(group.encode(2, 5, given_members, [pa.py_buffer(blob) for blob in blobs]))
    head, found = group.decode(payload)
    assert [blob.to_pybytes() for blob in found] == blobs
    assert joined(group.encode(2, 5, head.members, found)) == payload
    assert [(m.number, m.rows, m.token) for m in head.members] == [
        (m.number, m.rows, m.token) for m in given_members
    ]
    for before, after in zip(given_members, head.members, strict=True):
        for old, new in zip(before.entries, after.entries, strict=True):
            assert isinstance(old, group.RowsEntry)
            assert isinstance(new, group.RowsEntry)
            assert [tuple(row) for row in new.upserts] == old.upserts
            assert new.deletes == old.deletes
