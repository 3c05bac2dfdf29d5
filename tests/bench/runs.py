"""Runs: what a bench may have found, made up for tests."""

from __future__ import annotations

from typing import Any

from bench.kept import Run

MACHINE = {"cores": "2", "cpu": "a processor", "file system": "ext4"}


def run_of(day: int, rounds: dict[str, Any]) -> Run:
    found = {
        "sizes": {"scale": 1.0, "seconds": 1.0, "rounds": 1},
        "durable": ["siltstone", "sqlite"],
        "rounds": rounds,
        "failures": [],
    }
    date = f"2026-11-{day:02}T10:00:00+00:00"
    return Run("workloads", "python -m bench", date, f"c{day}", 9.0, MACHINE, {}, found)


def one_thread(ours: float, theirs: float) -> dict[str, Any]:
    return {"siltstone": {"1 threads": [ours]}, "sqlite": {"1 threads": [theirs]}}
