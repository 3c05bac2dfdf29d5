"""A version written by path, past the catalog, fails no client and changes no commit.

`lance.write_dataset(rows, "<store>/tables/<name>-<id>", mode="append")` takes the next number of a
plain table in its folder. Nothing reads that version; it is named, kept, and imported on request.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace import errors
from lancedb.namespace import LanceNamespaceDBConnection

import siltstone as st
from siltstone.api.store import Store
from siltstone.maintenance.repair.verify import DRIFT
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.clients import append, ids, make, opened, rows
from tests.namespace.staging import Staging
from tests.server.rest import rest_of
from tests.server.stores import joined_to
from tests.server.test_rest_namespace import space_of

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
OWN, THEIRS = [0, 1], rows(10, 12)


def folder_of(db: Store, name: str = "t") -> str:
    with db.snapshot() as snapshot:
        return str(db.path / snapshot.versions(name).folder)


def by_path(db: Store, table: Any = THEIRS, mode: str = "append") -> None:
    lance.write_dataset(table, folder_of(db), mode=mode)


def stored(db: Store) -> list[int]:
    found: list[Any] = db["t"].to_arrow()["id"].to_pylist()
    return sorted(found)


def drift(db: Store) -> list[str]:
    found = db.verify()
    assert found.is_sound
    return [str(finding) for finding in found.findings if finding.severity == DRIFT]


@pytest.fixture(params=["in process", "joined", "over REST"])
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Store, Any]]:
    """A store, and a catalog of it for stock clients."""
    if request.param == "over REST":
        with rest_of(tmp_path / "shop") as (db, service, _):
            yield db, space_of(service)
        return
    with st.connect(tmp_path / "shop", background=False) as db:
        if request.param == "in process":
            yield db, SiltstoneNamespace(db)
            return
        with joined_to(db) as joined:
            yield db, SiltstoneNamespace(joined)


def test_a_client_of_the_catalog_appends_after_an_append_by_path(door: tuple[Store, Any]) -> None:
    db, ns = door
    make(ns, "t", rows(0, 2))
    for number in range(3):
        by_path(db, rows(10 + number, 11 + number))
    append(ns, "t", rows(20, 21))
    assert (stored(db), ids(opened(ns, "t"))) == ([*OWN, 20], [*OWN, 20])
    assert lance.dataset(folder_of(db)).count_rows() == 3
    assert len(drift(db)) == 3


CHANGES: dict[str, Callable[[Any], object]] = {
    "append": lambda handle: handle.insert(rows(40, 41)),
    "delete": lambda handle: handle.delete("id = 1"),
    "update": lambda handle: handle.update({"v": "'new'"}, where="id = 1"),
    "index": lambda handle: handle.create_scalar_index("id", "BTREE"),
    "column": lambda handle: handle.add_columns({"twice": "id * 2"}),
}
BY_PATH = {
    "append": by_path,
    "index": lambda db: lance.dataset(folder_of(db)).create_scalar_index("v", "BTREE"),
    "delete": lambda db: lance.dataset(folder_of(db)).delete("id = 0"),
    "delete of all": lambda db: lance.dataset(folder_of(db)).delete("id < 2"),
    "overwrite": lambda db: by_path(db, mode="overwrite"),
}
PAIRS = [*(("append", theirs) for theirs in BY_PATH), *((change, "append") for change in CHANGES)]


def built_elsewhere(
    db: Store, ns: SiltstoneNamespace, theirs: Callable[[Store], object], ours: Any, change: Any
) -> None:
    """Let a client stage a change on a version by path, with the number that ours takes next."""
    client = Staging(ns)
    handle = opened(client, "t")
    theirs(db)
    with contextlib.suppress(OSError):  # it looks for the version that it believes committed
        change(handle)
    ours()
    for request in client.staged:
        before = stored(db), db.seq
        with pytest.raises(errors.InvalidTableStateError, match="open the table again"):
            ns.create_table_version(request)
        assert (stored(db), db.seq) == before


@pytest.mark.parametrize(("change", "theirs"), sorted({*PAIRS}))
def test_no_row_is_lost_when_a_client_builds_on_a_version_by_path_with_the_number_of_ours(
    db: Store, ns: SiltstoneNamespace, change: str, theirs: str
) -> None:
    make(ns, "t", rows(0, 1))
    append(ns, "t", rows(1, 2))
    ours = partial(db["t"].append, rows(30, 32))  # without a public name, as yet
    built_elsewhere(db, ns, BY_PATH[theirs], ours, CHANGES[change])
    assert stored(db) == [*OWN, 30, 31]
    append(ns, "t", rows(50, 51))
    assert stored(db) == [*OWN, 30, 31, 50]
    assert len(drift(db)) == 1


def test_a_row_that_was_deleted_does_not_come_back_with_a_delete_built_on_a_version_by_path(
    db: Store, ns: SiltstoneNamespace
) -> None:
    make(ns, "t", rows(0, 9))

    def ours() -> None:
        opened(ns, "t").delete("id = 3")

    built_elsewhere(db, ns, by_path, ours, lambda handle: handle.delete("id = 5"))
    assert stored(db) == [0, 1, 2, *range(4, 9)]


@pytest.mark.parametrize("ours", ["delete", "settings"])
@pytest.mark.parametrize("change", ["delete", "update"])
def test_a_delete_by_path_is_not_brought_along_by_a_client_that_was_built_on_it(
    db: Store, ns: SiltstoneNamespace, change: str, ours: str
) -> None:
    """Ours has the same number and fragments, and Lance notes nothing of what it was built on."""
    make(ns, "t", rows(0, 9))
    own: dict[str, Callable[[], object]] = {
        "delete": lambda: opened(ns, "t").delete("id = 3"),
        "settings": lambda: opened(ns, "t").update_config({"a": "b"}),
    }
    built_elsewhere(db, ns, BY_PATH["delete"], own[ours], CHANGES[change])
    left = [n for n in range(9) if n != 3 or ours == "settings"]
    assert stored(db) == left
    CHANGES[change](opened(ns, "t"))
    assert stored(db) == [n for n in left if n != 1 or change == "update"]


def test_verify_names_a_version_by_path_before_the_next_checkpoint(
    db: Store, ns: SiltstoneNamespace
) -> None:
    make(ns, "t", rows(0, 2))
    by_path(db)
    (found,) = drift(db)
    assert "tables/t-" in found
    assert "2 of them appended by it" in found


def test_a_client_that_began_before_a_write_by_path_is_told_of_a_conflict_and_then_commits(
    db: Store, ns: SiltstoneNamespace
) -> None:
    make(ns, "t", rows(0, 2))
    handle = opened(ns, "t")
    by_path(db)
    with pytest.raises(OSError, match="Commit conflict"):  # not "unknown": nothing was committed
        lance.LanceDataset.commit(
            handle,
            lance.LanceOperation.Append(lance.fragment.write_fragments(rows(20, 21), handle)),
            read_version=1,
            max_retries=1,
            namespace_client=ns,
            table_id=["t"],
            namespace_client_managed_versioning=True,
        )
    assert stored(db) == OWN
    handle.insert(rows(20, 21))
    assert stored(db) == [*OWN, 20]
    assert len(drift(db)) == 1


def test_lancedb_writes_on_after_a_write_by_path(db: Store, ns: SiltstoneNamespace) -> None:
    make(ns, "t", rows(0, 2))
    by_path(db)
    table = LanceNamespaceDBConnection(ns).open_table("t")
    table.add(rows(20, 21))
    table.delete("id = 0")
    assert stored(db) == [1, 20]
    assert len(drift(db)) == 1


VICTIM = """
import sys
import siltstone as st
from siltstone.failpoints import arm
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.clients import append, rows

