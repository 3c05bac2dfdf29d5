"""Place: puts all pages, and what they link to, where mkdocs builds the site from."""

from __future__ import annotations

import shutil
from pathlib import Path

from pages import decisions, links, sources, tree

PLACED = tree.ROOT / "build" / "pages"
_BACK = "\n[All decisions](index.md)\n"


def texts() -> dict[str, str]:
    """Return the text of every page that is not copied as it is, by its place."""
    found = {decisions.PLACE: decisions.page()}
    for home, place in tree.pages().items():
        found[place] = links.placed((tree.ROOT / home).read_text(), home, place)
    for place in links.decisions().values():
        found[place] += _BACK
    for home in sorted(_linked_sources()):
        found |= sources.shown(home)
    return found


def place(into: Path = PLACED) -> None:
    """Write all pages into a folder that holds nothing else."""
    shutil.rmtree(into, ignore_errors=True)
    for at, text in texts().items():
        (into / at).parent.mkdir(parents=True, exist_ok=True)
        (into / at).write_text(text)
    for home, at in tree.others().items():
        (into / at).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(tree.ROOT / home, into / at)


def _linked_sources() -> set[str]:
    found: set[str] = set()
    for home in tree.pages():
        found |= links.targets((tree.ROOT / home).read_text(), home)
    return {home for home in found if (tree.place_of(home) or "").startswith(tree.SOURCES)}
