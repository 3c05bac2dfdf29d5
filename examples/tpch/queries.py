"""Queries: seven of TPC-H's, and checks, in SQL that Spark and DuckDB both take.

Where the specification leaves the order of equal rows open the key decides, so that two right
answers are the same rows in the same order. Dates are worked out, with the parameters of the
validation runs; the threshold of Q18 is lower, as few orders are large at small scales.

In every snapshot of a run this holds:

    every lineitem has its order
    o_totalprice is the sum over the order's lineitems, to the cent; see `data`
    there are as many orders as were loaded: a refresh set inserts as many as it deletes
    the balances of the customers add up to what they were: money only moves
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal

from examples.tpch.data import BaseTables

Rows = Sequence[Sequence[object]]
Ask = Callable[[str], Rows]  # what an engine answers to a query

# Spark's average of a decimal is rounded to four more places than it has, DuckDB's is a float.
AVERAGE_TOLERANCE = 1e-6

QUERIES = {
    "Q1": """
        select l_returnflag, l_linestatus, sum(l_quantity) as sum_qty,
               sum(l_extendedprice) as sum_base_price,
               sum(l_extendedprice * (1 - l_discount)) as sum_disc_price,
               sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) as sum_charge,
               avg(l_quantity) as avg_qty, avg(l_extendedprice) as avg_price,
               avg(l_discount) as avg_disc, count(*) as count_order
        from lineitem
        where l_shipdate <= date '1998-09-02'
        group by l_returnflag, l_linestatus
        order by l_returnflag, l_linestatus""",
    "Q3": """
        select l_orderkey, sum(l_extendedprice * (1 - l_discount)) as revenue, o_orderdate,
               o_shippriority
        from customer, orders, lineitem
        where c_mktsegment = 'BUILDING' and c_custkey = o_custkey and l_orderkey = o_orderkey
          and o_orderdate < date '1995-03-15' and l_shipdate > date '1995-03-15'
        group by l_orderkey, o_orderdate, o_shippriority
        order by revenue desc, o_orderdate, l_orderkey
        limit 10""",
    "Q5": """
        select n_name, sum(l_extendedprice * (1 - l_discount)) as revenue
        from customer, orders, lineitem, supplier, nation, region
        where c_custkey = o_custkey and l_orderkey = o_orderkey and l_suppkey = s_suppkey
          and c_nationkey = s_nationkey and s_nationkey = n_nationkey
          and n_regionkey = r_regionkey and r_name = 'ASIA'
          and o_orderdate >= date '1994-01-01' and o_orderdate < date '1995-01-01'
        group by n_name
        order by revenue desc, n_name""",
    "Q6": """
        select sum(l_extendedprice * l_discount) as revenue
        from lineitem
        where l_shipdate >= date '1994-01-01' and l_shipdate < date '1995-01-01'
          and l_discount between 0.05 and 0.07 and l_quantity < 24""",
    "Q10": """
        select c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) as revenue, c_acctbal,
               n_name, c_address, c_phone, c_comment
        from customer, orders, lineitem, nation
        where c_custkey = o_custkey and l_orderkey = o_orderkey
          and o_orderdate >= date '1993-10-01' and o_orderdate < date '1994-01-01'
          and l_returnflag = 'R' and c_nationkey = n_nationkey
        group by c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
        order by revenue desc, c_custkey
        limit 20""",
    "Q12": """
        select l_shipmode,
               sum(case when o_orderpriority in ('1-URGENT', '2-HIGH') then 1 else 0 end)
                 as high_line_count,
               sum(case when o_orderpriority in ('1-URGENT', '2-HIGH') then 0 else 1 end)
                 as low_line_count
        from orders, lineitem
        where o_orderkey = l_orderkey and l_shipmode in ('MAIL', 'SHIP')
          and l_commitdate < l_receiptdate and l_shipdate < l_commitdate
          and l_receiptdate >= date '1994-01-01' and l_receiptdate < date '1995-01-01'
        group by l_shipmode
        order by l_shipmode""",
    "Q18": """
        select c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice,
               sum(l_quantity) as sum_quantity
        from customer, orders, lineitem
        where o_orderkey in (select l_orderkey from lineitem
                             group by l_orderkey having sum(l_quantity) > 250)
          and c_custkey = o_custkey and o_orderkey = l_orderkey
        group by c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
        order by o_totalprice desc, o_orderdate, o_orderkey
        limit 100""",
}
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


def difference(one: Rows, other: Rows) -> str | None:
    """Return where two answers differ first; None if they are the same.

    Decimals, integers, strings and dates are the same if they are equal, an average also if it
    is `AVERAGE_TOLERANCE` off.
    """
    if len(one) != len(other):
        return f"{len(one)} rows beside {len(other)}"
    for number, (left, right) in enumerate(zip(one, other, strict=True), 1):
        if len(left) != len(right) or not all(map(_is_same, left, right)):
            return f"row {number}: {tuple(left)} beside {tuple(right)}"
    return None


def _is_same(one: object, other: object) -> bool:
    is_average = isinstance(one, float) or isinstance(other, float)
    if is_average and isinstance(one, float | Decimal) and isinstance(other, float | Decimal):
        return math.isclose(one, other, rel_tol=0.0, abs_tol=AVERAGE_TOLERANCE)
    return one == other


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
