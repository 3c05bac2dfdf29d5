"""Built: what is looked for in the site that was built, and mkdocs does not look for.

No page asks another host for anything, and no list became a paragraph.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from pages.tree import ROOT

SITE = ROOT / "build" / "site"
_ASKED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}
"""Elements for which a browser asks a host by itself, and which attribute names it."""
_ONLY_SAID = {"canonical", "prev", "next"}
"""The `rel` of a link for which it does not."""
_IN_STYLE = re.compile(r"url\(\s*['\"]?(?:https?:)?//")
_LOST_LIST = re.compile(r"<p>[^<]*\n(?:[-*]|\d+\.) ")


def wrong(site: Path = SITE) -> list[str]:
    """Return what is wrong with a built site, a line each, with the page."""
    found: list[str] = []
    for path in sorted(site.rglob("*.html")):
        name, text = path.relative_to(site), path.read_text()
        found += [f"{name}: asks {host}" for host in asked(text)]
        found += [f"{name}: a list needs an empty line above it: {x}" for x in lost_lists(text)]
    styles = (path for path in sorted(site.rglob("*.css")) if _IN_STYLE.search(path.read_text()))
    return found + [f"{path.relative_to(site)}: asks another host" for path in styles]


def asked(page: str) -> list[str]:
    """Return the addresses of other hosts that a browser asks when it shows a page."""
    parser = _Asked()
    parser.feed(page)
    return parser.found


def lost_lists(page: str) -> Iterator[str]:
    """Yield the beginning of each paragraph in which the lines of a list stand."""
    yield from (found[0][:60].replace("\n", " ") for found in _LOST_LIST.finditer(page))


class _Asked(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        address = given.get(_ASKED.get(tag, "")) or ""
        if re.match(r"(?:https?:)?//", address) and given.get("rel") not in _ONLY_SAID:
            self.found.append(address)
