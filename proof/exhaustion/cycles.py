"""Cycles: a child that goes through one cause many times: `python -m proof.exhaustion.cycles`.

    CAUSE CYCLES SEED FOLDER        a line per cycle; the last line is JSON: how it went

A cycle that breaks a promise, or an error that is not ours, ends it with a traceback; one that
hangs, with those of all threads. Memory and descriptors are counted after each tenth of the cycles,
with every store closed.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import importlib
import json
import logging
import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from proof.exhaustion.causes import CAUSES
from proof.exhaustion.footprint import Footprint, footprint
from proof.exhaustion.ledger import Ledger
from siltstone.maintenance.merge import merge
from siltstone.storage.lance.lance_tables import warm_up

COUNTS = 10
CYCLE_S_MAX = 120
"""Then it hangs: a cycle takes 20 ms, one without memory, or with slow syncs, seconds."""


def _unwatched() -> None:
    """For who runs cycles in his own process, and sees himself whether they hang."""


def run(
    cause: str, cycles: int, seed: int, folder: Path, *, watch: Callable[[], None] = _unwatched
) -> dict[str, object]:
    """Go through `cycles` of a cause, each after a `watch`; return what it came to."""
    rng = random.Random(f"{cause} {seed}")
    found = CAUSES[cause](folder, rng)
    ledger = Ledger(
        folder, found.env, rng, options=found.options, excused=found.excused,
        bytes_max=found.bytes_max, is_mortal=found.is_mortal,
    )  # fmt: skip
    began = time.monotonic()
    counts: list[Footprint] = []
    for done in range(1, cycles + 1):
        watch()
        ledger.cycle(found.hurt, found.heal)
        print(f"cycle {done}", flush=True)
        if done * COUNTS // cycles > (done - 1) * COUNTS // cycles:
            ledger.close()
            counts.append(footprint())
    return {
        "cause": cause,
        "cycles": cycles,
        "seconds": round(time.monotonic() - began, 1),
        "errors": ledger.errors,
        "footprints": [dataclasses.asdict(count) for count in counts],
    }


def _watch() -> None:
    """End the process if it is here no more when a cycle must have ended."""
    faulthandler.dump_traceback_later(CYCLE_S_MAX, exit=True)


def main() -> None:
    cause, cycles, seed, folder = sys.argv[1:]
    merge.COMPACT_BELOW_ROWS = 0  # merges hide rows, of parts as small as these
    logging.disable()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warm_up()
    # What Lance imports with the first error of a catalog, to tell which it is: once, 35 MB.
    importlib.import_module("lance_namespace.errors")
    said = run(cause, int(cycles), int(seed), Path(folder), watch=_watch)
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
