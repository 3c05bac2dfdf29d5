"""Bad input: names, depths and widths that no table has are refused in words, and nothing is made.

Where a client has names joined by a delimiter, a name with that delimiter in it is two names.
"""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pytest
from lance_namespace import errors

from tests.clients.operations import ROWS
from tests.conformance.cases import CLIENTS, case, refused_with
from tests.conformance.guests import Guest, Path

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
KIND = "bad input"
WIDE = pa.table({f"c{number}": [number] for number in range(10_000)})
DEEP = [f"l{number}" for number in range(1_000)]
NAMES = ("a/b", "../b", "a%2Fb", "a b", ".hidden", "_x", "x" * 300, "naïve", "日本", "a\nb", "a;b")


@case(KIND, *CLIENTS)
def test_ten_thousand_columns_are_refused(guest: Guest, table: Path) -> None:
    with refused_with("1 to 4000 columns|at most 4000 columns|unknown", errors.InvalidInputError):
        guest.create(table, WIDE)
    assert table[0] not in guest.list_tables([])
    guest.create(table, ROWS)
    assert guest.count(table) == 3


@case(KIND, *CLIENTS)
def test_a_namespace_a_thousand_levels_deep_is_refused(guest: Guest) -> None:
    with refused_with("at most 17 levels; got 1000", errors.InvalidInputError):
        guest.create_namespace(DEEP)
    with refused_with("at most 17 levels; got 1000", errors.InvalidInputError):
        guest.list_tables(DEEP)
    assert DEEP[0] not in guest.list_namespaces([])


@case(KIND, *CLIENTS)
def test_a_table_a_thousand_levels_deep_is_refused(guest: Guest) -> None:
    with refused_with("at most 17 levels; got 1001", errors.InvalidInputError):
        guest.create([*DEEP, "t"], ROWS)
    with refused_with("at most 17 levels; got 1001", errors.InvalidInputError):
        guest.count([*DEEP, "t"])
    assert DEEP[0] not in guest.list_namespaces([])


@case(KIND, *CLIENTS)
def test_names_that_no_table_has_are_refused(guest: Guest) -> None:
    before = guest.db.tables()
    for name in NAMES:
        with refused_with("(?i)name|characters|id", errors.InvalidInputError):
            guest.create([name], ROWS)
    assert guest.db.tables() == before


@case(KIND, *CLIENTS)
def test_names_that_no_namespace_has_are_refused(guest: Guest) -> None:
    before = guest.list_namespaces([])
    for name in ("a.b", *NAMES):
        with refused_with("(?i)name|characters|id|level", errors.InvalidInputError):
            guest.create_namespace([name])
    assert guest.list_namespaces([]) == before


@case(KIND, *CLIENTS)
def test_a_name_with_a_delimiter_is_refused_or_two_names(guest: Guest, team: str) -> None:
    before = guest.db.tables()
    with suppress(Exception):  # of a class of the client's own
        guest.create([f"{team}$t"], ROWS)
    assert set(guest.db.tables()) - {*before} <= {f"{team}.t"}
