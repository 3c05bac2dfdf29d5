"""The awaited face has the names and the arguments of the sync one; neither drifts."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import siltstone as st
from siltstone import aio
from siltstone.api import tables

FACES: dict[type, type] = {
    st.Store: aio.Store,
    st.Table: aio.Table,
    st.Transaction: aio.Transaction,
    tables.TransactionTable: aio.TransactionTable,
    st.Snapshot: aio.Snapshot,
    st.SnapshotTable: aio.SnapshotTable,
}
ONLY_SYNC = {"closed", "closed_at"}
"""What other modules of siltstone use."""
ONLY_AWAITED = {"transaction_id"}
"""What a task asks for after it was cancelled."""
AT_ONCE = {"path", "is_read_only", "is_open", "phase", "read_seq", "receipt", "seq"}
"""Fields, which no call has to wait for; the seq of a store is asked for."""


def names_of(face: type) -> set[str]:
    declared = {name for kind in face.__mro__ for name in vars(kind).get("__annotations__", {})}
    return {name for name in {*dir(face), *declared} if name[0] != "_"} - ONLY_SYNC


def calls_of() -> Iterator[Any]:
    for sync, awaited in FACES.items():
        for name in sorted(names_of(sync)):
            member = inspect.getattr_static(sync, name, None)
            if inspect.isfunction(member):
                yield pytest.param(sync, awaited, name, id=f"{sync.__name__}.{name}")


CALLS = list(calls_of())


@pytest.mark.parametrize("sync", FACES, ids=lambda face: face.__name__)
def test_both_faces_have_the_same_names(sync: type) -> None:
    assert names_of(FACES[sync]) - ONLY_AWAITED == names_of(sync)


@pytest.mark.parametrize(("sync", "awaited", "name"), CALLS)
def test_a_call_takes_the_same_arguments_on_both_faces(
    sync: type, awaited: type, name: str
) -> None:
    expected, found = (
        [
            (each.name, each.kind, each.default)
            for each in inspect.signature(call).parameters.values()
        ]
        for call in (getattr(sync, name), getattr(awaited, name))
    )
    assert found[1:] == expected[1:], name


@pytest.mark.parametrize(("sync", "awaited", "name"), CALLS)
def test_each_call_says_what_it_does(sync: type, awaited: type, name: str) -> None:
    del sync
    text = inspect.getdoc(getattr(awaited, name))
    assert text, name
    assert ">>>" not in text, name


def test_connect_takes_the_same_arguments_and_its_bounds() -> None:
    expected, found = (set(inspect.signature(face.connect).parameters) for face in (st, aio))
    assert found - expected == {"threads_max", "answer_timeout_s"}
    assert not expected - found


def test_only_fields_are_there_without_a_wait() -> None:
    for face in FACES.values():
        for name in names_of(face) & AT_ONCE - ({"seq"} if face is aio.Store else set()):
            member = inspect.getattr_static(face, name)
            assert isinstance(member, property), name
            assert not inspect.iscoroutinefunction(member.fget), name
