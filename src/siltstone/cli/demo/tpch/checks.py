"""Checks: what holds in every snapshot, asked in SQL that Spark and DuckDB both take.

every lineitem has its order
o_totalprice is the sum over the order's lineitems, to the cent; see `data`
there are as many orders as were loaded: a refresh set inserts as many as it deletes
the balances of the customers add up to what they were: money only moves
"""

from __future__ import annotations

from collections.abc import Callable

from siltstone.cli.demo.tpch.data import Base

Ask = Callable[[str], object]  # a query of one row and one column -> its value

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


def violations(ask: Ask, base: Base) -> list[str]:
    """Return what is wrong with a snapshot: nothing, if all is well."""
    expected = {
        "lineitems without their order": (ORPHANS, 0),
        "orders whose total is not the sum of their lineitems": (WRONG_TOTALS, 0),
        "orders": (ORDERS, len(base.order_keys)),
        "balance of all customers": (BALANCE, base.balance),
    }
    found = {name: (ask(statement), right) for name, (statement, right) in expected.items()}
    return [
        f"{name}: {is_now}, not {right}"
        for name, (is_now, right) in found.items()
        if is_now != right
    ]
