"""Namespaces: they are made, also nested and empty, listed page by page, and dropped when empty."""

from __future__ import annotations

import pytest

from tests.clients.operations import ROWS
from tests.conformance.cases import CLIENTS, case, refused_with
from tests.conformance.guests import Guest

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
KIND = "namespaces"


@case(KIND, *CLIENTS)
def test_tables_of_a_namespace_are_listed_page_by_page(guest: Guest, team: str) -> None:
    names = [f"t{number}" for number in range(5)]
    for name in names:
        guest.db.create_table(f"{team}.{name}", ROWS.schema)
    assert sorted(guest.list_tables([team], limit=2)) == names


@case(KIND, *CLIENTS)
def test_a_table_of_a_namespace_that_was_not_made_is_named(guest: Guest, team: str) -> None:
    with refused_with(f"{team}|not found"):
        guest.count([team, "events"])
    assert not guest.db.tables() or team not in guest.list_namespaces([])
