"""Every page has its place on the site, every page that is named is linked, no other host is asked.

`make docs` builds the site strictly, and looks at what it built by the same functions.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from pages import tree
from pages.__main__ import address
from pages.built import asked, lost_lists, wrong
from pages.tree import ROOT

PLAN = (ROOT / "mkdocs.yml").read_text()
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def test_every_page_but_the_decisions_stands_in_the_navigation() -> None:
    _, _, navigation = PLAN.partition("\nnav:\n")
    placed = {place for place in tree.pages().values() if not place.startswith("adr/")}
    assert set(re.findall(r"[\w/-]+\.md", navigation)) == placed | {"adr/index.md"}


def test_the_tabs_are_those_that_a_reader_looks_for() -> None:
    _, _, navigation = PLAN.partition("\nnav:\n")
    tabs = re.findall(r"^  - (\w+):$", navigation, re.MULTILINE)
    assert tabs == ["Start", "Use", "Spark", "Operate", "Reference", "Inside"]


# A package index shows README alone, so its links lead there to nothing (tests/test_readme.py).
def test_a_page_that_a_page_names_is_linked() -> None:
    for home in tree.pages():
        text = FENCED.sub("", (ROOT / home).read_text())
        named = re.findall(r"(?<!\[)`([\w./-]+\.md|docs/adr/?|examples/\w+/?)`(?!\])", text)
        folders = (ROOT, (ROOT / home).parent, ROOT / "docs")
        assert [x for x in named if any((folder / x).exists() for folder in folders)] == [], home


def test_no_page_and_no_plan_names_the_public_address() -> None:
    assert address().startswith("https://")
    texts = [ROOT / "mkdocs.yml", *(ROOT / "docs").glob("*.md"), *(ROOT / "pages").glob("*.py")]
    assert [path.name for path in texts if address() in path.read_text()] == []


def test_what_readme_and_others_link_by_the_public_address_stands_on_the_site() -> None:
    places = {*tree.pages().values(), *tree.others().values(), "adr/index.md", "index.md"}
    served = {re.sub(r"(^|/)index/$", r"\1", re.sub(r"\.md$", "/", place)) for place in places}
    for page in ROOT.glob("*.md"):
        linked = re.findall(rf"\]\({re.escape(address())}/?([^)#]*)", page.read_text())
        assert set(linked) - served == set(), page.name


def test_no_column_of_a_table_is_without_a_name() -> None:
    for home in (home for home in tree.pages() if not home.startswith(tree.DECISIONS)):
        heads = re.findall(r"^(\|.*)\n\|[ :|-]+\|$", (ROOT / home).read_text(), re.MULTILINE)
        assert [head for head in heads if re.search(r"\|\s*\|", head)] == [], home


def test_the_group_docs_has_what_the_plan_names() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    packages = {re.split(r"[\[<>]", each)[0] for each in groups["docs"]}
    assert {"mkdocs", "mkdocs-material", "mkdocstrings"} <= packages
    assert "make docs" in (ROOT / ".ci/run").read_text()


@pytest.mark.parametrize(
    "page",
    [
        '<script src="https://x.org/a.js"></script>',
        '<link rel="stylesheet" href="//x.org/a.css">',
        '<img alt="a" src="http://x.org/a.png">',
    ],
)
def test_what_a_page_asks_of_another_host_is_found(page: str) -> None:
    assert len(asked(page)) == 1


@pytest.mark.parametrize(
    "page",
    [
        '<script src="assets/a.js"></script>',
        '<link rel="canonical" href="https://x.org/guide/">',
        '<a href="https://x.org">a link asks nothing until it is followed</a>',
    ],
)
def test_what_a_page_has_of_its_own_is_let_be(page: str) -> None:
    assert asked(page) == []


def test_a_list_that_became_a_paragraph_is_found() -> None:
    assert [*lost_lists("<p>These:\n- one\n- two</p>")] == ["<p>These: - one - "]
    assert [*lost_lists("<p>These:</p>\n<ul>\n<li>one</li></ul>")] == []


def test_a_built_site_is_looked_through(tmp_path: Path) -> None:
    (tmp_path / "guide").mkdir()
    (tmp_path / "guide" / "index.html").write_text('<img alt="" src="//x.org/a.png">')
    (tmp_path / "a.css").write_text("@font-face { src: url(https://x.org/a.woff) }")
    assert wrong(tmp_path) == ["guide/index.html: asks //x.org/a.png", "a.css: asks another host"]
