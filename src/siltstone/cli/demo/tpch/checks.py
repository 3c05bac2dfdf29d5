"""Checks: what holds in every snapshot, asked in SQL that Spark and DuckDB both take.

every lineitem has its order
o_totalprice is the sum over the order's lineitems, to the cent; see `data`
there are as many orders as were loaded: a refresh set inserts as many as it deletes
the balances of the customers add up to what they were: money only moves
"""

from __future__ import annotations

from collections.abc import Callable

from siltstone.cli.demo.tpch.data import BaseTables
from siltstone.cli.demo.tpch.queries import QUERIES, Rows

Ask = Callable[[str], Rows]  # what an engine answers to a query

ORPHANS = """
    select count(*) from lineitem left join orders on l_orderkey = o_orderkey
    where o_orderkey is null"""
WRONG_TOTALS = """
    select count(*)
    from orders left join (
        select l_orderkey, sum(cast(floor(cast(floor(
                   l_extendedprice * (1 - l_discount) * 100) as bigint)
                   * (1 + l_tax)) as bigint)) as cents
        from lineitem group by l_orderkey) as sums on l_orderkey = o_orderkey
    where cents is null or o_totalprice * 100 <> cents"""
ORDERS = "select count(*) from orders"
BALANCE = "select sum(c_acctbal) from customer"


_STATEMENTS = (*QUERIES.values(), ORPHANS, WRONG_TOTALS, ORDERS, BALANCE)


def is_asked(column: str) -> bool:
    """Say whether any query or check reads a column: Spark is given no others."""
    return any(column in statement for statement in _STATEMENTS)


def violations(ask: Ask, base: BaseTables) -> list[str]:
    """Return what is wrong with a snapshot: nothing, if all is well."""
    expected: dict[str, tuple[str, object]] = {
        "lineitems without their order": (ORPHANS, 0),
        "orders whose total is not the sum of their lineitems": (WRONG_TOTALS, 0),
        "orders": (ORDERS, len(base.order_keys)),
        "balance of all customers": (BALANCE, base.balance),
    }
    found = {name: (ask(statement)[0][0], right) for name, (statement, right) in expected.items()}
    return [f"{name}: {now}, not {right}" for name, (now, right) in found.items() if now != right]
