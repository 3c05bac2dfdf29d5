"""The command: `python -m proof.corruption --minutes 8`; returns 1 where damage gave an answer."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from proof.corruption.damages import every
from proof.corruption.trial import Reader, Trial, run
from tests.compat.golden import GOLDEN


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser("python -m proof.corruption")
    parser.add_argument("states", nargs="*", help="golden stores; by default all")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=None, help="by default another one each time")
    given = parser.parse_args()
    seed = random.randrange(1_000_000) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    reader = Reader()
    with tempfile.TemporaryDirectory(prefix="siltstone-corruption-") as folder:
        chosen = [one for one in GOLDEN if not given.states or one in given.states]
        trials = [Trial(one, Path(folder), reader) for one in chosen]
        count = run(trials, seed, count_max=sys.maxsize, seconds_max=given.minutes * 60)
        for trial in trials:
            total = sum(1 for _ in every(trial.source))
            print(f"{trial.state}: {dict(trial.judged)} of {total} damages", flush=True)
            for problem in trial.problems:
                print(f"  {problem}", flush=True)
    reader.close()
    wrong = sum(len(trial.problems) for trial in trials)
    print(f"{count} damages, {wrong} wrong", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
