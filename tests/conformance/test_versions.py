"""Versions: they begin with 1, each write makes one, and an older one is read and restored."""

from __future__ import annotations

import pyarrow as pa
import pytest
from lance_namespace import errors

from tests.clients.operations import NEW, ROWS
from tests.conformance.cases import CLIENTS, FILES, case, refused_with
from tests.conformance.guests import Guest, Path, Pylance, PylanceInProcess
from tests.conformance.lancedb_guests import LanceDBNamespace, LanceDBRemote
from tests.conformance.operation_guests import Generated, OperationsInProcess

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
KIND = "versions"
MODELS = (Pylance, Generated, PylanceInProcess, OperationsInProcess)


@case(KIND, *CLIENTS, causes=(4,))
def test_the_first_version_of_a_table_is_1(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    assert guest.versions(table) == [1]
    assert guest.version(table) == 1


@case(KIND, *MODELS, causes=(4,))
def test_the_first_version_is_described_and_read(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    assert guest.described_version(table, 1) == 1
    assert guest.count(table, version=1) == 3


@case(KIND, *CLIENTS, causes=(4,))
def test_each_write_makes_the_next_version(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.append(table, NEW)
    guest.delete(table, "id = 1")
    assert guest.versions(table) == [1, 2, 3]


@case(KIND, *CLIENTS, causes=(4,))
def test_every_listed_version_is_read(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.append(table, NEW)
    guest.delete(table, "id < 3")
    counts = [guest.count(table, version=version) for version in guest.versions(table)]
    assert counts == [3, 4, 2]


@case(KIND, *CLIENTS)
def test_rows_of_an_older_version_are_read(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    before = guest.version(table)
    guest.update(table, "id = 1", v="'changed'")
    assert guest.rows(table, ["v"], "id = 1", version=before).to_pylist() == [{"v": "a"}]
    assert guest.rows(table, ["v"], "id = 1").to_pylist() == [{"v": "changed"}]


@case(KIND, *CLIENTS)
def test_an_older_version_is_restored_as_the_newest(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    before = guest.version(table)
    guest.delete(table, "id > 0")
    guest.restore(table, before)
    assert guest.count(table) == 3
    assert guest.version(table) > before + 1


@case(KIND, *CLIENTS)
def test_a_version_that_was_never_made_is_refused(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    with refused_with("(?i)version", errors.TableVersionNotFoundError):
        guest.count(table, version=77)


@case(KIND, *MODELS, LanceDBRemote, causes=(4,))
def test_a_table_that_siltstone_made_has_versions_too(guest: Guest, table: Path) -> None:
    made = guest.db.create_table(table[0], ROWS.schema)
    made.append(ROWS)
    made.append(NEW)
    versions = guest.versions(table)
    assert guest.count(table, version=versions[-1]) == 4
    assert guest.count(table, version=versions[-2]) == 3


@case(KIND, *FILES)
def test_a_handle_that_is_old_appends_to_the_newest_version(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    old = guest.open(table)
    guest.append(table, NEW)
    more = NEW.set_column(0, "id", pa.array([10]))
    (old.add if isinstance(guest, LanceDBNamespace) else old.insert)(more)
    assert set(guest.rows(table, ["id"])["id"].to_pylist()) == {1, 2, 3, 9, 10}


@case(KIND, LanceDBNamespace, LanceDBRemote)
def test_a_handle_that_looks_at_an_old_version_refuses_to_write(guest: Guest, table: Path) -> None:
    guest.create(table, ROWS)
    guest.append(table, NEW)
    handle = guest.open(table)
    handle.checkout(1)
    with refused_with("(?i)checkout|cannot be modified|specific version"):
        handle.add(NEW)
    handle.checkout_latest()
    handle.add(NEW)
    assert guest.count(table) == 5
