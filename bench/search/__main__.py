"""Searches at one seq beside Lance's own over the same index.

    python -m bench.search              the nearest vectors, one thread
    python -m bench.search load         of many threads, next to a writer, after commits
    python -m bench.search words        words of texts

CPU is that of the process, which Lance's own threads share.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import siltstone as st
from bench.search import load, vectors, words

CASES: dict[str, Callable[[st.Store, Path, argparse.Namespace], None]] = {
    "vectors": vectors.main,
    "load": load.main,
    "words": words.main,
}


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        "python -m bench.search",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("case", nargs="?", choices=CASES, default="vectors")
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=100_000)
    parser.add_argument("--size", type=int, default=128, help="of a vector")
    parser.add_argument("--encoding", default="flat", help="of vectors and load")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument(
        "--fresh",
        type=float,
        nargs="*",
        default=[0.001, 0.01, 0.1],
        help="shares of the rows, updated before vectors or words are measured again",
    )
    of = parser.add_argument_group("load")
    of.add_argument("--threads", type=int, default=8)
    of.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    of.add_argument("--commits", type=int, default=10_000)
    of.add_argument("--peers", action="store_true", help="LanceDB and DuckDB, too")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="siltstone-search-") as folder,
        st.connect(Path(folder) / "s", background=False) as db,
    ):
        CASES[given.case](db, Path(folder), given)


if __name__ == "__main__":
    main()
