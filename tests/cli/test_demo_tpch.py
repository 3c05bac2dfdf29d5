"""The refresh sets keep what the demo checks, the checks see what is broken, and answers agree."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import siltstone as st
from examples.tpch import data, queries
from examples.tpch.refresh import RefreshSets

SCALE = 0.01


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return data.generate(tmp_path_factory.mktemp("tpch") / "parquet", SCALE)


@pytest.fixture(scope="module")
def base(files: dict[str, Path]) -> data.BaseTables:
    return data.BaseTables.read(files, SCALE)


@pytest.fixture(scope="module")
def sets(files: dict[str, Path], base: data.BaseTables) -> RefreshSets:
    return RefreshSets(files, base)


@pytest.fixture(scope="module")
def parquet(files: dict[str, Path]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name, file in files.items():
        connection.execute(f"create view {name} as select * from '{file}'")
    return connection


@pytest.fixture(scope="module")
def loaded(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Store]:
    """All eight tables in one commit, and nothing else."""
    with st.connect(tmp_path_factory.mktemp("tpch") / "store", background=False) as store:
        with store.transaction() as tx:
            for name, key in data.KEYS.items():
                schema = data.schema(files[name])
                tx.create_table(name, schema, key)
                tx[name].insert(pq.read_table(files[name]).cast(schema))
        yield store


def apply(tx: st.Transaction, found: pa.Table) -> None:
    """Apply a refresh set as the stream does."""
    inserts = found.filter(pc.equal(found["op"], "insert"))
    tx["orders"].insert(pa.Table.from_struct_array(inserts["order"]))
    tx["lineitem"].insert(pa.Table.from_struct_array(pc.list_flatten(inserts["lines"])))
    deletes = found.filter(pc.equal(found["op"], "delete"))
    tx["orders"].delete(deletes["o_orderkey"].to_pylist())
    lines = pa.Table.from_struct_array(pc.list_flatten(deletes["lines"]))
    keys = lines.select(["l_orderkey", "l_linenumber"]).to_pydict()
    tx["lineitem"].delete(list(zip(keys["l_orderkey"], keys["l_linenumber"], strict=True)))


def wrong(store: st.Store, base: data.BaseTables, seq: int | None = None) -> list[str]:
    with store.snapshot(seq=seq) as snapshot:
        return queries.violations(lambda text: snapshot.sql(text).fetchall(), base)


def test_generated_tables_hold_what_the_demo_checks_in_every_snapshot(
    parquet: duckdb.DuckDBPyConnection, base: data.BaseTables
) -> None:
    assert queries.violations(lambda text: parquet.sql(text).fetchall(), base) == []
    assert len(base.order_keys) == 15_000
    assert base.customers == 1_500


@pytest.mark.parametrize("query", queries.QUERIES)
def test_a_query_has_the_same_answer_over_the_store_and_over_its_source(
    query: str, parquet: duckdb.DuckDBPyConnection, loaded: st.Store
) -> None:
    rows = parquet.sql(queries.QUERIES[query]).fetchall()
    assert rows
    assert rows[0][0] is not None
    answer = loaded.snapshot(seq=1).sql(queries.QUERIES[query]).fetchall()
    assert queries.difference(answer, rows) is None


def test_refresh_sets_keep_what_the_demo_checks(
    loaded: st.Store, base: data.BaseTables, sets: RefreshSets
) -> None:
    first = loaded.seq
    for number in range(3):
        with loaded.transaction() as tx:
            apply(tx, sets[number])
        assert wrong(loaded, base) == []
    keys = set(loaded["orders"].to_arrow(["o_orderkey"])["o_orderkey"].to_pylist())
    for number in range(3):
        assert keys.issuperset(sets.new_keys(number).tolist())
        assert keys.isdisjoint(sets.old_keys(number).tolist())
    assert [wrong(loaded, base, seq) for seq in range(first, loaded.seq)] == [[]] * 3


def test_half_a_refresh_set_is_a_violation(
    loaded: st.Store, base: data.BaseTables, sets: RefreshSets
) -> None:
    tx = loaded.transaction()
    apply(tx, sets[5])
    last = int(base.order_keys[-1])
    line = tx["lineitem"].get((last, 1))
    assert line is not None
    tx["lineitem"].upsert(line | {"l_orderkey": last + 24})
    tx["orders"].delete(int(sets.new_keys(5)[0]))
    tx["customer"].update(1, c_acctbal=Decimal(0))
    total = tx["orders"].get(int(sets.new_keys(5)[1]))["o_totalprice"]  # type: ignore[index]
    tx["orders"].update(int(sets.new_keys(5)[1]), o_totalprice=total + Decimal("0.01"))
    seq = tx.commit().seq
    found = [text.split(":")[0] for text in wrong(loaded, base)]
    assert found == [
        "lineitems without their order",
        "orders whose total is not the sum of their lineitems",
        "orders",
        "balance of all customers",
    ]
    assert wrong(loaded, base, seq - 1) == []
    with loaded.transaction() as undo, loaded.snapshot(seq=seq - 1) as before:
        for name in ("orders", "lineitem", "customer"):
            undo[name].truncate()
            undo[name].insert(before[name].to_arrow())
    assert wrong(loaded, base) == []


def test_a_refresh_set_made_again_is_the_same(sets: RefreshSets) -> None:
    assert sets[7].equals(sets[7])
    assert not sets[7].equals(sets[8])
    sets[7].validate(full=True)
    assert sets[7].schema.equals(sets[8].schema)


def test_refresh_sets_end_when_the_generated_orders_are_used_up(sets: RefreshSets) -> None:
    assert len(sets) == 1_000
    assert len(sets[999]) == 2 * sets.orders_per_set
    with pytest.raises(IndexError):
        sets[1_000]


def test_new_orders_lie_in_the_gaps_between_the_generated_ones(
    base: data.BaseTables, sets: RefreshSets
) -> None:
    new = {key for number in range(len(sets)) for key in sets.new_keys(number).tolist()}
    assert len(new) == len(sets) * sets.orders_per_set
    assert new.isdisjoint(base.order_keys.tolist())


def test_new_orders_refer_to_what_is_there(
    sets: RefreshSets, parquet: duckdb.DuckDBPyConnection
) -> None:
    found = sets[3]
    inserts = found.filter(pc.equal(found["op"], "insert"))
    orders = pa.Table.from_struct_array(inserts["order"])
    lines = pa.Table.from_struct_array(pc.list_flatten(inserts["lines"]))
    assert orders.num_rows == sets.orders_per_set
    assert 1 <= lines.num_rows / orders.num_rows <= 7
    local = parquet.cursor()
    local.register("new_orders", orders)
    local.register("new_lines", lines)
    for statement in (
        "select count(*) from new_orders anti join customer on o_custkey = c_custkey",
        "select count(*) from new_orders where o_custkey % 3 = 0",
        """select count(*) from new_lines
           anti join partsupp on l_partkey = ps_partkey and l_suppkey = ps_suppkey""",
        """select count(*) from new_lines join part on l_partkey = p_partkey
           where l_extendedprice <> l_quantity * p_retailprice""",
        """select count(*) from new_lines join new_orders on l_orderkey = o_orderkey
           where l_shipdate <= o_orderdate or l_receiptdate <= l_shipdate""",
    ):
        assert local.sql(statement).fetchall() == [(0,)], statement


def test_answers_differ_by_a_cent_a_row_or_their_order_but_not_by_how_an_average_is_rounded() -> (
    None
):
    rows = [("A", Decimal("1.10"), 25.500000049), ("B", 2, 3.0)]
    assert queries.difference(rows, [("A", Decimal("1.1"), Decimal("25.500000")), rows[1]]) is None
    assert queries.difference(rows, rows[:1]) == "2 rows beside 1"
    for other in ([("A", Decimal("1.11"), 25.5), rows[1]], rows[::-1], [rows[0], ("B", 2, 3.1)]):
        assert str(queries.difference(rows, other)).startswith("row ")


def test_a_missing_generator_is_named() -> None:
    with pytest.raises(st.UnavailableError, match="tpchgen-cli"):
        data.generator(places="")


def test_a_scale_that_the_generator_refuses_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(st.UnavailableError, match="tpchgen-cli ended with"):
        data.generate(tmp_path / "new", -1)
