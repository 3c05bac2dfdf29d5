"""A statement reads the tables that it mentions, of one snapshot, and can do nothing else.

It ends when its time is over, and with what it reads.
"""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.errors import ClosedError, CorruptionError, RequestError, TableNotFoundError
from siltstone.process import deadline
from siltstone.query.sql import sql
from tests.query.scannable import Recording, result_of

ORDERS = pa.table(
    {
        "id": [1, 2, 3, 4],
        "customer": [1, 1, 2, None],
        "total": [1.5, float("nan"), 3.0, -0.0],
        "note": ["a", "b", "a", None],
        "moment": pa.array([0, 1, 2, 3], pa.timestamp("us", "UTC")),
    }
)
CUSTOMERS = pa.table({"id": [1, 2], "name": ["ada", "bob"]})
NAMES = ["orders", "customers", "sales.lines", "odd name-1", "Ünits", "never"]


class Tables:
    """The tables of a snapshot; keeps those that were asked for."""

    def __init__(self) -> None:
        self.opened: dict[str, Recording] = {}

    def __call__(self, name: str) -> Recording | None:
        if name == "never":
            return None
        table = CUSTOMERS if name == "customers" else ORDERS
        return self.opened.setdefault(name, Recording(table))


@pytest.fixture
def tables() -> Tables:
    return Tables()


def run(tables: Tables, text: str, parameters=None) -> sql.Result:
    return result_of(text, tables, NAMES, parameters)


def test_tables_join(tables):
    found = run(
        tables,
        "SELECT name, count(*) AS n FROM orders JOIN customers ON customer = customers.id"
        " GROUP BY name ORDER BY name",
    )
    assert found.fetchall() == [("ada", 2), ("bob", 1)]
    assert found.columns == ["name", "n"]


def test_only_the_tables_that_the_statement_mentions_are_opened(tables):
    run(tables, "SELECT 'customers' FROM orders")
    assert list(tables.opened) == ["orders"]


def test_filters_and_columns_reach_the_scan(tables):
    found = run(tables, "SELECT id FROM orders WHERE note = 'a' AND id > 1")
    assert found.fetchall() == [(3,)]
    ((columns, pushed, _),) = tables.opened["orders"].calls
    assert {"id"} <= set(columns) <= {"id", "note"}  # DuckDB 2 leaves out what is only filtered
    assert "id > 1" in pushed
    assert 'note == "a"' in pushed


@pytest.mark.parametrize(
    ("text", "opened"),
    [
        ("SELECT count(*) FROM ORDERS", "orders"),
        ("SELECT count(*) FROM main.orders", "orders"),
        ("SELECT count(*) FROM sales.lines", "sales.lines"),
        ('SELECT count(*) FROM "sales.lines"', "sales.lines"),
        ('SELECT count(*) FROM "odd name-1"', "odd name-1"),
        ('SELECT count(*) FROM "Ünits"', "Ünits"),
        ("SELECT (SELECT count(*) FROM orders)", "orders"),
        ("WITH x AS (FROM orders) SELECT count(*) FROM x", "orders"),
        ("FROM orders SELECT count(*)", "orders"),
    ],
)
def test_a_table_is_found_however_it_is_written(tables, text, opened):
    assert run(tables, text).fetchall() == [(4,)]
    assert list(tables.opened) == [opened]


def test_what_only_duckdb_can_parse_finds_its_tables_too(tables):
    text = "SELECT list_transform([id], lambda x: x + 1) FROM orders WHERE id = 1"
    assert run(tables, text).fetchall() == [([2],)]


def test_a_name_may_hold_a_quote():
    source = Recording(ORDERS)
    found = result_of('SELECT count(*) FROM "a""b"', lambda _: source, ['a"b'])
    assert found.fetchall() == [(4,)]


def test_names_that_differ_only_by_case_are_refused(tables):
    with pytest.raises(RequestError, match="does not distinguish 't' and 'T'"):
        result_of('SELECT * FROM t JOIN "T" USING (id)', tables, ["t", "T"])


def test_a_table_that_is_gone_is_named(tables):
    with pytest.raises(TableNotFoundError, match="never"):
        run(tables, "SELECT * FROM never")


