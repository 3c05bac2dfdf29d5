"""Page: the tables of metrics in docs/observing.md, as the families themselves say it.

`python -m tests.server.metrics_page` writes them into the page.
"""

from __future__ import annotations

from pathlib import Path

from siltstone.server.metrics.families import MIRRORS, SERVER, STORE, TABLES, WORK

PAGE = Path(__file__).parents[2] / "docs" / "observing.md"
BEGIN, END = "<!-- the metrics: python -m tests.server.metrics_page -->\n", "<!-- end -->\n"
_GROUPS = {
    "The store now": STORE,
    "Its tables": TABLES,
    "Its mirrors": MIRRORS,
    "What was done": WORK,
    "The server": SERVER,
}


def tables() -> str:
    """Return a table of each group of metrics."""
    lines: list[str] = []
    for title, families in _GROUPS.items():
        lines += ["", f"| {title} | kind | meaning |", "| --- | --- | --- |"]
        for family in families:
            labels = f" by {', '.join(f'`{name}`' for name in family.labels)}"
            kind = family.kind + (labels if family.labels else "")
            lines.append(f"| `{family.name}` | {kind} | {family.help} |")
    return "\n".join([*lines, "", ""])


def written(page: str) -> str:
    """Return the page with these tables in place of its own."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + tables() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
