"""Refresh: TPC-H's refresh functions as documents: RF1 brings new orders, RF2 takes old ones away.

A set has as many new orders as old ones, each with all its lineitems, so applying a whole set keeps
the number of orders. New orders are copies of generated ones that a much later set takes away, so
all that the generator made of them is right. Keys are sparse, eight out of 32 in the generated
tables; new orders use the gaps. If a set is made again, it is the same.

    op          "insert" or "delete"
    o_orderkey  the key
    order       the row of `orders`
    lines       its rows of `lineitem`
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from examples.tpch.data import BaseTables, schema

Ints = npt.NDArray[np.int64]


class RefreshSets:
    """The refresh sets 0, 1, 2, ... of one database, out of the files that `generate` made."""

    def __init__(self, files: Mapping[str, Path], base: BaseTables) -> None:
        self._files, self._base = files, base
        self.orders_per_set = base.orders_per_set

    def __len__(self) -> int:
        """Return how many sets there are: then the generated orders are used up."""
        return len(self._base.order_keys) // self.orders_per_set

    def new_keys(self, number: int) -> Ints:
        """Return the keys of the orders that a set inserts, ascending."""
        index = np.arange(self.orders_per_set) + number * self.orders_per_set
        return (index >> 3 << 5) | 8 | (index & 7)

    def old_keys(self, number: int) -> Ints:
        """Return the keys of the orders that a set deletes, ascending."""
        if not 0 <= number < len(self):
            raise IndexError(f"there are {len(self)} refresh sets, no set {number}")
        return self._base.order_keys[number * self.orders_per_set :][: self.orders_per_set]

    def __getitem__(self, number: int) -> pa.Table:
        """Return a set.

        Raises:
            IndexError: There is none of that number.
        """
        old = self.old_keys(number)
        copied = self.old_keys((number + len(self) // 2) % len(self))
        inserts = self._documents("insert", copied, self.new_keys(number))
        return pa.concat_tables([inserts, self._documents("delete", old, old)])

    def _documents(self, op: str, found: Ints, keys: Ints) -> pa.Table:
        """Return the generated orders `found`, which follow each other, under `keys`."""
        orders = self._rows("orders", "o_orderkey", found, keys)
        lines = self._rows("lineitem", "l_orderkey", found, keys)
        starts = np.searchsorted(lines["l_orderkey"].to_numpy(), [*keys, keys[-1] + 1])
        documents = {
            "op": pa.array([op] * len(keys)),
            "o_orderkey": pa.array(keys),
            "order": orders.to_struct_array().combine_chunks(),
            "lines": pa.ListArray.from_arrays(
                pa.array(starts, pa.int32()), lines.to_struct_array().combine_chunks()
            ),
        }
        return pa.table(documents)

    def _rows(self, table: str, key: str, found: Ints, keys: Ints) -> pa.Table:
        file = self._files[table]
        within = (pc.field(key) >= int(found[0])) & (pc.field(key) <= int(found[-1]))
        rows = pq.read_table(file, schema=schema(file), filters=within).sort_by(key)
        fresh = keys[np.searchsorted(found, rows[key].to_numpy())]
        return rows.set_column(rows.schema.get_field_index(key), key, pa.array(fresh))
