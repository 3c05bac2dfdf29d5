"""Lance by itself: merge_insert on one dataset. It syncs nothing, and has no multi-table commit.

`load` syncs what it wrote, so that a bulk load is compared with equal promises. Reads see the
version of the last `load` or `settle`: opening a dataset again for every read would not be fair.
"""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.compute as pc

from bench.data import ACCOUNTS, Move, Row
from bench.measure import sync_tree


class LanceMerge:
    name = "lance"
    is_durable = False
    takes = frozenset({"W1", "W2", "W4", "W5", "W6"})

    def __init__(self, path: Path, *, keep_log: bool = False) -> None:
        del keep_log  # there is no log
        self._uri = str(path / "accounts")
        if not Path(self._uri).exists():
            lance.write_dataset(ACCOUNTS.empty_table(), self._uri)
        self._dataset = lance.dataset(self._uri)

    def load(self, rows: pa.Table) -> None:
        self._dataset = lance.write_dataset(rows, self._uri, mode="overwrite")
        sync_tree(Path(self._uri))

    def upsert_one(self, row: Row) -> None:
        self.upsert_batch(pa.table([pa.array([v]) for v in row[:4]], schema=ACCOUNTS))

    def upsert_batch(self, rows: pa.Table) -> None:
        merge = lance.dataset(self._uri).merge_insert("id")
        merge.when_matched_update_all().when_not_matched_insert_all().execute(rows)

    def transfer(self, move: Move) -> int:
        raise NotImplementedError

    def get(self, key: int) -> object:
        return self._dataset.to_table(filter=f"id = {key}").to_pylist()

    def scan_sum(self) -> int:
        reader = self._dataset.scanner(columns=["balance"]).to_reader()
        return sum(pc.sum(batch.column(0)).as_py() or 0 for batch in reader)

    def scan_all(self) -> int:
        return sum(batch.num_rows for batch in self._dataset.scanner().to_reader())

    def settle(self) -> None:
        self._dataset = lance.dataset(self._uri)
        self._dataset.optimize.compact_files()
        self._dataset.create_scalar_index("id", "BTREE", replace=True)

    def close(self) -> None:
        del self._dataset
