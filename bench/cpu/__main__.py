"""What a commit, a read, a transfer and a request cost of processor time, and by which functions.

    python -m bench.cpu                             a commit, a get, a transfer, by one thread
    python -m bench.cpu http                        a request of 16 clients, of the server's time
    python -m bench.cpu calls                       how many functions of siltstone each runs
    python -m bench.cpu profile                     the stages of a commit
    python -m bench.cpu http --sources BEFORE AFTER
                                                    two source trees, the `src` of two checkouts

Source trees are measured in turns, so all have the same neighbours. Printed are the median of the
rounds, the lowest and the highest.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.cpu import calls, http, profile, work
from bench.cpu.sources import HERE

CASES: dict[str, Callable[[Path, argparse.Namespace], None]] = {
    "work": work.main,
    "http": http.main,
    "calls": calls.main,
    "profile": profile.main,
}


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        "python -m bench.cpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("case", nargs="?", choices=CASES, default="work")
    parser.add_argument("--dir", type=Path, help="where to write; must be the disk in question")
    parser.add_argument("--sources", nargs="+", type=Path, default=[HERE / "src"])
    parser.add_argument("--rounds", type=int, default=5, help="of work and http")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a turn of http or profile")
    parser.add_argument("--clients", type=int, default=16, help="of http")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="siltstone-cpu-", dir=given.dir) as folder:
        CASES[given.case](Path(folder), given)


if __name__ == "__main__":
    main()
