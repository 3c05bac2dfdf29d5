"""A frame or header validates where it was written and nowhere else, whole and unchanged."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from siltstone.errors import InvariantError, UnsupportedFormatError
from siltstone.formats.log.frame import (
    FRAME_BYTES_MAX,
    FRAME_HEADER_BYTES,
    HEADER_BYTES,
    Frame,
    Mark,
    Position,
    SegmentHeader,
    SegmentSource,
    claimed_end,
    decode_frame,
    decode_header,
    decode_mark,
    encode_frame,
    encode_header,
    encode_mark,
    find_frames,
)
from siltstone.formats.store_format import STORE_FORMAT
from siltstone.units import Epoch, SegmentNumber, Seq
from tests.compat.golden_bytes import golden

STORE_ID = bytes(range(16))
PATH = Path("/store/wal/00000003-000000000017.wal")
BEFORE = Position(Epoch(2), SegmentNumber(16), 8192, 0x1122334455667788, Seq(40))
HEADER = SegmentHeader(STORE_ID, Epoch(3), SegmentNumber(17), BEFORE, 5000, is_recycled=True)
AT = Position(Epoch(3), SegmentNumber(17), 4096, 0x99AABBCCDDEEFF00, Seq(40))
SOURCE = SegmentSource(PATH, STORE_ID, Epoch(3), SegmentNumber(17), 4096)
MARK = Mark(Epoch(3), SegmentNumber(17), 4216, Seq(42))
PAYLOAD = [b"two ", bytearray(b"small"), memoryview(b" parts")]


def encoded(at: Position = AT, payload: bytes = b"two small parts") -> bytes:
    buffers, end = encode_frame(
        [payload],
        store_id=STORE_ID,
        at=at,
        first_seq=Seq(41),
        last_seq=Seq(42),
        durable_offset=4096,
    )
    data = b"".join(buffers)
    assert len(data) == end.offset - at.offset
    return data


def decoded(data: bytes, at: int = 4096, source: SegmentSource = SOURCE) -> Frame | None:
    return decode_frame(memoryview(data), at, source)


def reseal(data: bytearray) -> bytes:
    data[8:16] = xxhash.xxh3_64_intdigest(data[16:]).to_bytes(8, "little")
    return bytes(data)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("header.bin", encode_header(HEADER)[0]),
        ("frame.bin", encoded()),
        ("empty-frame.bin", encoded(payload=b"")),
        ("mark.bin", encode_mark(MARK, STORE_ID)),
    ],
)
def test_the_bytes_are_those_that_were_committed(name: str, data: bytes) -> None:
    assert data == golden(f"frame/{name}", data)


def test_every_stored_byte_sequence_is_still_read() -> None:
    header = decode_header(golden("frame/header.bin", encode_header(HEADER)[0]), PATH)
    assert header is not None
    assert msgspec.structs.replace(header, checksum=0) == HEADER
    assert header.start == Position(Epoch(3), SegmentNumber(17), 4096, header.checksum, Seq(40))
    frame = decoded(golden("frame/frame.bin", encoded()))
    assert frame is not None
    assert (frame.first_seq, frame.last_seq, bytes(frame.payload)) == (41, 42, b"two small parts")
    assert (frame.durable_offset, frame.previous) == (4096, AT.checksum)
    assert (frame.offset, frame.end) == (4096, 4096 + FRAME_HEADER_BYTES + 16)
    assert decode_mark(golden("frame/mark.bin", encode_mark(MARK, STORE_ID)), STORE_ID) == MARK
    empty = decoded(golden("frame/empty-frame.bin", encoded(payload=b"")))
    assert empty is not None
    assert bytes(empty.payload) == b""


def test_a_payload_in_parts_is_the_same_frame_as_in_one() -> None:
    buffers, end = encode_frame(
        PAYLOAD, store_id=STORE_ID, at=AT, first_seq=Seq(41), last_seq=Seq(42), durable_offset=4096
    )
    assert b"".join(buffers) == encoded()
    frame = decoded(encoded())
    assert frame is not None
    assert frame.behind == end
    assert end == Position(AT.epoch, AT.segment, 4096 + len(encoded()), frame.checksum, Seq(42))


def test_the_parts_of_a_large_payload_are_not_copied() -> None:
    payload = [bytes(1 << 20), memoryview(bytes(range(256)) * 99)]
    buffers, end = encode_frame(
        payload, store_id=STORE_ID, at=AT, first_seq=Seq(41), last_seq=Seq(42), durable_offset=4096
    )
    assert all(given is part for given, part in zip(buffers[1:3], payload, strict=True))
    frame = decoded(b"".join(buffers))
    assert frame is not None
    assert bytes(frame.payload) == b"".join(payload)
    assert frame.behind == end


def test_a_view_of_wide_items_counts_by_bytes() -> None:
    wide = memoryview(bytes(16)).cast("q")
    buffers, end = encode_frame(
        [wide], store_id=STORE_ID, at=AT, first_seq=Seq(41), last_seq=Seq(41), durable_offset=4096
    )
    assert end.offset == 4096 + FRAME_HEADER_BYTES + 16
    frame = decoded(b"".join(buffers))
    assert frame is not None
    assert bytes(frame.payload) == bytes(16)


@given(st.lists(st.binary(max_size=40), max_size=4))
def test_any_payload_comes_back(parts: list[bytes]) -> None:
    buffers, end = encode_frame(
        parts, store_id=STORE_ID, at=AT, first_seq=Seq(41), last_seq=Seq(42), durable_offset=4096
    )
    assert end.offset % 8 == 0
    frame = decoded(b"".join(buffers) + b"what follows")
    assert frame is not None
    assert bytes(frame.payload) == b"".join(parts)
    assert frame.end == end.offset


def test_one_changed_bit_anywhere_makes_a_frame_a_header_and_a_mark_invalid() -> None:
    for data, decode in (
        (encoded(), decoded),
        (encode_header(HEADER)[0], lambda data: decode_header(data, PATH)),
        (encode_mark(MARK, STORE_ID), lambda data: decode_mark(data, STORE_ID)),
    ):
        for n in range(len(data)):
            changed = bytearray(data)
            changed[n] ^= 1 << n % 8
            assert decode(bytes(changed)) is None, f"byte {n}"


def test_a_cut_frame_header_or_mark_is_invalid_at_every_length() -> None:
    assert all(decoded(encoded()[:n]) is None for n in range(len(encoded())))
    header = encode_header(HEADER)[0]
    assert all(decode_header(header[:n], PATH) is None for n in range(len(header)))
    mark = encode_mark(MARK, STORE_ID)
    assert all(decode_mark(mark[:n], STORE_ID) is None for n in range(len(mark)))


def test_zeros_are_no_frame_no_header_and_no_mark() -> None:
    assert decoded(bytes(4096)) is None
    assert decode_header(bytes(HEADER_BYTES), PATH) is None
    assert decode_mark(bytes(40), STORE_ID) is None
    assert list(find_frames(bytes(4096), 4096, SOURCE)) == []


@pytest.mark.parametrize(
    "elsewhere",
    [
        SegmentSource(PATH, bytes(16), Epoch(3), SegmentNumber(17), 4096),
        SegmentSource(PATH, STORE_ID, Epoch(4), SegmentNumber(17), 4096),
        SegmentSource(PATH, STORE_ID, Epoch(3), SegmentNumber(18), 4096),
    ],
)
def test_a_frame_of_another_store_epoch_or_segment_is_invalid(elsewhere: SegmentSource) -> None:
    assert decoded(encoded(), 4096, elsewhere) is None


def test_a_frame_at_another_offset_is_invalid() -> None:
    assert decoded(bytes(8) + encoded(), 4104) is None
    assert decoded(encoded(), 4096, msgspec.structs.replace(SOURCE, base=4096 + 8)) is None


def test_a_mark_of_another_store_is_invalid() -> None:
    assert decode_mark(encode_mark(MARK, STORE_ID), bytes(16)) is None


def test_a_search_finds_the_valid_frames_behind_damage_and_skips_stale_ones() -> None:
    first = encoded()
    second_at = msgspec.structs.replace(AT, offset=4096 + 2 * len(first))
    stale = encoded(msgspec.structs.replace(AT, segment=SegmentNumber(9), offset=4096 + len(first)))
    data = b"\0" + first[1:] + stale + encoded(second_at)
    assert [frame.offset for frame in find_frames(data, 4096, SOURCE)] == [second_at.offset]
    assert list(find_frames(data, second_at.offset + 1, SOURCE)) == []


def test_the_torn_tail_of_a_recycled_file_ends_with_the_last_frame_that_names_its_place() -> None:
    torn = encoded()[:-3] + b"\xff\xff\xff"
    stale = encoded(msgspec.structs.replace(AT, segment=SegmentNumber(9)))
    assert claimed_end(torn + stale, 4096, SOURCE) == 4096 + len(torn)
    assert claimed_end(stale, 4096, SOURCE) == 4096
    assert claimed_end(torn[:-8], 4096, SOURCE) == 4096 + len(torn) - 8


@pytest.mark.parametrize("other", [0, STORE_FORMAT - 1, STORE_FORMAT + 1, 255])
def test_another_format_is_told_from_damage(other: int) -> None:
    frame = bytearray(encoded())
    frame[16] = other
    assert decoded(bytes(frame)) is None
    with pytest.raises(UnsupportedFormatError) as caught:
        decoded(reseal(frame))
    error = caught.value
    assert (error.path, error.found, error.known) == (PATH, other, STORE_FORMAT)
    header = bytearray(encode_header(HEADER)[0])
    header[16] = other
    with pytest.raises(UnsupportedFormatError):
        decode_header(reseal(header), PATH)


def test_a_payload_above_the_bound_is_refused() -> None:
    huge = memoryview(bytearray(1 << 20))
    parts = [huge] * (FRAME_BYTES_MAX // (1 << 20)) + [b"!"]
    with pytest.raises(InvariantError):
        encode_frame(
            parts, store_id=STORE_ID, at=AT, first_seq=Seq(1), last_seq=Seq(1), durable_offset=4096
        )


def test_a_lying_length_is_refused_without_reading_past_the_buffer() -> None:
    frame = bytearray(encoded())
    frame[24:32] = (2**63).to_bytes(8, "little")
    assert decoded(reseal(frame)) is None
