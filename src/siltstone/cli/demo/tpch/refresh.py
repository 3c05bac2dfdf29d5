"""Refresh: TPC-H's refresh functions as documents: RF1 brings new orders, RF2 takes old ones away.

A set has as many new orders as old ones, each with all its lineitems, so applying a whole set keeps
the number of orders. Keys are sparse, eight out of 32 in the generated tables; new orders use the
gaps. Everything derives from the number of the set: if it is made again, it is the same.

    op          "insert" or "delete"
    o_orderkey  the key
    order       the row of `orders`; null in a delete
    lines       the rows of `lineitem`; in a delete their keys alone, all else null
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from siltstone.cli.demo.tpch.data import BaseTables, Cents, money, with_discount_and_tax

CLERKS_PER_SCALE = 1_000
_EPOCH = date(1970, 1, 1)
FIRST_DAY = (date(1992, 1, 1) - _EPOCH).days
LAST_DAY = (date(1998, 8, 2) - _EPOCH).days
TODAY = (date(1995, 6, 17) - _EPOCH).days  # what was received by now was returned or accepted
PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
MODES = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")
INSTRUCTIONS = ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")
WORDS = (
    ("carefully", "quickly", "furiously", "slyly", "blithely", "silently"),
    ("final", "express", "regular", "special", "pending", "ironic"),
    ("packages", "deposits", "accounts", "requests", "theodolites", "pinto beans"),
    ("sleep", "wake", "haggle", "nag", "cajole", "detect"),
)

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Lines:
    """The lineitems of the new orders of a set: whose they are, and what counts in their order."""

    order: Ints  # the position of the order
    number: Ints
    price: Cents  # with discount and tax
    is_shipped: npt.NDArray[np.bool_]
    columns: Mapping[str, pa.Array]


class RefreshSets:
    """The refresh sets 0, 1, 2, ... of one database.

    Args:
        order: The columns of the table `orders`.
        line: The columns of the table `lineitem`.
    """

    def __init__(self, base: BaseTables, order: pa.Schema, line: pa.Schema, seed: int = 0) -> None:
        self._base, self._seed = base, seed
        self._order, self._line = pa.struct(list(order)), pa.struct(list(line))
        self.orders_per_set = base.orders_per_set

    def __len__(self) -> int:
        """Return how many sets there are: then the generated orders are used up."""
        return len(self._base.order_keys) // self.orders_per_set

    @property
    def schema(self) -> pa.Schema:
        """The columns of a set."""
        return pa.schema([
            ("op", pa.string()),
            ("o_orderkey", pa.int64()),
            ("order", self._order),
            ("lines", pa.list_(self._line)),
        ])  # fmt: skip

    def new_keys(self, number: int) -> Ints:
        """Return the keys of the orders that a set inserts."""
        index = np.arange(self.orders_per_set) + number * self.orders_per_set
        return (index >> 3 << 5) | 8 | (index & 7)

    def old_keys(self, number: int) -> Ints:
        """Return the keys of the orders that a set deletes."""
        return self._base.order_keys[self._of(number)]

    def _of(self, number: int) -> slice:
        if not 0 <= number < len(self):
            raise IndexError(f"there are {len(self)} refresh sets, no set {number}")
        return slice(number * self.orders_per_set, (number + 1) * self.orders_per_set)

    def __getitem__(self, number: int) -> pa.Table:
        """Return a set.

        Raises:
            IndexError: There is none of that number.
        """
        old = self._base.line_counts[self._of(number)]
        random = np.random.default_rng([self._seed, number])
        inserts, deletes = self._inserts(number, random), self._deletes(number, old)
        return pa.concat_tables([inserts, deletes])

    def _deletes(self, number: int, counts: Ints) -> pa.Table:
        keys = self.old_keys(number)
        known = {
            "l_orderkey": pa.array(np.repeat(keys, counts)),
            "l_linenumber": pa.array(_numbers(counts), pa.int32()),
        }
        orders = pa.nulls(len(keys), self._order)
        return self._set("delete", keys, orders, _lists(counts, known, self._line))

    def _inserts(self, number: int, random: np.random.Generator) -> pa.Table:
        keys = self.new_keys(number)
        day = random.integers(FIRST_DAY, LAST_DAY, len(keys), endpoint=True)
        counts = random.integers(1, 7, len(keys), endpoint=True)
        lines = self._lines(keys, day, counts, random)
        shipped = np.bincount(lines.order, lines.is_shipped, len(keys)).astype(np.int64)
        status = np.where(shipped == counts, "F", np.where(shipped == 0, "O", "P"))
        total = np.zeros(len(keys), np.int64)
        np.add.at(total, lines.order, lines.price)
        clerk = random.integers(
            1, max(1, int(CLERKS_PER_SCALE * self._base.scale)), len(keys), endpoint=True
        )
        columns = {
            "o_orderkey": pa.array(keys),
            "o_custkey": pa.array(self._customers(len(keys), random)),
            "o_orderstatus": pa.array(status),
            "o_totalprice": money(total),
            "o_orderdate": _dates(day),
            "o_orderpriority": _chosen(PRIORITIES, len(keys), random),
            "o_clerk": pa.array([f"Clerk#{one:09}" for one in clerk]),
            "o_shippriority": pa.array(np.zeros(len(keys), np.int32)),
            "o_comment": _comments(len(keys), random),
        }
        orders = _struct(columns, self._order, len(keys))
        return self._set("insert", keys, orders, _lists(counts, lines.columns, self._line))

    def _customers(self, count: int, random: np.random.Generator) -> Ints:
        """Return customers; every third one orders nothing, as the specification has it."""
        keys = random.integers(1, self._base.customers, count)
        return np.where(keys % 3 == 0, keys + 1, keys)

    def _lines(self, keys: Ints, day: Ints, counts: Ints, random: np.random.Generator) -> _Lines:
        order = np.repeat(np.arange(len(keys)), counts)
        count = len(order)
        part = random.integers(0, len(self._base.prices), count)
        quantity = random.integers(1, 50, count, endpoint=True)
        price = quantity * self._base.prices[part]
        discount = random.integers(0, 10, count, endpoint=True)
        tax = random.integers(0, 8, count, endpoint=True)
        shipped = day[order] + random.integers(1, 121, count, endpoint=True)
        received = shipped + random.integers(1, 30, count, endpoint=True)
        returned = np.where(random.integers(0, 2, count) == 0, "R", "A")
        columns = {
            "l_orderkey": pa.array(keys[order]),
            "l_partkey": pa.array(part + 1),
            "l_suppkey": pa.array(self._suppliers(part, random)),
            "l_linenumber": pa.array(_numbers(counts), pa.int32()),
            "l_quantity": money(quantity * 100),
            "l_extendedprice": money(price),
            "l_discount": money(discount),
            "l_tax": money(tax),
            "l_returnflag": pa.array(np.where(received <= TODAY, returned, "N")),
            "l_linestatus": pa.array(np.where(shipped > TODAY, "O", "F")),
            "l_shipdate": _dates(shipped),
            "l_commitdate": _dates(day[order] + random.integers(30, 90, count, endpoint=True)),
            "l_receiptdate": _dates(received),
            "l_shipinstruct": _chosen(INSTRUCTIONS, count, random),
            "l_shipmode": _chosen(MODES, count, random),
            "l_comment": _comments(count, random),
        }
        paid = with_discount_and_tax(price, discount, tax)
        return _Lines(order, _numbers(counts), paid, shipped <= TODAY, columns)

    def _suppliers(self, part: Ints, random: np.random.Generator) -> Ints:
        """Return for each part one of its suppliers."""
        choices = self._base.suppliers.shape[1]
        return self._base.suppliers[part, random.integers(0, choices, len(part))]

    def _set(self, op: str, keys: Ints, orders: pa.Array, lines: pa.Array) -> pa.Table:
        ops = pa.array([op] * len(keys))
        return pa.Table.from_arrays([ops, pa.array(keys), orders, lines], schema=self.schema)


def _numbers(counts: Ints) -> Ints:
    """Return 1, 2, ... for each count."""
    starts = np.cumsum(counts) - counts
    return np.arange(counts.sum()) - np.repeat(starts, counts) + 1


def _dates(days: Ints) -> pa.Array:
    return pa.array(days.astype(np.int32)).cast(pa.date32())


def _chosen(texts: tuple[str, ...], count: int, random: np.random.Generator) -> pa.Array:
    return pa.array(random.choice(texts, count))


def _comments(count: int, random: np.random.Generator) -> pa.Array:
    words = [random.choice(choices, count) for choices in WORDS]
    return pa.array([" ".join(sentence) for sentence in zip(*words, strict=True)])


def _struct(columns: Mapping[str, pa.Array], kind: pa.StructType, count: int) -> pa.Array:
    """Return rows as structs; columns that are not given are null."""
    fields = [kind.field(index) for index in range(kind.num_fields)]
    arrays = [
        columns[field.name].cast(field.type)
        if field.name in columns
        else pa.nulls(count, field.type)
        for field in fields
    ]
    return pa.StructArray.from_arrays(arrays, fields=fields)


def _lists(counts: Ints, columns: Mapping[str, pa.Array], kind: pa.StructType) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(counts)])
    rows = _struct(columns, kind, int(offsets[-1]))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), rows)
