"""What merges write, and what readers and the disk notice of them.

    python -m bench.fold --rows 1e6                 uniform upserts of 2 x base, folded as they come
    python -m bench.fold gets --rows 1e6            point reads while a fifth of base is replaced
    python -m bench.fold gets --rows 1e6 --child    the same, merged in a child as owners do
    python -m bench.fold scans --rows 4e6           scans of a base with 19 % of its rows hidden
    python -m bench.fold cold --rows 1e7            a new process opens the store and reads keys
    python -m bench.fold upserts --rows 1e8 --upserts 1e7
                                                    load, hide a fifth, upsert at full speed, read
    python -m bench.fold upserts --peers            the same keys in RocksDB and Lance as well
    python -m bench.fold space --rows 1e6           what the disk holds, round by round
    python -m bench.fold texts --rows 4e6           loads, merges and deletes with texts as keys

Rows have 100 bytes. Bytes are those of new files by kind; nothing is vacuumed, the log is left out.
Written per byte of user data is their sum over the Arrow bytes of the upserts.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.fold import cold, merges, space, texts, upserts

CASES: dict[str, Callable[[Path, argparse.Namespace], None]] = {
    "written": merges.amplification,
    "gets": merges.gets,
    "scans": merges.scans,
    "cold": cold.cold,
    "upserts": upserts.upserts,
    "space": space.space,
    "texts": texts.texts,
}


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        "python -m bench.fold",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("case", nargs="?", choices=CASES, default="written")
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=1_000_000)
    parser.add_argument("--dir", type=Path, help="where to write; must be the disk in question")
    of = parser.add_argument_group("written")
    of.add_argument("--share", type=float, default=0.1, help="of base, that each merge folds")
    of.add_argument("--times", type=float, default=2.0, help="x base is upserted")
    of = parser.add_argument_group("gets")
    of.add_argument("--child", action="store_true", help="merge in a child")
    of = parser.add_argument_group("cold")
    of.add_argument("--memory", type=float, default=0, help="bytes, of the store read cold")
    of = parser.add_argument_group("upserts")
    of.add_argument("--upserts", type=lambda text: int(float(text)), default=1_000_000)
    of.add_argument("--peers", action="store_true", help="RocksDB and Lance first")
    of = parser.add_argument_group("space")
    of.add_argument("--rounds", type=int, default=30)
    of.add_argument("--background", action="store_true", help="the owner vacuums by itself")
    of.add_argument("--keep-all", action="store_true", help="thin no record of the retention")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="siltstone-fold-", dir=given.dir) as folder:
        CASES[given.case](Path(folder) / "db", given)


if __name__ == "__main__":
    main()