@pytest.mark.parametrize(
    "text",
    ["SHOW TABLES", "DESCRIBE orders", "SUMMARIZE customers", "EXPLAIN SELECT * FROM orders"],
)
def test_a_statement_may_ask_about_tables(text):
    assert len(result_of(text, Tables(), NAMES[:-1])) > 0


@pytest.mark.timeout(60)  # a search for EXPLAIN at every blank took minutes
@pytest.mark.parametrize("verb", ["", "EXPLAIN "])
def test_a_statement_of_many_blanks_is_read_as_any_other(tables, verb):
    end = " FROM orders WHERE note = 'explain  analyze'"
    text = f"{verb}SELECT id{end:>{sql.TEXT_BYTES_MAX - len(verb) - 9}}"
    assert len(text) == sql.TEXT_BYTES_MAX
    assert len(run(tables, text)) == (1 if verb else 0)
    assert list(tables.opened) == ["orders"]


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("SELECT id FROM orders WHERE id = ? AND note = ?", [3, "a"]),
        ("SELECT id FROM orders WHERE id = $1", (3,)),
        ("SELECT id FROM orders WHERE id = $id", {"id": 3}),
    ],
)
def test_parameters_are_bound(tables, text, parameters):
    assert run(tables, text, parameters).fetchall() == [(3,)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT 1; SELECT 2", "one statement; this text has 2"),
        ("", "has 0"),
        ("SELEC 1", "DuckDB refuses"),
        ("SELECT nope FROM orders", "DuckDB refuses"),
        ("SELECT * FROM nowhere", "there is no table 'nowhere'"),
        ("SELECT ?", "DuckDB refuses"),
        ("SELECT * FROM read_csv('/etc/passwd')", "is a file, which no statement reads or writes"),
        ("SELECT * FROM '/etc/passwd'", "there is no table"),
        ("SELECT * FROM read_text('/etc/passwd')", "is a file, which no statement reads or writes"),
        ("SELECT * FROM glob('/*')", "is a file, which no statement reads or writes"),
        ("SELECT * FROM NAMES", "there is no table"),
        ("CREATE TABLE x (i INT)", "only read, and this is CREATE"),
        ("INSERT INTO orders VALUES (1)", "only read, and this is INSERT"),
        ("DELETE FROM orders", "only read, and this is DELETE"),
        ("BEGIN", "use db.transaction()"),
        ("COPY orders TO '/tmp/x'", "this is COPY, which is not offered"),
        ("ATTACH '/tmp/x.db'", "this is ATTACH, which is not offered"),
        ("SET enable_external_access = true", "which is not offered"),
        ("PRAGMA enable_external_access = true", "which is not offered"),
        ("LOAD httpfs", "this is LOAD, which is not offered"),
        ("UPDATE EXTENSIONS", "this is no query, which is not offered"),
        ("PIVOT orders ON note USING first(id)", "runs one statement"),
        ("EXPLAIN ANALYZE COPY orders TO '/tmp/x'", "EXPLAIN is for a query, and this is of COPY"),
    ],
)
def test_a_statement_that_is_no_query_over_the_snapshot_is_refused(tables, text, words):
    with pytest.raises(RequestError, match=words):
        run(tables, text)


@pytest.mark.parametrize(
    "text", ["FROM duckdb_secrets()", "SELECT * FROM which_secret('s3://x', 's3')"]
)
def test_a_look_for_secrets_finds_none_and_names_no_directory_of_the_server(tables, text):
    assert run(tables, text).to_arrow().num_rows == 0


def test_damage_met_while_scanning_stays_damage(tables):
    damage = CorruptionError("tables/x", 7, "the checksum does not match")
    with pytest.raises(CorruptionError) as caught:
        result_of("SELECT * FROM t", lambda _: Recording(ORDERS, damage), ["t"])
    assert caught.value is damage


def test_a_result_is_read_as_often_and_in_whatever_form(tables):
    found = run(tables, "SELECT id, note FROM orders ORDER BY id")
    assert found.arrow().to_pydict() == {"id": [1, 2, 3, 4], "note": ["a", "b", "a", None]}
    assert found.schema.names == ["id", "note"]
    assert list(found) == found.fetchall() == [(1, "a"), (2, "b"), (3, "a"), (4, None)]
    assert pa.table(found).num_rows == len(found) == 4


