"""Rows leave a REST server in pieces of about 256 KiB, however large the batches of a scan are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from siltstone.server.rest.wire import PIECE_BYTES, arrow


@pytest.mark.parametrize("is_file", [False, True])
def test_a_large_batch_is_cut_into_pieces_and_nothing_of_it_is_lost(*, is_file: bool) -> None:
    count = 100_001
    batch = pa.record_batch(
        {
            "id": pa.array(range(count)),
            "name": pa.array([None if n % 7 == 0 else f"name {n}" for n in range(count)]),
            "flag": pa.array([None if n % 5 == 0 else n % 3 == 0 for n in range(count)]),
            "parts": pa.array([[n] * (n % 4) for n in range(count)]),
        }
    )
    assert batch.nbytes > 10 * PIECE_BYTES
    pieces = _pieces([batch], is_file=is_file)
    assert max(map(len, pieces)) < 2 * PIECE_BYTES
    assert _read(pieces, is_file=is_file).equals(pa.Table.from_batches([batch]))


@pytest.mark.parametrize("is_file", [False, True])
def test_a_row_that_is_larger_than_a_piece_comes_whole(*, is_file: bool) -> None:
    texts = pa.record_batch({"text": pa.array(["a" * (2 * PIECE_BYTES), "b", None])})
    table = _read(_pieces([texts], is_file=is_file), is_file=is_file)
    assert table.equals(pa.Table.from_batches([texts]))


@pytest.mark.parametrize("is_file", [False, True])
def test_batches_without_rows_or_columns_come_as_they_are(*, is_file: bool) -> None:
    empty = pa.record_batch({"id": pa.array([], pa.int64())})
    assert _read(_pieces([empty], is_file=is_file), is_file=is_file).num_rows == 0
    bare = pa.record_batch({"id": pa.array(range(9))}).select([])
    assert _read(_pieces([bare], is_file=is_file), is_file=is_file).num_rows == 9


def _pieces(batches: list[pa.RecordBatch], *, is_file: bool) -> list[bytes]:
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    return list(arrow(reader, reader.close, is_file=is_file).chunks)


def _read(pieces: list[bytes], *, is_file: bool) -> pa.Table:
    source = pa.BufferReader(b"".join(pieces))
    return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source).read_all()
