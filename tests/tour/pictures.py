"""Pictures: what the pages show of the shell and of the console, made anew.

    python -m tests.tour.pictures       writes docs/pictures, in about a minute

The tour is typed into a terminal, whose screen becomes SVG. Its store, after a day's work more, is
then looked at by Debian's Chromium. The notebook gives one of its plots.
"""

from __future__ import annotations

import io
import random
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from PIL import Image

import siltstone as st
from bench.plots import in_both_schemes
from tests.cli.terminal import Terminal
from tests.cli.tours import bash, consoles, shown
from tests.support.browser import Browser, chromium
from tests.test_documents import ROOT
from tests.tour.drawn import svg
from tests.tour.notebook import executed, plots
from tests.tour.test_tour import PAGE, is_second

PICTURES = ROOT / "docs" / "pictures"
_WIDTH = 120
_WINDOW = 1160, 640
_BURSTS = (2, 4, 3, 6, 9, 5, 7, 11, 8, 4, 6, 3, 2, 1)
"""How many transactions there are from one look of the overview at its store to the next."""
_POINTS = "return document.querySelector('.spark path')?.getAttribute('d').split('L').length ?? 0"
_PLACE = "document.querySelector('#store').textContent = '/home/ada/air'"
_COLORS = 128


def terminal_pictures(folder: Path) -> None:
    """Type the tour up to its server, and keep what the shell showed of a transaction."""
    blocks = consoles(PAGE)
    alone = blocks[: [is_second(block) for block in blocks].index(True)]
    with bash(folder, width=_WIDTH) as terminal:
        for block in alone:
            shown(terminal, block)
        _keep(terminal, "shell", "$ siltstone shell", "air [seq 3]> .now")


def _keep(terminal: Terminal, name: str, first: str, end: str) -> None:
    """Draw the lines of a screen from the one that begins so to before the one that begins so."""
    cells, text = terminal.screen.cells(), terminal.screen.drawn()
    start = next(at for at, line in enumerate(text) if line.startswith(first))
    stop = next(at for at in range(start, len(text)) if text[at].startswith(end))
    picture = svg(cells[start:stop], first.removeprefix("$ "))
    (PICTURES / f"{name}.svg").write_text(picture)


class Day:
    """A day of work: corrections of flights, in transactions of few rows and of many."""

    def __init__(self, db: st.Store) -> None:
        self._db, self._random = db, random.Random(2013)
        columns = ["time_hour", "carrier", "flight"]
        self._keys = db["flights"].head(20_000, columns).to_pylist()
        hours = {"origin": "string", "hour": "int64", "corrected": "int64"}
        db.create_table("corrections", hours, ["origin", "hour"])
        db.tag("before Burbank closed", seq=3)

    def commits(self, count: int) -> None:
        """Commit so many transactions of one table, two or three."""
        chosen = self._random
        for _ in range(count):
            rows = int(1 + chosen.random() ** 4 * 900)
            late = [{**key, "arr_delay": chosen.randrange(90)} for key in self._some(rows)]
            with self._db.transaction() as tx:
                tx["flights"].update_many(late)
                if chosen.random() < 0.6:
                    row = {"origin": "LGA", "hour": chosen.randrange(24), "corrected": rows}
                    tx["corrections"].upsert(row)
                if chosen.random() < 0.15:
                    tx["airports"].update(chosen.choice(["LGA", "JFK", "EWR"]), alt=rows)

    def _some(self, count: int) -> list[dict[str, object]]:
        """Return some keys, each once."""
        return self._random.sample(self._keys, count)


def console_pictures(folder: Path) -> None:
    """Show the store of the tour in the console, view by view."""
    with st.connect(folder / "home" / "air") as db:
        served = db.serve(port=0)
        with chromium(served.url) as browser:
            day = Day(db)
            browser.look(*_WINDOW, "light")
            browser.open()
            for at, count in enumerate(_BURSTS):
                day.commits(count)
                if at == len(_BURSTS) // 2:
                    db.checkpoint()
                    db.merge("flights")
                points = partial(browser.js, _POINTS)
                browser.until(partial(_is_above, points, points()))
            for name, (go, height) in VIEWS.items():
                go(browser)
                browser.settled()
                _keep_page(browser, name, height)


def _is_above(now: Callable[[], int], before: int) -> bool:
    return now() > before


def _keep_page(browser: Browser, name: str, height: int) -> None:
    """Keep a picture of few colors: a third of the bytes, and to the eye the same."""
    browser.js(_PLACE)
    whole = Image.open(io.BytesIO(browser.driver.get_screenshot_as_png())).convert("RGB")
    shown = whole.crop((0, 0, whole.width, height))
    few = shown.quantize(_COLORS, dither=Image.Dither.NONE)
    few.save(PICTURES / f"console-{name}.png", optimize=True)


def _chooses(browser: Browser) -> None:
    browser.open("timeline")
    browser.js(
        "document.querySelectorAll('.timeline .commit')[3].dispatchEvent(new Event('click'))"
    )
    browser.says("Open as of here")
    browser.js("document.querySelector('main .scroll').scrollLeft = 0")


VIEWS: dict[str, tuple[Callable[[Browser], object], int]] = {
    "overview": (lambda browser: browser.settled(), 620),
    "timeline": (_chooses, 480),
    "diff": (lambda browser: browser.open("diff/3/4"), 560),
}
"""How to come to each view, and how much of the window has something to be seen."""


def notebook_picture(folder: Path) -> None:
    """Keep the plot of two moments of a table."""
    (PICTURES / "moments.svg").write_text(in_both_schemes(plots(executed(folder))[0]))


def main() -> None:
    """Make all."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        notebook_picture(Path(folder))
        terminal_pictures(Path(folder))
        console_pictures(Path(folder))


if __name__ == "__main__":
    main()