def test_a_result_becomes_a_pandas_frame(tables):
    frame = run(tables, "SELECT id FROM orders WHERE id < 3 ORDER BY id").df()
    assert frame["id"].tolist() == [1, 2]


def test_values_come_back_as_what_they_are(tables):
    found = run(
        tables, "SELECT sum(id), 1.5::DECIMAL(5, 2), max(moment), DATE '2020-01-01' FROM orders"
    )
    ((total, decimal, at, day),) = found.fetchall()
    assert (total, type(total)) == (10, int)
    assert (decimal, day) == (Decimal("1.50"), dt.date(2020, 1, 1))
    assert at == dt.datetime(1970, 1, 1, 0, 0, 0, 3, tzinfo=dt.UTC)
    ((big,),) = run(tables, "SELECT 170141183460469231731687303715884105::HUGEINT").fetchall()
    assert int(big) == 170141183460469231731687303715884105


def test_a_comparison_that_is_pushed_down_answers_as_duckdb_does(tables):
    # To DuckDB NaN is the greatest number; to Arrow, and so to the filter of a scan, it is none.
    found = run(tables, "SELECT id FROM orders WHERE total >= 0 ORDER BY id")
    assert found.fetchall() == [(1,), (2,), (3,), (4,)]


def test_a_result_shows_itself_as_a_small_table(tables):
    found = run(tables, "SELECT id, note FROM orders WHERE id IN (1, 4) ORDER BY id")
    assert repr(found) == "id  note\n--  ----\n1   a\n4   NULL\n(2 rows)"
    many = run(tables, "SELECT range AS n, 'x' || repeat('y', 99) AS text FROM range(20)")
    assert len(repr(many).splitlines()) == 13
    assert repr(many).endswith("(20 rows)")
    assert repr(run(tables, "SELECT 1 AS one")) == "one\n---\n1\n(1 row)"
    assert repr(run(tables, "SELECT id FROM orders WHERE id > 9")) == "id\n--\n(0 rows)"


# Counts


class Counting(Recording):
    """A table that knows how many rows it has."""

    def count(self) -> int:
        return self.table.num_rows


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT count(*) FROM t", [(4,)]),
        ("SELECT count(*) AS n, count() FROM main.t AS x", [(4, 4)]),
        ('FROM "T" SELECT count(*)', [(4,)]),
        ("SELECT count(*) + 1 AS n FROM (SELECT 1), (SELECT count(*) FROM t)", [(2,)]),
        ("WITH c AS (SELECT count(*) AS n FROM t) SELECT n * 2 FROM c WHERE n > 3", [(8,)]),
        ("SELECT (SELECT count(*) FROM t), count(*) FROM u WHERE id < 3", [(4, 2)]),
    ],
)
def test_rows_that_are_only_counted_are_not_read(text, rows):
    table, other = Counting(ORDERS), Recording(ORDERS)
    found = result_of(text, lambda name: table if name == "t" else other, ["t", "u"])
    assert found.fetchall() == rows
    assert table.calls == []


class Ordering(Recording):
    """A table that finds its rows by key."""

    ordered_key = ("id",)

    def scan_by(self, columns, wanted, *, column=None, ends=(), descending, limit, likely):
        assert (wanted, column, ends, limit) == (None, None, (), 1)
        found = self.table.select(columns).sort_by(
            [("id", ["ascending", "descending"][descending])]
        )
        return found.slice(0, likely).to_reader()


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT min(id) FROM t", [(1,)]),
        ("SELECT min(ID) AS a, max(id) AS z, max(id) FROM t AS x", [(1, 4, 4)]),
        ("FROM t SELECT max(id)", [(4,)]),
        ("SELECT (SELECT max(id) FROM t) + count(*) FROM u", [(8,)]),
    ],
)
def test_the_ends_of_the_key_are_found_without_a_scan(text, rows):
    table, other = Ordering(ORDERS), Recording(ORDERS)
    found = result_of(text, lambda name: table if name == "t" else other, ["t", "u"])
    assert found.fetchall() == rows
    assert table.calls == []


