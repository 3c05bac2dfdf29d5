"""Namespaces: they are made, also nested and empty, listed page by page, and dropped when empty."""

from __future__ import annotations

import pytest
from lance_namespace import errors

from tests.clients.operations import ROWS
from tests.conformance.cases import CLIENTS, case, refused_with
from tests.conformance.guests import Guest

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
KIND = "namespaces"


@case(KIND, *CLIENTS, causes=(1,))
def test_an_empty_namespace_is_made_and_listed(guest: Guest, team: str) -> None:
    assert team not in guest.list_namespaces([])
    guest.create_namespace([team])
    assert team in guest.list_namespaces([])
    assert guest.list_tables([team]) == []


@case(KIND, *CLIENTS, causes=(1,))
def test_a_table_is_made_in_a_namespace_that_was_made_before(guest: Guest, team: str) -> None:
    guest.create_namespace([team])
    guest.create([team, "events"], ROWS)
    assert guest.list_tables([team]) == ["events"]
    assert guest.count([team, "events"]) == 3
    assert "events" not in guest.list_tables([])


@case(KIND, *CLIENTS, causes=(1,))
def test_a_namespace_lies_in_another(guest: Guest, team: str) -> None:
    guest.create_namespace([team])
    guest.create_namespace([team, "inner"])
    assert guest.list_namespaces([team]) == ["inner"]
    assert guest.list_namespaces([team, "inner"]) == []


@case(KIND, *CLIENTS, causes=(1,))
def test_a_table_lies_four_namespaces_deep(guest: Guest, team: str) -> None:
    path = [team]
    guest.create_namespace(path)
    for name in ("a", "b", "c"):
        path = [*path, name]
        guest.create_namespace(path)
    guest.create([*path, "events"], ROWS)
    guest.append([*path, "events"], ROWS)
    assert guest.list_tables(path) == ["events"]
    assert guest.count([*path, "events"]) == 6
    assert guest.list_tables([team]) == []


@case(KIND, *CLIENTS, causes=(1,))
def test_two_namespaces_have_tables_of_one_name(guest: Guest, team: str) -> None:
    for name, rows in ((f"{team}x", ROWS), (f"{team}y", ROWS.slice(1))):
        guest.create_namespace([name])
        guest.create([name, "events"], rows)
    assert [guest.count([name, "events"]) for name in (f"{team}x", f"{team}y")] == [3, 2]
    guest.drop([f"{team}x", "events"])
    assert guest.count([f"{team}y", "events"]) == 2


@case(KIND, *CLIENTS, causes=(1,))
def test_an_empty_namespace_is_dropped(guest: Guest, team: str) -> None:
    guest.create_namespace([team])
    guest.drop_namespace([team])
    assert team not in guest.list_namespaces([])


@case(KIND, *CLIENTS, causes=(1,))
def test_a_namespace_stays_when_its_last_table_is_dropped(guest: Guest, team: str) -> None:
    guest.create_namespace([team])
    guest.create([team, "events"], ROWS)
    guest.drop([team, "events"])
    assert team in guest.list_namespaces([])
    assert guest.list_tables([team]) == []


@case(KIND, *CLIENTS, causes=(1,))
def test_a_namespace_with_a_table_is_not_dropped(guest: Guest, team: str) -> None:
    guest.create_namespace([team])
    guest.create([team, "events"], ROWS)
    with refused_with("not empty", errors.NamespaceNotEmptyError):
        guest.drop_namespace([team])
    assert guest.count([team, "events"]) == 3


@case(KIND, *CLIENTS, causes=(1,))
def test_a_namespace_with_a_namespace_is_not_dropped(guest: Guest, team: str) -> None:
    guest.create_namespace([team])
    guest.create_namespace([team, "inner"])
    with refused_with("not empty", errors.NamespaceNotEmptyError):
        guest.drop_namespace([team])
    assert guest.list_namespaces([team]) == ["inner"]


@case(KIND, *CLIENTS, causes=(1,))
def test_a_namespace_is_made_once(guest: Guest, team: str) -> None:
    guest.create_namespace([team])
    with refused_with("exists already", errors.NamespaceAlreadyExistsError):
        guest.create_namespace([team])


@case(KIND, *CLIENTS, causes=(1,))
def test_a_namespace_that_exists_may_be_asked_for_again(guest: Guest, team: str) -> None:
    guest.create_namespace([team], mode="exist_ok")
    guest.create_namespace([team], mode="exist_ok")
    assert guest.list_namespaces([]).count(team) == 1


@case(KIND, *CLIENTS, causes=(1,))
def test_a_namespace_is_described(guest: Guest, team: str) -> None:
    guest.create_namespace([team])
    assert isinstance(guest.describe_namespace([team]), dict)
    with refused_with("no namespace", errors.NamespaceNotFoundError):
        guest.describe_namespace([f"{team}none"])


@case(KIND, *(each for each in CLIENTS if hasattr(each, "has_namespace")), causes=(1,))
def test_whether_a_namespace_exists_is_told(guest: Guest, team: str) -> None:
    assert not guest.has_namespace([team])
    guest.create_namespace([team])
    assert guest.has_namespace([team])


@case(KIND, *CLIENTS, causes=(1,))
def test_namespaces_are_listed_page_by_page(guest: Guest, team: str) -> None:
    guest.create_namespace([team])
    names = [f"n{number}" for number in range(7)]
    for name in names:
        guest.create_namespace([team, name])
    assert sorted(guest.list_namespaces([team], limit=3)) == names


@case(KIND, *CLIENTS, causes=(1,))
def test_tables_of_a_namespace_are_listed_page_by_page(guest: Guest, team: str) -> None:
    names = [f"t{number}" for number in range(5)]
    for name in names:
        guest.db.create_table(f"{team}.{name}", ROWS.schema)
    assert sorted(guest.list_tables([team], limit=2)) == names


@case(KIND, *CLIENTS, causes=(1,))
def test_a_table_of_a_namespace_that_was_not_made_is_named(guest: Guest, team: str) -> None:
    with refused_with(f"{team}|not found"):
        guest.count([team, "events"])
    assert not guest.db.tables() or team not in guest.list_namespaces([])


@case(KIND, *CLIENTS, causes=(1, 3))
def test_a_renamed_table_stays_in_its_namespace(guest: Guest, team: str) -> None:
    guest.create_namespace([team])
    guest.create([team, "events"], ROWS)
    guest.rename([team, "events"], "visits", [team])
    assert guest.list_tables([team]) == ["visits"]
    assert "visits" not in guest.list_tables([])
    assert guest.count([team, "visits"]) == 3


@case(KIND, *(each for each in CLIENTS if "LanceDB" not in each.name), causes=(1, 3))
def test_a_rename_that_names_no_namespace_does_not_move_the_table(guest: Guest, team: str) -> None:
    guest.create_namespace([team])
    guest.create([team, "events"], ROWS)
    guest.rename([team, "events"], "visits")
    assert guest.list_tables([team]) == ["visits"]


@case(KIND, *CLIENTS, causes=(1, 3))
def test_a_table_moves_to_a_namespace_that_exists(guest: Guest, team: str) -> None:
    guest.create_namespace([team])
    guest.create_namespace([f"{team}other"])
    guest.create([team, "events"], ROWS)
    guest.rename([team, "events"], "events", [f"{team}other"])
    assert (guest.list_tables([team]), guest.list_tables([f"{team}other"])) == ([], ["events"])
