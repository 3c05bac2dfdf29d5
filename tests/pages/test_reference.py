"""The reference has every public name, once, and every option of the format for Spark."""

from __future__ import annotations

import re
from collections import Counter
from importlib import import_module

import pytest

import siltstone
from pages.tree import ROOT
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


def test_a_name_stands_once_and_is_public_or_a_format() -> None:
    assert [name for name, count in SHOWN.items() if count > 1] == []
    known = ("siltstone.formats.", *(f"siltstone.{x}." for x in ("aio", "dbapi", "web", "spark")))
    transaction_table = f"{TransactionTable.__module__}.{TransactionTable.__name__}"
    others = {name for name in SHOWN if not name.startswith((*known, "siltstone.namespace."))}
    assert others - {f"siltstone.{x}" for x in siltstone.__all__} == {transaction_table}


def test_the_page_of_spark_has_every_option_of_the_format() -> None:
    pytest.importorskip("pyspark")
    from siltstone.spark.context import options

    told = set(re.findall(r"`(\w+)`", (REFERENCE / "spark.md").read_text()))
    assert {*options._FIELDS, options.CHANGES} - told == set()


def test_the_list_of_pages_names_each_page() -> None:
    told = set(re.findall(r"\]\((\w+\.md)\)", (REFERENCE / "index.md").read_text()))
    assert told == {page.name for page in REFERENCE.glob("*.md")} - {"index.md"}
