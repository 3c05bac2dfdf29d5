"""Tree: which files of the repository are pages, and where each stands on the site.

All of `docs/` stands where it lies. Pages beside it have a place in `_BESIDE`. Any other file that
a page links to is shown as it is, below `sources/`: the site names no code host.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
DECISIONS = "docs/adr"
SOURCES = "sources"
_BESIDE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "examples/pipelines/README.md": "examples/pipelines.md",
    "examples/search/README.md": "examples/search.md",
}
"""Where pages that are not in `docs/` stand. README's place is that of docs/index.md."""
_ICON = "src/siltstone/server/console/icon.svg"
_FOLDERS = {DECISIONS: "adr/index.md"}


def pages() -> dict[str, str]:
    """Return the place of each page by the path of its file, both with `/`."""
    found = {home: place for home, place in _BESIDE.items() if (ROOT / home).is_file()}
    del found["README.md"]
    for path in sorted((ROOT / "docs").rglob("*.md")):
        found[path.relative_to(ROOT).as_posix()] = path.relative_to(ROOT / "docs").as_posix()
    return found


def others() -> dict[str, str]:
    """Return the place of each picture and other file in `docs/`, and of the console's icon."""
    files = sorted(path for path in (ROOT / "docs").rglob("*") if path.is_file())
    return {_ICON: "assets/icon.svg"} | {
        path.relative_to(ROOT).as_posix(): path.relative_to(ROOT / "docs").as_posix()
        for path in files
        if path.suffix != ".md"
    }


def place_of(home: str) -> str | None:
    """Return where a file or folder of the repository stands on the site; None: there is none.

    A folder is shown by its README if that is a page, else by a list of its files.
    """
    path = ROOT / home
    if not path.exists():
        return None
    if home in _FOLDERS:
        return _FOLDERS[home]
    if path.is_dir():
        return _BESIDE.get(f"{home}/README.md", f"{SOURCES}/{home}/index.html")
    if home.startswith("docs/"):
        return home.removeprefix("docs/")
    return _BESIDE.get(home, f"{SOURCES}/{home}.html")
