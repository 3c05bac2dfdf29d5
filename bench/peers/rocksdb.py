"""RocksDB through rocksdict: one keyspace, every write synced.

    b"a" + key, u64 big-endian  ->  balance, updated (i64 each), name
    b"l" + key, u64 big-endian  ->  account, delta (i64 each), note

rocksdict has no transactions: a transfer holds the locks of its two accounts, in the order of
their stripes, around one atomic write batch.
"""

from __future__ import annotations

import struct
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from bench.data import ACCOUNTS, Move, Row

_PAIR = struct.Struct("<qq")
_KEY = struct.Struct(">cQ")
_STRIPES = 1024


class RocksDb:
    name = "rocksdb"
    is_durable = True
    takes = frozenset({"W1", "W2", "W3", "W4", "W7", "W8", "W9"})

    def __init__(self, path: Path, *, keep_log: bool = False) -> None:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        if keep_log:
            options.set_write_buffer_size(4 << 30)
        self._db = Rdict(str(path), options)
        self._sync = WriteOptions()
        self._sync.sync = True
        self._locks = [threading.Lock() for _ in range(_STRIPES)]

    def load(self, rows: pa.Table) -> None:
        for start in range(0, rows.num_rows, 100_000):
            self.upsert_batch(rows.slice(start, 100_000))

    def upsert_one(self, row: Row) -> None:
        value = _PAIR.pack(row.balance, row.updated_us) + row.name.encode()
        self._db.put(_KEY.pack(b"a", row.id), value, write_opt=self._sync)

    def upsert_batch(self, rows: pa.Table) -> None:
        batch = WriteBatch(raw_mode=True)
        pack, pack_key, put = _PAIR.pack, _KEY.pack, batch.put
        columns = [*rows.columns[:3], rows.column("updated").cast(pa.int64())]
        lists = (c.to_pylist() for c in columns)
        for key, balance, name, updated in zip(*lists, strict=True):
            put(pack_key(b"a", key), pack(balance, updated) + name.encode())
        self._db.write(batch, self._sync)

    def transfer(self, move: Move) -> int:
        batch = WriteBatch(raw_mode=True)
        first, second = sorted({move.source % _STRIPES, move.target % _STRIPES} | {-1})[-2:]
        with self._locks[second]:
            if first < 0:
                self._move(batch, move)
                return 0
            with self._locks[first]:
                self._move(batch, move)
        return 0

    def _move(self, batch: WriteBatch, move: Move) -> None:
        sides = ((move.source, -move.amount, b"sent"), (move.target, move.amount, b"received"))
        for offset, (account, delta, note) in enumerate(sides):
            key = _KEY.pack(b"a", account)
            value = self._db.get(key)
            balance, updated = _PAIR.unpack_from(value)
            batch.put(key, _PAIR.pack(balance + delta, updated) + value[16:])
            batch.put(_KEY.pack(b"l", move.entry + offset), _PAIR.pack(account, delta) + note)
        self._db.write(batch, self._sync)

    def get(self, key: int) -> object:
        value = self._db.get(_KEY.pack(b"a", key))
        if value is None:
            return None
        balance, updated = _PAIR.unpack_from(value)
        return key, balance, value[16:].decode(), updated

    def scan_sum(self) -> int:
        return sum(_PAIR.unpack_from(value)[0] for _, value in self._items())

    def scan_all(self) -> int:
        keys, values = zip(*self._items(), strict=True)
        pairs = np.frombuffer(b"".join(v[:16] for v in values), "<i8").reshape(-1, 2)
        ids = np.frombuffer(b"".join(k[1:] for k in keys), ">u8").astype(np.int64)
        names = pa.array([v[16:] for v in values]).cast(pa.string())
        columns = [pa.array(ids), pa.array(pairs[:, 0]), names, pa.array(pairs[:, 1])]
        return pa.table(columns, ACCOUNTS.names).num_rows

    def _items(self):  # noqa: ANN202 - rocksdict has no types
        for key, value in self._db.items(from_key=b"a"):
            if key[:1] != b"a":
                return
            yield key, value

    def settle(self) -> None:
        self._db.flush()
        self._db.compact_range(None, None)

    def close(self) -> None:
        self._db.close()
