"""The command: `python -m proof.exhaustion --cycles 10000`; returns 1 where a promise broke."""

from __future__ import annotations

import argparse
import math
import random
import sys
from concurrent.futures import ThreadPoolExecutor

from proof.exhaustion.causes import CAUSES
from proof.exhaustion.trial import Outcome, run

WEIGHTS = {"memory": 0.1, "threads": 0.3, "slow-disk": 0.02}
"""Shares of the cycles, where each takes long: of a death, a close with threads, many syncs."""


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser("python -m proof.exhaustion")
    parser.add_argument("causes", nargs="*", help=f"of {', '.join(CAUSES)}; by default all")
    parser.add_argument("--cycles", type=int, default=700, help="of all causes together")
    parser.add_argument("--seed", type=int, default=None, help="by default another one each time")
    parser.add_argument("--processes", type=int, default=2, help="how many causes at once")
    given = parser.parse_args()
    causes = given.causes or list(CAUSES)
    if unknown := set(causes) - set(CAUSES):
        parser.error(f"no cause {', '.join(sorted(unknown))}")
    seed = random.randrange(1_000_000) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    total = sum(WEIGHTS.get(cause, 1.0) for cause in causes)
    cycles = [math.ceil(given.cycles * WEIGHTS.get(cause, 1.0) / total) for cause in causes]
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(given.processes) as pool:
        for outcome in pool.map(run, causes, cycles, [seed] * len(causes)):
            print(outcome.line(), flush=True)
            outcomes.append(outcome)
    done = sum(outcome.cycles for outcome in outcomes)
    broken = sum(bool(outcome.problems) for outcome in outcomes)
    print(f"{done} cycles, {broken} of {len(outcomes)} causes break a promise", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
