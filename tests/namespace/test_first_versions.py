"""Version 1 of a plain table is one, whoever writes it first, by path or through the catalog."""

# pyright: reportArgumentType=false

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace import errors

import siltstone as st
from siltstone.api.store import Store
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.clients import append, ids, make, opened, rows
from tests.namespace.staging import Staging, staged

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
SCHEMA = {"id": "int64", "v": "string"}
THEIRS = rows(90, 92)


def folder_of(db: Store, name: str = "t") -> str:
    with db.snapshot() as snapshot:
        return str(db.path / snapshot.versions(name).folder)


def stored(db: Store, name: str = "t") -> list[int]:
    found: list[Any] = db[name].to_arrow()["id"].to_pylist()
    return sorted(found)


def whole(db: Store, expected: list[int], name: str = "t") -> None:
    """The store, its clients, and after a while readers by path see the same rows."""
    ns = SiltstoneNamespace(db)
    for step in (lambda: None, db.checkpoint, db.merge, db.optimize):
        step()
        assert stored(db, name) == expected
        assert ids(opened(ns, name)) == expected
    db.vacuum(dry_run=False, grace_s=0)
    assert ids(lance.dataset(folder_of(db, name))) == stored(db, name) == expected
    assert db.verify(deep=True).is_sound


def created(db: Store) -> None:
    db.create_table("t", SCHEMA)


def declared(db: Store) -> None:
    with db.transaction() as tx:
        tx.lance.tx.declare_table("t")


def declared_after_a_refusal(db: Store) -> None:
    """A first version that is refused takes its declaration along; the client declares again."""
    ns = SiltstoneNamespace(db)
    unfit = pa.table({"id": [1], "v": pa.array([None], pa.null())})
    with contextlib.suppress(Exception):
        make(ns, "t", unfit)
    if "t" not in db.tables():
        declared(db)


BEGINNINGS = [created, declared, declared_after_a_refusal]
MODES = ["create", "append", "overwrite"]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("begin", BEGINNINGS, ids=lambda begin: begin.__name__)
def test_rows_by_path_in_a_table_without_a_version_are_no_rows_of_it(
    db: Store, ns: SiltstoneNamespace, begin: Callable[[Store], None], mode: str, count: int
) -> None:
    begin(db)
    for number in range(count):
        lance.write_dataset(THEIRS, folder_of(db), mode="append" if number else mode)
    if begin is not created:
        make_or_append(ns)
    else:
        db["t"].append(rows(0, 2))
    assert [v["version"] for v in versions(ns)] == [1]
    append(ns, "t", rows(2, 3))
    whole(db, [0, 1, 2])


def make_or_append(ns: SiltstoneNamespace) -> None:
    for _ in range(2):  # a version by path stands in the way once
        with contextlib.suppress(Exception):
            lance.write_dataset(rows(0, 2), namespace_client=ns, table_id=["t"], mode="overwrite")
            return
    lance.write_dataset(rows(0, 2), namespace_client=ns, table_id=["t"], mode="overwrite")


def versions(ns: SiltstoneNamespace) -> list[dict[str, Any]]:
    return [v.model_dump() for v in ns.list_table_versions({"id": ["t"]}).versions]


@pytest.mark.parametrize("begin", [created, declared], ids=lambda begin: begin.__name__)
def test_of_two_first_versions_one_is_committed_and_the_other_refused(
    db: Store, ns: SiltstoneNamespace, begin: Callable[[Store], None]
) -> None:
    begin(db)
    requests = [staged(ns, "t", rows(n, n + 1), "overwrite") for n in (0, 1)]
    if begin is declared:
        assert [request["version"] for request in requests] == [1, 1]
    ns.create_table_version(requests[0])
    with pytest.raises(errors.LanceNamespaceError):
        ns.create_table_version(requests[1])
    append(ns, "t", rows(5, 6))
    whole(db, [0, 5])


@pytest.mark.parametrize("again", ["create", "make"])
def test_a_first_version_of_a_dropped_table_is_none_of_the_table_made_again(
    db: Store, ns: SiltstoneNamespace, again: str
) -> None:
    make(ns, "t", rows(0, 2))
    handle = opened(ns, "t")
    old = Staging(ns)
    late = opened(old, "t")
    folder = folder_of(db)
    db.drop_table("t")
    if again == "make":
        make(ns, "t", rows(5, 6))
    else:
        db.create_table("t", SCHEMA).append(rows(5, 6))
    assert folder_of(db) != folder
    with contextlib.suppress(OSError):
        late.insert(rows(70, 71))
    for request in old.staged:
        with pytest.raises((errors.LanceNamespaceError, st.SiltstoneError)):
            ns.create_table_version(request)
    for change in (
        lambda: handle.insert(rows(80, 81)),
        lambda: handle.delete("id = 0"),
        lambda: handle.update({"v": "'y'"}),
    ):
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            change()
        assert stored(db) == [5]
    lance.write_dataset(rows(60, 61), folder, mode="append")  # by path, where it was
    append(ns, "t", rows(6, 7))
    whole(db, [5, 6])
