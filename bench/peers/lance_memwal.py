"""Lance MemWAL: one shard, durable_write, flushed every millisecond. It calls no sync at all."""

from __future__ import annotations

import uuid
from pathlib import Path

import lance
import pyarrow as pa

from bench.data import ACCOUNTS, Move, Row

_KEYED = pa.schema(
    [
        ACCOUNTS.field("id").with_metadata({"lance-schema:unenforced-primary-key": "true"}),
        *list(ACCOUNTS)[1:],
    ]
)


class LanceMemWal:
    name = "memwal"
    is_durable = False
    takes = frozenset({"W1", "W2"})

    def __init__(self, path: Path, *, keep_log: bool = False) -> None:
        del keep_log
        self._uri = str(path / "accounts")

    def load(self, rows: pa.Table) -> None:
        lance.write_dataset(rows.cast(_KEYED), self._uri)
        lance.dataset(self._uri).initialize_mem_wal(unsharded=True)
        self._writer = lance.dataset(self._uri).mem_wal_writer(
            str(uuid.uuid4()), durable_write=True, max_wal_flush_interval_ms=1
        )

    def upsert_one(self, row: Row) -> None:
        self._writer.put(pa.table([pa.array([v]) for v in row[:4]], schema=_KEYED))

    def upsert_batch(self, rows: pa.Table) -> None:
        self._writer.put(rows.cast(_KEYED))

    def transfer(self, move: Move) -> int:
        raise NotImplementedError

    def get(self, key: int) -> object:
        raise NotImplementedError

    def scan_sum(self) -> int:
        table = self._writer.lsm_scanner().project(["balance"]).to_table()
        return sum(table.column("balance").to_pylist())

    def scan_all(self) -> int:
        return self._writer.lsm_scanner().to_table().num_rows

    def settle(self) -> None:
        return

    def close(self) -> None:
        self._writer.close()
