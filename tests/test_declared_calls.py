"""A public class declares what handles do: called of the class, a declaration refuses."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from siltstone.api.tables import TransactionTable
from tests.server.stores import joined_to

CLASSES = (st.Store, st.Table, st.Snapshot, st.SnapshotTable, st.Transaction, TransactionTable)
HANDLES = [
    *("LocalStore", "LocalTable", "LocalSnapshot", "LocalSnapshotTable"),
    *("LocalTransaction", "LocalTransactionTable", "JoinedStore", "JoinedTable"),
    *("JoinedSnapshot", "JoinedSnapshotTable", "JoinedTransaction", "JoinedTransactionTable"),
]


@pytest.fixture
def handles(tmp_path: Path) -> Iterator[dict[str, Any]]:
    with ExitStack() as held:
        owner = held.enter_context(st.connect(tmp_path / "s", background=False))
        owner.create_table("t", {"id": "int64"}, primary_key="id").upsert({"id": 1})
        found: dict[str, Any] = {}
        joined = held.enter_context(joined_to(owner))
        for db, opens in ((owner, owner.snapshot), (joined, joined.snapshot_of_owner)):
            past, tx = held.enter_context(opens()), held.enter_context(db.transaction())
            for each in (db, db["t"], past, past["t"], tx, tx["t"]):
                found[type(each).__name__] = each
        yield found


def declared(kind: type) -> dict[str, Any]:
    """Return the methods that a class only declares, and the getters of such properties."""
    names: frozenset[str] = kind.__abstractmethods__  # type: ignore[attr-defined]
    found = {name: inspect.getattr_static(kind, name) for name in names}
    return {name: getattr(member, "fget", member) for name, member in found.items()}


@pytest.mark.parametrize("name", HANDLES)
def test_a_declaration_that_is_called_of_the_class_refuses_and_names_the_handle(
    name: str, handles: dict[str, Any]
) -> None:
    handle = handles[name]
    (kind,) = {each for each in CLASSES if isinstance(handle, each)}
    assert declared(kind)
    for called, declaration in declared(kind).items():
        needed = [
            each
            for each in list(inspect.signature(declaration).parameters.values())[1:]
            if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
        ]
        refusal = rf"^{re.escape(called)} is only declared in \w+, .* the {name} itself"
        with pytest.raises(TypeError, match=refusal):
            declaration(handle, *needed)


def test_an_upsert_of_the_class_writes_nothing_and_says_so(handles: dict[str, Any]) -> None:
    table = handles["LocalTable"]
    with pytest.raises(TypeError, match=r"^upsert is only declared in WritableTable"):
        st.Table.upsert(table, {"id": 2})
    assert table.count() == 1


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_class_that_leaves_a_method_out_makes_no_handle(kind: Any) -> None:
    left_out = min(declared(kind))
    with pytest.raises(TypeError, match=rf"abstract.*{left_out}"):
        type("Half", (kind,), {})()


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_declaration_keeps_its_name_signature_and_text(kind: Any) -> None:
    for name, declaration in declared(kind).items():
        assert declaration.__name__ == name
        assert declaration.__doc__
        assert next(iter(inspect.signature(declaration).parameters)) == "self"
