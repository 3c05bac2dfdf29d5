"""Tags: each table has its own, a tag is a version, and deleting one touches no other table's."""

from __future__ import annotations

import pytest
from lance_namespace import errors

from tests.clients.operations import NEW, ROWS
from tests.conformance.cases import CLIENTS, case, refused_with
from tests.conformance.guests import Guest, Path
from tests.conformance.lancedb_guests import LanceDBNamespace, LanceDBRemote
from tests.conformance.operation_guests import Generated, OperationsInProcess

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
KIND = "tags"


def two_tables(guest: Guest, table: Path) -> tuple[Path, Path]:
    other = [f"{table[0]}b"]
    guest.create(table, ROWS)
    guest.create(other, ROWS)
    return table, other


@case(KIND, *CLIENTS, causes=(5,))
def test_a_tag_is_set_and_listed(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.append(table, NEW)
    guest.tag(table, "old", 1)
    guest.tag(table, "new", 2)
    assert guest.tags(table) == {"old": 1, "new": 2}


@case(KIND, *CLIENTS, causes=(4, 5))
def test_the_first_version_is_tagged(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.tag(table, "first", 1)
    assert guest.tagged(table, "first") == 1


@case(KIND, *CLIENTS, causes=(3,))
def test_tags_are_of_one_table(guest: Guest, table: Path) -> None:
    one, other = two_tables(guest, table)
    guest.tag(one, "kept", guest.version(one))
    assert guest.tags(other) == {}


@case(KIND, *CLIENTS, causes=(3,))
def test_two_tables_have_a_tag_of_one_name(guest: Guest, table: Path) -> None:
    one, other = two_tables(guest, table)
    guest.append(other, NEW)
    guest.tag(one, "kept", 1)
    guest.tag(other, "kept", 2)
    assert (guest.tagged(one, "kept"), guest.tagged(other, "kept")) == (1, 2)


@case(KIND, *CLIENTS, causes=(3,))
def test_a_deleted_tag_leaves_the_other_tables_tag(guest: Guest, table: Path) -> None:
    one, other = two_tables(guest, table)
    guest.tag(one, "kept", 1)
    guest.tag(other, "kept", 1)
    guest.untag(other, "kept")
    assert guest.tags(one) == {"kept": 1}
    assert guest.tags(other) == {}


@case(KIND, *CLIENTS)
def test_a_tag_is_moved_to_another_version(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.append(table, NEW)
    guest.tag(table, "current", 1)
    guest.move_tag(table, "current", 2)
    assert guest.tagged(table, "current") == 2


@case(KIND, *CLIENTS)
def test_a_tag_is_set_once(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.tag(table, "kept", 1)
    with refused_with("already", errors.TableTagAlreadyExistsError):
        guest.tag(table, "kept", 1)


@case(KIND, *CLIENTS, causes=(4,))
def test_a_version_that_is_not_there_is_not_tagged(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    with refused_with("(?i)version|was not found", errors.TableVersionNotFoundError):
        guest.tag(table, "kept", 77)
    assert guest.tags(table) == {}


@case(KIND, *CLIENTS)
def test_a_tag_that_is_not_there_is_refused(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    with refused_with("(?i)tag|was not found", errors.TableTagNotFoundError):
        guest.tagged(table, "none")


@case(KIND, LanceDBNamespace, LanceDBRemote)
def test_a_table_is_read_at_a_tag(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.tag(table, "old", guest.version(table))
    guest.append(table, NEW)
    handle = guest.open(table)
    handle.checkout("old")
    assert handle.count_rows() == 3


@case(KIND, Generated, OperationsInProcess)
def test_a_table_is_restored_to_a_tag(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.tag(table, "old", guest.version(table))
    guest.delete(table, "id > 0")
    guest.restore(table, guest.tagged(table, "old"))
    assert guest.count(table) == 3
