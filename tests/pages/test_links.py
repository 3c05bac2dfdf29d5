"""A link between files of the repository becomes a link between places of the site."""

from __future__ import annotations

import pytest

from pages import decisions, sources, tree
from pages.links import placed, targets

HERE = "docs/guide.md", "guide.md"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](sql.md#limits)", "[a](sql.md#limits)"),
        ("[a](../ARCHITECTURE.md#the-tree)", "[a](architecture.md#the-tree)"),
        ("[`a`](../examples/search)", "[`a`](examples/search.md)"),
        ("[a](../README.md)", "[a](index.md)"),
        ("[a](adr/)", "[a](adr/index.md)"),
        ("[a](../tests/test_rules.py)", "[a](sources/tests/test_rules.py.html)"),
        ("[a](../examples/web)", "[a](sources/examples/web/index.html)"),
        ("![a](benchmarks/curves.svg)", "![a](benchmarks/curves.svg)"),
        ("[a](#tables) [b](https://x.org/y.md)", "[a](#tables) [b](https://x.org/y.md)"),
    ],
)
def test_a_link_leads_to_the_place_of_what_it_names(text: str, expected: str) -> None:
    assert placed(text, *HERE) == expected


def test_a_page_of_the_root_leads_into_docs_and_one_below_leads_out() -> None:
    assert placed("[a](docs/sql.md)", "ARCHITECTURE.md", "architecture.md") == "[a](sql.md)"
    decision = "docs/adr/0001-keys-have-64-bit-codes.md", "adr/0001-keys-have-64-bit-codes.md"
    assert placed("[a](../sql.md)", *decision) == "[a](../sql.md)"
    assert placed("[a](../../CHANGELOG.md)", *decision) == "[a](../changelog.md)"


@pytest.mark.parametrize(
    "code", ["`[a](../ARCHITECTURE.md), ADR 46`", "```\n[a](../ARCHITECTURE.md), ADR 46\n```"]
)
def test_code_stays_as_it_is(code: str) -> None:
    assert placed(code, *HERE) == code


def test_a_link_to_nothing_stays_for_the_build_to_refuse() -> None:
    assert placed("[a](../LOST.md)", *HERE) == "[a](../LOST.md)"


def test_numbers_of_decisions_are_links_to_them() -> None:
    one, other = (f"adr/{name}" for name in (CODES, LIBRARIES))
    assert placed("(ADR 1).", *HERE) == f"([ADR 1]({one}))."
    assert placed("ADRs 1 and 6", *HERE) == f"ADRs [1]({one}) and [6]({other})"
    assert placed("ADRs 1 to 6, 1", *HERE) == f"ADRs [1]({one}) to [6]({other}), [1]({one})"
    assert placed("ADR\n6", *HERE) == f"[ADR 6]({other})"


def test_a_number_in_a_link_or_of_no_decision_is_none() -> None:
    assert placed(f"[ADR 1](adr/{CODES})", *HERE) == f"[ADR 1](adr/{CODES})"
    assert placed("ADR 9999", *HERE) == "ADR 9999"


CODES, LIBRARIES = "0001-keys-have-64-bit-codes.md", "0006-libraries.md"


def test_what_a_page_links_to_is_found() -> None:
    text = "[a](../bench/page.py) `[b](c)` [d](#e) [f](https://x.org)"
    assert targets(text, "docs/guide.md") == {"bench/page.py"}


def test_a_file_that_is_no_page_is_shown_as_plain_text() -> None:
    (page,) = sources.shown("bench/syncs.py").values()
    assert "<title>bench/syncs.py</title>" in page
    assert '<a href="../../index.html">' in page
    assert "&quot;&quot;&quot;" in page


def test_a_folder_is_a_list_of_its_files_and_each_of_them() -> None:
    found = sources.shown("examples/web")
    assert set(found) == {
        "sources/examples/web/index.html",
        "sources/examples/web/shop.py.html",
    }
    assert (
        '<a href="shop.py.html">examples/web/shop.py</a>'
        in found["sources/examples/web/index.html"]
    )


def test_a_file_that_is_no_text_says_so() -> None:
    (page,) = sources.shown("examples/search/texts.parquet").values()
    assert "no text" in page


def test_the_list_has_every_decision_the_newest_first() -> None:
    lines = [line for line in decisions.page().splitlines() if line.startswith("| ")][2:]
    files = sorted((tree.ROOT / tree.DECISIONS).glob("[0-9]*.md"), reverse=True)
    assert [path.name in line for path, line in zip(files, lines, strict=True)] == [True] * len(
        files
    )
