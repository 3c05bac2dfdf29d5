"""Queries: all rows without a limit, the columns and rows that were asked for, and no others."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.clients.operations import ROWS
from tests.conformance.cases import CLIENTS, case
from tests.conformance.guests import Guest, Path
from tests.conformance.lancedb_guests import LanceDBNamespace, LanceDBRemote

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
KIND = "queries"
MANY = pa.table({"id": range(5_000), "v": [f"v{number}" for number in range(5_000)]})


@case(KIND, *CLIENTS, causes=(2,))
def test_a_query_without_a_limit_gives_all_rows(guest: Guest, table: Path) -> None:
    guest.create(table, MANY)
    found = guest.rows(table)
    assert found.num_rows == 5_000
    assert set(found["id"].to_pylist()) == set(range(5_000))


@case(KIND, *CLIENTS, causes=(2,))
def test_a_filter_without_a_limit_gives_all_that_match(guest: Guest, table: Path) -> None:
    guest.create(table, MANY)
    assert guest.rows(table, where="id >= 100").num_rows == 4_900


@case(KIND, LanceDBNamespace, LanceDBRemote, causes=(2,))
def test_a_whole_table_is_taken_at_once(guest: Guest, table: Path) -> None:
    guest.create(table, MANY)
    handle = guest.open(table)
    assert handle.search().to_arrow().num_rows == 5_000
    assert handle.search().where("id < 20").to_arrow().num_rows == 20
    assert handle.search().limit(None).to_arrow().num_rows == 5_000
    assert handle.search().limit(0).to_arrow().num_rows == 5_000
    assert handle.search().offset(4_990).to_arrow().num_rows == 10
    assert len(handle.search().select(["id"]).to_list()) == 5_000
    assert sum(batch.num_rows for batch in handle.search().to_batches()) == 5_000


@case(KIND, LanceDBRemote, causes=(2,))
def test_the_asynchronous_client_reads_without_a_limit(guest: Guest, table: Path) -> None:
    import asyncio

    import lancedb

    guest.create(table, MANY)

    async def counted() -> list[int]:
        connection = await lancedb.connect_async(
            "db://dev", api_key="any", host_override=guest.service.url
        )
        handle = await connection.open_table(table[0])
        queries = (handle.query(), handle.query().where("id < 20"))
        found = [(await query.to_arrow()).num_rows for query in queries]
        found.append((await handle.to_arrow()).num_rows)
        found.append(len(await handle.query().to_list()))
        found.append((await handle.query().offset(4_990).to_arrow()).num_rows)
        batches = await handle.query().to_batches()
        found.append(sum([batch.num_rows async for batch in batches]))
        return [*found, (await handle.query().limit(7).to_arrow()).num_rows]

    assert asyncio.run(counted()) == [5_000, 20, 5_000, 5_000, 10, 5_000, 7]


@case(KIND, *CLIENTS)
def test_a_limit_bounds_the_rows(guest: Guest, table: Path) -> None:
    guest.create(table, MANY)
    assert guest.rows(table, limit=7).num_rows == 7


@case(KIND, *CLIENTS)
def test_an_offset_skips_rows(guest: Guest, table: Path) -> None:
    guest.create(table, MANY)
    first = guest.rows(table, ["id"], limit=10)["id"].to_pylist()
    then = guest.rows(table, ["id"], limit=10, offset=10)["id"].to_pylist()
    assert len(set(first) | set(then)) == 20


@case(KIND, *CLIENTS)
def test_the_columns_that_are_asked_for_come_in_their_order(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    assert guest.rows(table, ["v", "id"], limit=9).schema.names == ["v", "id"]


@case(KIND, *CLIENTS, causes=(3,))
def test_columns_are_computed(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    found = guest.rows(table, {"next": "id + 1", "v": "v"}, limit=9)
    assert found.schema.names == ["next", "v"]
    assert sorted(found["next"].to_pylist()) == [2, 3, 4]


@case(KIND, *CLIENTS, causes=(3,))
def test_columns_get_other_names(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    found = guest.rows(table, {"word": "v"}, "id = 2", limit=9)
    assert found.to_pylist() == [{"word": "b"}]


@case(KIND, *CLIENTS)
def test_a_filter_on_text_with_a_quote_is_right(guest: Guest, table: Path) -> None:
    guest.create(table, pa.table({"v": ["it's", "plain"]}))
    assert guest.rows(table, where="v = 'it''s'", limit=9).to_pylist() == [{"v": "it's"}]


@case(KIND, *CLIENTS)
def test_filters_on_nulls_lists_and_patterns_are_right(guest: Guest, table: Path) -> None:
    guest.create(table, pa.table({"id": [1, 2, 3, 4], "v": ["ab", None, "bc", "cd"]}))

    def ids(where: str) -> list[int]:
        return sorted(guest.rows(table, ["id"], where, limit=9)["id"].to_pylist())

    assert ids("v is null") == [2]
    assert ids("v like '%b%'") == [1, 3]
    assert ids("id in (2, 4) or v = 'ab'") == [1, 2, 4]
    assert ids("not (id between 2 and 3)") == [1, 4]


@case(KIND, *CLIENTS)
def test_a_filter_that_matches_nothing_gives_no_rows(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    found = guest.rows(table, where="id = 77", limit=9)
    assert (found.num_rows, found.schema.names) == (0, ["id", "v", "e"])


@case(KIND, *CLIENTS)
def test_rows_are_counted_with_a_filter(guest: Guest, table: Path) -> None:
    guest.create(table, MANY)
    assert guest.count(table) == 5_000
    assert guest.count(table, "id % 2 = 0") == 2_500


@case(KIND, *CLIENTS)
def test_a_column_of_a_struct_is_filtered(guest: Guest, table: Path) -> None:
    guest.create(table, pa.table({"id": [1, 2], "at": [{"x": 1}, {"x": 5}]}))
    assert guest.rows(table, ["id"], "at.x > 3", limit=9).to_pylist() == [{"id": 2}]


@case(KIND, *CLIENTS)
def test_a_query_sees_what_was_written_a_moment_ago(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    for number in (11, 12, 13):
        guest.db[table[0]].append({"id": number, "v": "x", "e": [0.0, 0.0]})
        assert guest.count(table, f"id = {number}") == 1
