"""Soak for a while, and say what it was worth.

    python -m proof.soak --minutes 30 [--seed 7] [--folder DIR]

It ends with 1 at the first violation, which says what repeats it. Times are not repeated, only what
is done at random; the folder is kept.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from proof.soak import mirrored, soak


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m proof.soak")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args(arguments)
    print(f"seed {given.seed}", flush=True)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="siltstone-soak-"))
    begun = time.monotonic()
    with mirrored.bucket(_say) as url:
        at_work = soak.new(folder, given.seed, url)
        try:
            at_work.run(60 * given.minutes, _say)
        except soak.SoakError as error:
            _say(f"VIOLATION {error}")
            return 1
    print(f"{at_work}\nno violation in {time.monotonic() - begun:.0f} s", flush=True)
    if given.folder is None:
        shutil.rmtree(folder)
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
