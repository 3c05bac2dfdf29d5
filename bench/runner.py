"""Runner: prepares every peer of a workload, then measures them in turns.

A peer that fails drops out of that workload and is named in the results; the others go on.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from bench.peer import find
from bench.results import Results
from bench.workload import Place, Workload

Say = Callable[[str], None]


def available(names: list[str], results: Results) -> list[str]:
    """Return the peers that can be imported; the others are failures of the run."""
    found: list[str] = []
    for name in names:
        try:
            peer = find(name)
        except ImportError as error:
            results.fail("import", name, error)
            continue
        found.append(name)
        if peer.is_durable:
            results.durable.add(name)
    return found


def run(workload: Workload, names: list[str], folder: Path, results: Results, say: Say) -> None:
    """Run one workload on all peers that take it."""
    chosen = [name for name in names if workload.name in find(name).takes]
    places = [Place(name, folder / f"{workload.name}-{name}", results.sizes) for name in chosen]
    ready = [place for place in places if _prepare(workload, place, results, say)]
    for turn in range(results.sizes.rounds):
        shift = turn % max(1, len(ready))
        for place in [*ready[shift:], *ready[:shift]]:
            say(f"{workload.name} round {turn + 1}: {place.name}")
            try:
                results.add(workload.name, place.name, workload.measure(place, turn))
            except Exception as error:
                results.fail(workload.name, place.name, error)
                ready.remove(place)
    for place in places:
        _remove(place, workload, results)


def _prepare(workload: Workload, place: Place, results: Results, say: Say) -> bool:
    say(f"{workload.name} prepare: {place.name}")
    try:
        workload.prepare(place)
    except Exception as error:
        results.fail(workload.name, place.name, error)
        return False
    return True


def _remove(place: Place, workload: Workload, results: Results) -> None:
    try:
        place.remove()
    except Exception as error:
        results.fail(workload.name, place.name, error)
        shutil.rmtree(place.path, ignore_errors=True)
