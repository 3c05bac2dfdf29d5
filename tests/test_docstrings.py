"""Each public class, method and function shows an example in its docstring, and it runs."""

from __future__ import annotations

import doctest
import inspect
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from siltstone.api.tables import TransactionTable

CLASSES = (st.Store, st.Snapshot, st.Transaction, st.Table, st.SnapshotTable, TransactionTable)
ALONE = (st.connect, st.restore, st.repair, st.backups)
VALUES = tuple(getattr(st, name) for name in st.__all__ if isinstance(getattr(st, name), type))
"""What calls return and raise, and what else has a name."""
OPTIONS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL


def calls_of(kind: type) -> Iterator[tuple[str, Any]]:
    """Give the public methods and properties that a public class declares, or inherits from one."""
    for name in sorted({name for each in kind.__mro__ for name in vars(each)}):
        home = next(each for each in kind.__mro__ if name in vars(each))
        if name[0] != "_" and home.__module__.startswith("siltstone.api."):
            member = vars(home)[name]
            if isinstance(member, property | types.FunctionType) and name not in kind._internal:
                yield f"{kind.__name__}.{name}", member


def documented() -> dict[str, Any]:
    found: dict[str, Any] = {each.__name__: each for each in (*CLASSES, *VALUES, *ALONE)}
    for kind in CLASSES:
        found |= calls_of(kind)
    return found


DOCUMENTED = documented()
DISTINCT = {id(each): name for name, each in reversed(DOCUMENTED.items())}


@pytest.mark.parametrize("name", DISTINCT.values())
def test_each_has_an_example_and_it_does_what_it_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with st.connect("shop", background=False) as db:
        schema = {"id": "int64", "amount": "float64", "note": "string"}
        orders = db.create_table("orders", schema, primary_key="id")
        orders.insert(
            [{"id": 1, "amount": 20.0, "note": "a"}, {"id": 2, "amount": 5.0, "note": "b"}]
        )
        events = db.create_table("events", data=[{"n": 1}, {"n": 2}, {"n": 3}])
        db.tag("opened")
        given = {"st": st, "db": db, "orders": orders, "events": events}
        text = inspect.getdoc(DOCUMENTED[name]) or ""
        test = doctest.DocTestParser().get_doctest(text, given, name, None, None)
        assert test.examples
        said: list[str] = []
        failed = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=said.append).failed
        assert not failed, "".join(said)