db = st.connect(sys.argv[1], background=False)
arm(sys.argv[2])
append(SiltstoneNamespace(db), "t", rows(20, 21))
"""


@pytest.mark.parametrize("order", ["aside.after_link=kill", "aside.after_unlink=kill"])
def test_a_kill_while_a_version_by_path_is_set_aside_leaves_it_once(
    tmp_path: Path, order: str
) -> None:
    where = tmp_path / "shop"
    with st.connect(where, background=False) as db:
        make(SiltstoneNamespace(db), "t", rows(0, 2))
        by_path(db)
    done = subprocess.run([sys.executable, "-c", VICTIM, str(where), order], check=False)
    assert done.returncode == -signal.SIGKILL
    with st.connect(where, background=False) as db:
        assert len(drift(db)) == 1
        append(SiltstoneNamespace(db), "t", rows(30, 31))
        assert len(drift(db)) == 1
        assert db.import_external("t", dry_run=False).rows == 2
        assert stored(db) == [*OWN, 10, 11, 30]
        assert drift(db) == []


def test_every_own_statement_goes_on_beside_a_version_by_path(
    db: Store, ns: SiltstoneNamespace
) -> None:
    make(ns, "t", rows(0, 5))
    by_path(db)
    db["t"].append(rows(5, 8))
    db["t"].delete_where("id = 0")
    by_path(db, mode="overwrite")
    with db.transaction() as tx:
        tx["t"].append(rows(8, 9))
        tx["t"].delete_where("id = 1")
    assert stored(db) == [*range(2, 9)]
    db.optimize()
    db["t"].add_column("note", "string")
    db["t"].overwrite(pa.table({"id": [1], "v": ["x"], "note": ["y"]}))
    assert (stored(db), ids(opened(ns, "t"))) == ([1], [1])
    assert len(drift(db)) == 2
    assert db["t"].count() == 1


def test_a_table_in_a_transaction_of_clients_is_written_beside_a_version_by_path(
    db: Store, ns: SiltstoneNamespace
) -> None:
    make(ns, "t", rows(0, 2))
    by_path(db)
    with ns.transaction() as tx:
        append(tx, "t", rows(20, 21))
        append(tx, "t", rows(21, 22))
    assert stored(db) == [*OWN, 20, 21]
    assert len(drift(db)) == 1
