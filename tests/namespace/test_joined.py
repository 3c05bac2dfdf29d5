"""Stock clients beside the owner: another process has the store, and takes over what they write."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import pytest
from lance_namespace import errors

from siltstone.api.store import Store
from siltstone.errors import ConflictError, RequestError
from siltstone.joined.store import JoinedStore
from siltstone.lance_versions.fresh import FreshVersions
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.clients import append, ids, make, opened, rows
from tests.namespace.staging import staged
from tests.namespace.test_transactions import committed
from tests.server.stores import joined_to


@pytest.fixture
def joined(db: Store) -> Iterator[JoinedStore]:
    with joined_to(db) as joined:
        yield joined


@pytest.fixture
def ns(joined: JoinedStore) -> SiltstoneNamespace:
    return SiltstoneNamespace(joined)


def test_plain_tables_are_made_and_written_as_in_the_owner(
    db: Store, ns: SiltstoneNamespace
) -> None:
    make(ns, "t", rows(0, 5))
    append(ns, "t", rows(5, 10))
    opened(ns, "t").delete("id = 3")
    (
        opened(ns, "t")
        .merge_insert("id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute(rows(9, 12, "new"))
    )
    assert ids(opened(ns, "t")) == [0, 1, 2, *range(4, 12)]
    assert sorted(db["t"].to_arrow()["id"].to_pylist()) == [0, 1, 2, *range(4, 12)]
    assert [v.version for v in ns.list_table_versions({"id": ["t"]}).versions] == [1, 2, 3, 4]
    assert opened(ns, "t", version=1).count_rows() == 5
    described = ns.describe_table({"id": ["t"], "load_detailed_metadata": True})
    assert [field.name for field in described.var_schema.fields] == ["id", "v"]
    ns.rename_table({"id": ["t"], "new_table_name": "u", "new_namespace_id": ["db"]})
    assert (db.tables(), ns.list_namespaces({"id": []}).namespaces) == (["db.u"], ["db"])
    assert db.verify().is_sound


def test_keyed_tables_are_read_as_merged_or_fresh(db: Store, joined: JoinedStore) -> None:
    db._parts.fresh = FreshVersions(db._core, interval_s=0)
    table = joined.create_table("k", {"id": "int64", "v": "string"}, "id")
    table.upsert(rows(0, 3))
    joined.checkpoint()
    joined.merge()
    table.upsert(rows(3, 4))
    seq = joined.seq
    table.upsert(rows(4, 5))
    merged, fresh = SiltstoneNamespace(joined), SiltstoneNamespace(joined, keyed="fresh")
    assert ids(opened(merged, "k")) == [0, 1, 2]
    assert ids(opened(fresh, "k")) == [0, 1, 2, 3, 4]
    with fresh.at(seq=seq) as past, merged.at(seq=seq) as base:
        assert ids(opened(past, "k")) == [0, 1, 2, 3]
        assert ids(opened(base, "k")) == [0, 1, 2]
        with pytest.raises(errors.PermissionDeniedError):
            past.declare_table({"id": ["x"]})
    with pytest.raises(errors.InvalidInputError, match="merge_insert_into_table"):
        merged.create_table_version({"id": ["k"], "version": 3, "manifest_path": "x"})


def test_statements_of_a_transaction_are_committed_together(
    db: Store, joined: JoinedStore, ns: SiltstoneNamespace
) -> None:
    make(ns, "a", rows(0, 5))
    make(ns, "b", rows(0, 5))
    db.create_table("k", {"id": "int64", "v": "string"}, "id")
    seq = db.seq
    with ns.transaction() as tx:
        append(tx, "a", rows(5, 6))
        opened(tx, "b").delete("id < 2")
        tx.transaction["k"].upsert(rows(0, 1))
        assert (ids(opened(tx, "a")), ids(opened(tx, "b"))) == ([*range(6)], [2, 3, 4])
        assert (opened(ns, "a").count_rows(), opened(ns, "b").count_rows()) == (5, 5)
    assert (db.seq, db["a"].count(), db["b"].count(), db["k"].count()) == (seq + 1, 6, 3, 1)
    tx = ns.transaction()
    append(tx, "a", rows(6, 7))
    tx.rollback()
    tx = ns.transaction()
    append(tx, "a", rows(6, 7))
    append(ns, "a", rows(7, 8))
    with pytest.raises(ConflictError):
        tx.commit()
    assert ids(opened(ns, "a")) == [*range(6), 7]


def test_a_batch_is_all_or_nothing_and_errors_have_their_classes(
    db: Store, ns: SiltstoneNamespace
) -> None:
    make(ns, "a", rows(0, 1))
    make(ns, "b", rows(0, 1))
    first, second = ([staged(ns, name, rows(n, n + 1)) for name in "ab"] for n in (1, 2))
    committed(ns, *first)
    seq = db.seq
    with pytest.raises(errors.ConcurrentModificationError):
        committed(ns, *second)
    for kind, ask in (
        (errors.TableNotFoundError, lambda: ns.describe_table({"id": ["nobody"]})),
        (errors.NamespaceNotFoundError, lambda: ns.list_tables({"id": ["nowhere"]})),
        (errors.TableAlreadyExistsError, lambda: ns.declare_table({"id": ["a"]})),
        (errors.InvalidInputError, lambda: ns.batch_commit_tables({"operations": 5})),
        (errors.InvalidInputError, lambda: ns.describe_table({"id": 5})),
        (errors.TableVersionNotFoundError,
         lambda: ns.describe_table_version({"id": ["a"], "version": 9})),
        (errors.UnsupportedOperationError, lambda: ns.register_table({"id": ["x"]})),
    ):  # fmt: skip
        with pytest.raises(kind):
            ask()
    assert (db.seq, db.tables(), db["a"].count()) == (seq, ["a", "b"], 2)


WRITER = """
import sys
import siltstone as st
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.clients import append, rows

with st.connect(sys.argv[1], join=True) as db:
    ns = SiltstoneNamespace(db)
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(3):
        append(ns, "t", rows(n, n + 1))
"""


def test_clients_in_two_processes_commit_to_one_table(db: Store, ns: SiltstoneNamespace) -> None:
    make(ns, "t", rows(100, 101))
    command = [sys.executable, "-c", WRITER, str(db.path)]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "ready\n"
        other.stdin.write("go\n")
        other.stdin.flush()
        for n in range(3, 6):
            append(ns, "t", rows(n, n + 1))
        assert other.wait(timeout=60) == 0
    assert ids(opened(ns, "t")) == [*range(6), 100]
    assert db["t"].count() == 7


def test_a_store_whose_files_are_elsewhere_is_refused(joined: JoinedStore, tmp_path: Path) -> None:
    joined._is_remote, joined.path = True, tmp_path / "elsewhere"
    with pytest.raises(RequestError, match="on this machine"):
        SiltstoneNamespace(joined)