@pytest.mark.parametrize(
    "text",
    [
        "SELECT min(id), max(total) FROM t",
        "SELECT min(customer) FROM t",
        "SELECT min(id, 2) FROM t",
        "SELECT min(s.id) FROM t",
        "SELECT min(id) FILTER (WHERE id > 2) FROM t",
        "SELECT min(id) FROM t WHERE id > 2",
        "SELECT min(id), count(*) FROM t",
        "SELECT min(DISTINCT id), max(-id) FROM t",
        "SELECT min(id) OVER () FROM t",
        "SELECT min(id), max(id) FROM t AS x(customer, id)",
        "SELECT min(id) FROM t x(customer, id)",
    ],
)
def test_what_needs_more_than_the_ends_of_the_key_reads_all_rows(text):
    rows = ORDERS.append_column("s", pa.array([{"id": value} for value in (9, -9, 5, 7)]))
    found = [result_of(text, lambda _, k=kind: k(rows), ["t"]) for kind in (Ordering, Recording)]
    assert repr(found[0].fetchall()) == repr(found[1].fetchall())


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) FROM t WHERE id > 0",
        "SELECT count(*), max(id) FROM t",
        "SELECT count(note) FROM t",
        "SELECT count(DISTINCT note) FROM t",
        "SELECT count(*) FILTER (WHERE id > 1) FROM t",
        "SELECT count(*) OVER () FROM t",
        "SELECT count(*) FROM t GROUP BY note",
        "SELECT count(*) FROM t, u",
        "SELECT count(*) FROM u, t",
        "SELECT count(*) FROM t TABLESAMPLE 50 PERCENT (bernoulli)",
        "SELECT count(* EXCLUDE (note)) FROM t",
        "SELECT (SELECT count(*) FROM t), (SELECT max(id) FROM t)",
        "SELECT (SELECT count(*) FROM t), (SELECT max(id) FROM main.t)",
        "SELECT (SELECT count(*) FROM t), (SELECT max(id) FROM query_table('t'))",
        "SELECT count(*) FROM (FROM t)",
    ],
)
def test_rows_that_are_read_for_more_than_their_number_have_their_values(text):
    def answer(kind):
        try:
            found = result_of(text, lambda _: kind(ORDERS), ["t", "u"])
        except RequestError as error:
            return str(error)
        return len(found) if "SAMPLE" in text else sorted(map(repr, found))

    assert answer(Counting) == answer(Recording)


# Its end

LONG = "SELECT count(*) FROM range(40000) a, range(40000) b WHERE a.range + b.range < 0"
"""Work for some seconds, which comes to an end also where nobody ends it."""


def test_a_statement_ends_with_the_time_of_its_thread(tables):
    over = deadline.Deadline(0.5, lambda: True)
    with deadline.within(over), pytest.raises(RequestError, match=r"longer than 0\.5 s"):
        run(tables, LONG)


def test_a_statement_ends_when_what_it_reads_is_closed(tables):
    def closed() -> None:
        raise ClosedError("the store is closed")

    with pytest.raises(ClosedError, match="the store is closed"):
        result_of(LONG, tables, NAMES, check=closed)


def test_the_scans_of_a_statement_have_its_time(tables):
    seen = []

    class Looking(Recording):
        def scan(self, *asked):
            seen.append(deadline.current())
            return super().scan(*asked)

        def _pull(self, table):
            for batch in super()._pull(table):
                seen.append(deadline.current())
                yield batch

    given = deadline.Deadline(60.0, lambda: False)
    with deadline.within(given):
        result_of("SELECT count(*) FROM t", lambda _: Looking(ORDERS), ["t"])
    assert len(seen) > 1
    assert set(seen) == {given}


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("select ? as x", [2**127]),
        ("select 340282366920938463463374607431768211455::uhugeint as x", None),
        ("select [5::uhugeint] as x", None),
    ],
)
def test_a_whole_number_that_arrow_would_have_as_another_is_refused(
    text: str, given: list[int] | None
) -> None:
    with st.connect(":memory:", background=False) as db:
        with pytest.raises(st.RequestError, match=r"'x' is a UHUGEINT, which .*: cast it"):
            db.sql(text, given)
        assert db.sql("select ? as x", [2**127 - 1]).fetchall() == [(2**127 - 1,)]
