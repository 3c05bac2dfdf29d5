"""Sources: files of the repository as pages of plain text, for what a page links to.

A folder is a list of its files. Each page is whole by itself: no script, no other host.
"""

from __future__ import annotations

from html import escape

from pages import tree
from pages.links import between

_HTML = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>{title}</title>
<style>
body {{ margin: 2rem auto; max-width: 62rem; padding: 0 1rem; font-family: system-ui, sans-serif }}
pre {{ font: 0.85rem/1.5 ui-monospace, monospace; overflow-x: auto }}
h1 {{ font-size: 1.2rem }}
</style>
<main>
<p><a href="{start}">Siltstone</a></p>
<h1>{title}</h1>
{body}
</main>
</html>
"""


def shown(home: str) -> dict[str, str]:
    """Return the pages, by their places, that show a file, or a folder and its files."""
    path = tree.ROOT / home
    if path.is_file():
        return {_place(home): _page(home, f'<pre tabindex="0">{_text(home)}</pre>')}
    files = [f"{home}/{each.name}" for each in sorted(path.iterdir()) if each.is_file()]
    found = {place: page for each in files for place, page in shown(each).items()}
    here = _place(home)
    items = (f'<li><a href="{between(here, _place(x))}">{escape(x)}</a></li>' for x in files)
    return found | {here: _page(home, f"<ul>{''.join(items)}</ul>")}


def _text(home: str) -> str:
    try:
        return escape((tree.ROOT / home).read_text())
    except UnicodeDecodeError:
        return "This file is no text."


def _place(home: str) -> str:
    place = tree.place_of(home)
    assert place is not None
    return place


def _page(home: str, body: str) -> str:
    start = between(_place(home), "index.html")
    return _HTML.format(title=escape(home), start=start, body=body)
