"""The table of operations covers all faces: each public method is in it, or is named here with why.

The joined faces and the routes are made of the table, and this holds the three to each other.
"""

from __future__ import annotations

import inspect

import pytest

from siltstone.api.snapshot import Snapshot
from siltstone.api.store import Store
from siltstone.api.tables import SnapshotTable, Table, TransactionTable
from siltstone.api.transaction import Transaction
from siltstone.errors import RequestError
from siltstone.joined.snapshot import JoinedSnapshot, JoinedSnapshotTable
from siltstone.joined.store import JoinedStore, JoinedTable
from siltstone.joined.transactions.transaction import JoinedTransaction, JoinedTransactionTable
from siltstone.local.snapshot import LocalSnapshot, LocalSnapshotTable
from siltstone.local.store import LocalStore
from siltstone.local.tables import LocalTable
from siltstone.local.transaction import LocalTransaction
from siltstone.local.transaction_table import LocalTransactionTable
from siltstone.operations import OPERATIONS, Codec, Effect, Face, Role, of_face, operation

FACES: dict[Face, tuple[type, type, type]] = {
    Face.STORE: (Store, LocalStore, JoinedStore),
    Face.TABLE: (Table, LocalTable, JoinedTable),
    Face.TRANSACTION: (Transaction, LocalTransaction, JoinedTransaction),
    Face.TRANSACTION_TABLE: (TransactionTable, LocalTransactionTable, JoinedTransactionTable),
    Face.SNAPSHOT: (Snapshot, LocalSnapshot, JoinedSnapshot),
    Face.SNAPSHOT_TABLE: (SnapshotTable, LocalSnapshotTable, JoinedSnapshotTable),
}
NO_OPERATIONS = {
    "run": "is transactions, one after the other",
    "follow": "is made of changes, and of looks at the durable seq",
    "diff": "is made of counts, and of rows that are asked for later",
    "dataset": "is made of scans and of a snapshot",
    "to_arrow": "is made of a scan",
    "to_pandas": "is made of a scan",
    "to_polars": "is made of a scan",
    "head": "is made of a scan",
    "limit": "is made of a scan",
    "is_read_only": "is known: a joined store writes",
    "serve": "only the owner serves",
    "serve_local": "only the owner serves",
    "repair": "works on the files, without an owner",
    "import_external": "works on the files, and commits by a transaction",
    "backup": "works on the files, after a checkpoint",
}
OF_ONE_FACE = {
    (Face.STORE, "close"): "ends the connections of this process, and no more",
    (Face.TABLE, "id"): "is what its handle carries",
    (Face.TRANSACTION, "is_open"): "is known to the process that commits",
    (Face.TRANSACTION, "seq"): "is the receipt's",
    (Face.TRANSACTION, "table"): "makes a handle of an id",
    (Face.TRANSACTION_TABLE, "id"): "is what its handle carries",
}
ON_THE_WIRE_ALONE = {
    "id_of": "gives the id of a handle, `db[name]`",
    "changes_of": "gives the rows of one table of `changes`",
    "diff_counts": "counts what `diff` tells",
    "diff_of": "gives the rows of one table of `diff`",
    "lance_catalog": "answers the clients of `siltstone.namespace`",
    "write_sql": "is `sql` of a statement that writes",
    "turn": "is what `run` asks the owner for after a conflict",
    "commit_writes": "is how a transaction commits that ran in a joined process",
    "adopt": "is how such a transaction goes on at the owner",
}


def public(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.name)
def test_every_public_method_is_an_operation_or_has_a_reason_why_not(face: Face) -> None:
    declared = FACES[face][0]
    excepted = NO_OPERATIONS.keys() | {name for of, name in OF_ONE_FACE if of is face}
    operations = of_face(face).keys()
    assert public(declared) - excepted == operations - ON_THE_WIRE_ALONE.keys()
    assert not operations & excepted


def test_no_reason_outlives_the_method_that_it_is_for() -> None:
    methods = {name for declared, _, _ in FACES.values() for name in public(declared)}
    assert methods >= NO_OPERATIONS.keys()
    assert all(name in public(FACES[face][0]) for face, name in OF_ONE_FACE)
    assert {row.name for row in OPERATIONS} >= ON_THE_WIRE_ALONE.keys()


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.name)
def test_a_local_and_a_joined_face_have_the_methods_with_the_arguments_that_are_declared(
    face: Face,
) -> None:
    declared, *made = FACES[face]
    for kind in made:
        assert issubclass(kind, declared)
        assert not inspect.isabstract(kind)
        for name in public(declared):
            own, other = getattr(declared, name), getattr(kind, name)
            if callable(own):
                names = list(inspect.signature(own).parameters)
                assert list(inspect.signature(other).parameters) == names, name


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.name)
def test_a_method_that_is_made_of_the_table_says_what_its_face_says(face: Face) -> None:
    declared, _, joined = FACES[face]
    for name in of_face(face).keys() - ON_THE_WIRE_ALONE.keys():
        assert inspect.getdoc(getattr(declared, name)) == inspect.getdoc(getattr(joined, name))


def test_each_operation_is_there_once_with_a_role_and_an_effect() -> None:
    names = [row.name for row in OPERATIONS]
    assert len(set(names)) == len(names)
    for row in OPERATIONS:
        assert row.faces, row
        assert row.role > Role.NOBODY, row
        if row.codec is not Codec.VALUE and row.codec is not Codec.TABLE:
            assert row.effect is Effect.READ, row
        if row.effect is Effect.WRITE and row.name != "commit":
            assert row.role >= Role.WRITE, row  # of a commit each part needed it


def test_an_operation_that_a_face_has_not_is_refused_with_the_ones_that_it_has() -> None:
    with pytest.raises(RequestError, match=r"a table of a snapshot has no 'upsert'; it has .*scan"):
        operation(Face.SNAPSHOT_TABLE, "upsert")
    with pytest.raises(RequestError, match="a store has no '__init__'"):
        operation(Face.STORE, "__init__")
