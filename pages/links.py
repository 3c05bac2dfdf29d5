"""Links: a page's links between files of the repository, made links between places of the site.

Fenced code and what stands in backticks stays as it is. `ADR 46`, `ADRs 104 to 106` and the like
become links to the decisions.
"""

from __future__ import annotations

import re
from posixpath import dirname, normpath, relpath

from pages import tree

_FENCED = r"^(?P<fence>```+|~~~+).*?^(?P=fence)[ ]*$"
_LINKED = r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\((?P<target>[^()\s]+)\)"
_CITED = r"\bADRs?\s\d+(?:(?:,\s|\sto\s|\sand\s|,\sand\s)\d+)*\b"
_PARTS = re.compile(
    rf"(?P<code>{_FENCED}|`[^`\n]+`)|(?P<link>{_LINKED})|(?P<cited>{_CITED})",
    re.MULTILINE | re.DOTALL,
)


def placed(text: str, home: str, place: str) -> str:
    """Return the text of the page at `home` as it stands at `place`: all links lead somewhere.

    A link to what the repository does not have stays as it is: the build refuses it.
    """

    def part(found: re.Match[str]) -> str:
        if found["link"] is not None:
            return _relinked(found, home, place)
        return found[0] if found["cited"] is None else _cited(found[0], place)

    return _PARTS.sub(part, text)


def targets(text: str, home: str) -> set[str]:
    """Return the files and folders of the repository to which a page links, there or not."""
    linked = (found["target"] for found in _PARTS.finditer(text) if found["link"])
    return {path for target in linked if (path := _path_of(target, home)) is not None}


def decisions() -> dict[int, str]:
    """Return the place of each decision by its number."""
    files = sorted((tree.ROOT / tree.DECISIONS).glob("[0-9]*.md"))
    return {int(path.name.partition("-")[0]): f"adr/{path.name}" for path in files}


def between(place: str, other: str) -> str:
    """Return the relative link from one place to another."""
    return relpath(other, dirname(place) or ".")


def _path_of(target: str, home: str) -> str | None:
    """Return what a link leads to, from the root; None: to another host, or within the page."""
    if "://" in target or target.startswith(("#", "mailto:")):
        return None
    return normpath(f"{dirname(home)}/{target.partition('#')[0]}".lstrip("/"))


def _relinked(found: re.Match[str], home: str, place: str) -> str:
    # The link's own text may have citations; they are part of it, and stay.
    target = found["target"]
    path = _path_of(target, home)
    there = None if path is None else tree.place_of(path)
    if there is None:
        return found[0]
    _, mark, fragment = target.partition("#")
    text = found[0].removesuffix(f"({target})")
    return f"{text}({between(place, there)}{mark}{fragment})"


def _cited(text: str, place: str) -> str:
    known = decisions()

    def number(found: re.Match[str]) -> str:
        there = known.get(int(found[2]))
        shown = found[0].replace("\n", " ")
        return found[0] if there is None else f"[{shown}]({between(place, there)})"

    return re.sub(r"((?:ADR\s)?)(\d+)", number, text)
