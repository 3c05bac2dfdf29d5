"""An ordered run gives back the keys that were written; of other bytes it says where they are."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from siltstone.errors import CorruptionError
from siltstone.formats.order import ordered_run
from siltstone.formats.order.key_bytes import ByteKeys
from siltstone.formats.order.ordered_run import TRAILER_BYTES, OrderedFoot
from tests.nightly import by_day

SALT = 2**64 - 1
SHORT = some.binary(max_size=6)
LIKE = some.builds(lambda rest: b"s3://bucket/of/thirty/bytes/01" + rest, SHORT)
KEYS = some.lists(some.one_of(SHORT, LIKE, some.binary(max_size=200)), max_size=60)


def encoded(keys: list[bytes]) -> tuple[bytes, str]:
    places = np.arange(len(keys), dtype=np.uint64) | np.uint64(5 << 32)
    done = ordered_run.encode_pages(
        ByteKeys(pa.array(keys, pa.binary())), places, salt=SALT, first=0
    )
    before = [None, *done.lasts][:-1] if done.lasts else []
    separators = [*map(ordered_run.separator, before, done.firsts)]
    tail, checksum = ordered_run.encode_foot(SALT, len(keys), [5, 9], done.ends, separators)
    return done.data + tail, checksum


def foot_of(data: bytes, checksum: str) -> OrderedFoot:
    size = len(data)
    length = ordered_run.foot_bytes(data[-TRAILER_BYTES:], "r", size, checksum)
    body = data[size - TRAILER_BYTES - length : size - TRAILER_BYTES]
    return ordered_run.decode_foot(body, "r", size, checksum)


def whole(data: bytes, checksum: str) -> list[tuple[bytes, int]]:
    foot = foot_of(data, checksum)
    return [each for page in range(foot.pages) for each in read(data, foot, page)]


def read(data: bytes, foot: OrderedFoot, page: int) -> list[tuple[bytes, int]]:
    first, end = foot.span(page)
    found = ordered_run.decode_page(data[first:end], "r", foot, page)
    keys: list[Any] = found.packed.keys(slice(None)).array.to_pylist()
    return [*zip(keys, found.places.tolist(), strict=True)]


@given(keys=KEYS, page_bytes=some.sampled_from([40, 64, 200, 8192]), ends=some.tuples(SHORT, SHORT))
@settings(max_examples=by_day(150, 2_000))
def test_a_run_gives_back_its_keys_and_any_stretch_of_them(
    keys: list[bytes], page_bytes: int, ends: tuple[bytes, bytes]
) -> None:
    keys.sort()
    with pytest.MonkeyPatch.context() as small:
        small.setattr(ordered_run, "PAGE_BYTES", page_bytes)
        data, checksum = encoded(keys)
    foot = foot_of(data, checksum)
    assert (foot.entries, foot.parts) == (len(keys), (5, 9))
    pages = [read(data, foot, page) for page in range(foot.pages)]
    assert [each for page in pages for each in page] == [
        (k, 5 << 32 | n) for n, k in enumerate(keys)
    ]
    sizes = [foot.span(page)[1] - foot.span(page)[0] for page in range(foot.pages)]
    assert all(n <= page_bytes or len(page) == 1 for n, page in zip(sizes, pages, strict=True))
    for first, end in [ends, ends[::-1], *((k, k + b"\x00") for k in keys)]:
        found = [k for page in foot.stretch(first, end) for k, _ in pages[page] if first <= k < end]
        assert found == keys[bisect_left(keys, first) : max(0, bisect_left(keys, end))]
        assert foot.stretch(first, None).stop == foot.pages


def test_what_keys_of_a_page_share_is_in_it_once() -> None:
    begin = b"s3://a/bucket/and/a/path/of/30"
    assert len(begin) == 30
    long = len(encoded([begin + b"%08d" % n for n in range(20_000)])[0]) / 20_000
    short = len(encoded([b"%08d" % n for n in range(20_000)])[0]) / 20_000
    assert long < short + 0.2
    assert long < 16


def test_every_changed_byte_is_found_and_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_run, "PAGE_BYTES", 128)
    data, checksum = encoded([b"key %03d" % n for n in range(30)])
    pages = foot_of(data, checksum).pages
    assert pages > 3
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        with pytest.raises(CorruptionError) as caught:
            whole(bytes(damaged), checksum)
        assert caught.value.offset is not None


def test_a_page_of_another_place_or_of_another_run_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ordered_run, "PAGE_BYTES", 128)
    data, checksum = encoded([b"key %03d" % n for n in range(30)])
    foot = foot_of(data, checksum)
    first, end = foot.span(0)
    starts = np.array([0, 0, end - first], np.uint64)
    moved = OrderedFoot(foot.salt, foot.entries, foot.parts, starts, foot.separators)
    with pytest.raises(CorruptionError):
        ordered_run.decode_page(data[first:end], "r", moved, 1)
    other = OrderedFoot(7, foot.entries, foot.parts, foot.starts, foot.separators)
    with pytest.raises(CorruptionError):
        ordered_run.decode_page(data[first:end], "r", other, 0)
    with pytest.raises(CorruptionError):
        ordered_run.decode_page(data[first : end - 1], "r", foot, 0)
