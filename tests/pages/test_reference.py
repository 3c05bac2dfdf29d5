"""The reference has every public name, what public calls return, and Spark's options, each once."""

from __future__ import annotations

import inspect
import re
import typing
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest

import siltstone
from pages.tree import ROOT
from siltstone import errors
from siltstone.api.tables import TransactionTable

REFERENCE = ROOT / "docs" / "reference"
SHOWN = Counter(
    name
    for page in sorted(REFERENCE.glob("*.md"))
    for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
)


@pytest.mark.parametrize("module", ["siltstone", "siltstone.aio", "siltstone.dbapi"])
def test_the_reference_has_every_public_name(module: str) -> None:
    has_all(module)


@pytest.mark.parametrize(
    ("module", "needs"),
    [
        ("siltstone.web", "fastapi"),
        ("siltstone.spark", "pyspark"),
        ("siltstone.namespace", "lance_namespace"),
    ],
)
def test_the_reference_has_the_names_that_need_another_package(module: str, needs: str) -> None:
    pytest.importorskip(needs)
    has_all(module)


def has_all(module: str) -> None:
    public = {f"{module}.{name}" for name in import_module(module).__all__}
    assert public - set(SHOWN) == set()


def test_the_reference_has_every_error_that_is_no_private_one() -> None:
    kinds = {name for name, kind in vars(errors).items() if is_error(kind) and name[0] != "_"}
    assert {f"siltstone.{name}" for name in kinds} - set(SHOWN) == set()


def is_error(kind: object) -> bool:
    return inspect.isclass(kind) and issubclass(kind, siltstone.SiltstoneError)


ROOMS = ("aio", "dbapi", "namespace", "spark", "web")
"""Modules whose names are public besides those of `siltstone` itself."""
INSIDE = {
    *("Schema", "Pin", "StagedFiles", "PinnedRows"),  # what tasks carry from process to process
    *("JoinedTable", "JoinedSnapshot", "LocalStore"),  # `Table`, `Snapshot`, `Store`
    *("Face", "Phase"),
}
"""Classes in signatures that say nothing to a caller, or nothing that another class does not."""


def test_a_name_stands_once_and_is_public_or_a_format_or_returned() -> None:
    for package in ("pyspark", "lance_namespace"):  # whose users get classes of ours
        pytest.importorskip(package)
    assert [name for name, count in SHOWN.items() if count > 1] == []
    known = ("siltstone.formats.", *(f"siltstone.{room}." for room in ROOMS))
    others = {name for name in SHOWN if not name.startswith(known)}
    table = f"{TransactionTable.__module__}.{TransactionTable.__name__}"
    assert others - {f"siltstone.{x}" for x in siltstone.__all__} <= {table, *RETURNED}


def found(path: str) -> object:
    """Return what a line of the reference names; None: a package that it needs is missing."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        try:
            place: object = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for name in parts[end:]:
            place = getattr(place, name, None)
        return place
    return None


SHOWN_CLASSES = {path: each for path in SHOWN if not isinstance(each := found(path), ModuleType)}


def returned(kind: object) -> Iterator[type]:
    """Yield the classes of ours that the calls and members of a public class, or a call, give."""
    members = inspect.getmembers(kind) if inspect.isclass(kind) else [("", kind)]
    for name, member in members:
        call = member.fget if isinstance(member, property) else member
        if callable(call) and (name[:1] != "_" or name in {"__getitem__", "__enter__"}):
            yield from classes(hints(call).get("return"))
    if inspect.isclass(kind):
        for name, hint in hints(kind).items():
            yield from classes(hint) if name[0] != "_" else ()


def hints(given: object) -> dict[str, object]:
    try:
        return typing.get_type_hints(given)
    except (NameError, TypeError):  # of another library, or known to type checkers alone
        return {}


def classes(hint: object) -> Iterator[type]:
    for part in typing.get_args(hint):
        yield from classes(part)
    if isinstance(hint, type) and hint.__module__.startswith("siltstone."):
        yield hint


RETURNED = {
    f"{each.__module__}.{each.__qualname__}": each
    for kind in SHOWN_CLASSES.values()
    for each in returned(kind)
}


def test_what_a_public_call_returns_is_in_the_reference() -> None:
    told = {id(each) for each in SHOWN_CLASSES.values()}
    missing = {each.__name__ for each in RETURNED.values() if id(each) not in told}
    assert missing - INSIDE == set()


def test_the_page_of_spark_has_every_option_of_the_format() -> None:
    pytest.importorskip("pyspark")
    from siltstone.spark.context import options

    told = set(re.findall(r"`(\w+)`", (REFERENCE / "spark.md").read_text()))
    assert {*options._FIELDS, options.CHANGES} - told == set()


def test_the_list_of_pages_names_each_page() -> None:
    told = set(re.findall(r"\]\((\w+\.md)\)", (REFERENCE / "index.md").read_text()))
    assert told == {page.name for page in REFERENCE.glob("*.md")} - {"index.md"}
