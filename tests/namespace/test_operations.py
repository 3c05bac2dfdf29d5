"""The page says of every operation of the specification whether it is offered in process."""

# pyright: reportArgumentType=false

from __future__ import annotations

import inspect
from pathlib import Path

import lance_namespace as spec
import pytest
from lance_namespace import errors

from siltstone.lance_namespace.operations import REFUSED
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.clients import make, rows

PAGE = Path(__file__).parents[2] / "docs" / "namespace.md"
OPERATIONS = sorted(
    name
    for name, _ in inspect.getmembers(spec.LanceNamespace, inspect.isfunction)
    if not name.startswith("_") and name != "namespace_id"
)


def offers(name: str) -> bool:
    is_there = getattr(SiltstoneNamespace, name) is not getattr(spec.LanceNamespace, name)
    return is_there and name not in REFUSED


def table() -> str:
    lines = [f"| `{name}` | {'works' if offers(name) else 'code 0'} |" for name in OPERATIONS]
    return "\n".join(["| operation | in process |", "| --- | --- |", *lines])


def test_the_page_lists_them_all() -> None:
    assert table() in PAGE.read_text(), f"put this into {PAGE.name}:\n{table()}"


@pytest.mark.parametrize("name", [name for name in OPERATIONS if not offers(name)])
def test_what_is_not_offered_is_refused_by_its_code(ns: SiltstoneNamespace, name: str) -> None:
    arguments = [{"id": ["t"]}, b""][: len(inspect.signature(getattr(ns, name)).parameters)]
    with pytest.raises(errors.UnsupportedOperationError):
        getattr(ns, name)(*arguments)


def test_a_refusal_says_what_cannot_be_done(ns: SiltstoneNamespace) -> None:
    with pytest.raises(errors.UnsupportedOperationError, match="elsewhere cannot be registered"):
        ns.register_table({"id": ["t"], "location": "elsewhere"})


def test_a_namespace_that_nobody_created_comes_and_goes_with_its_tables(
    ns: SiltstoneNamespace,
) -> None:
    with pytest.raises(errors.NamespaceNotFoundError):
        ns.drop_namespace({"id": ["db"]})
    make(ns, "db.t", rows(0, 1))
    with pytest.raises(errors.NamespaceAlreadyExistsError):
        ns.create_namespace({"id": ["db"]})
    with pytest.raises(errors.NamespaceNotEmptyError):
        ns.drop_namespace({"id": ["db"]})
    ns.drop_table({"id": ["db", "t"]})
    with pytest.raises(errors.NamespaceNotFoundError):
        ns.describe_namespace({"id": ["db"]})


def test_a_table_has_no_branch(ns: SiltstoneNamespace) -> None:
    make(ns, "t", rows(0, 1))
    assert ns.list_table_branches({"id": ["t"]}).branches == {}
    with pytest.raises(errors.TableNotFoundError):
        ns.list_table_branches({"id": ["nobody"]})
