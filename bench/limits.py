"""Limits: what this machine can do at best, so that a rate can be read as a share of it."""

from __future__ import annotations

from pathlib import Path

from siltstone.cli.bench import machine


def measure(folder: Path, seconds: float) -> dict[str, float]:
    """Return syncs per second of a growing and of a preallocated file, and memcpy in GB/s."""
    folder.mkdir(parents=True, exist_ok=True)
    growing = machine.syncs_per_s(folder / "growing", seconds, is_growing=True)
    return {
        "fdatasync/s, growing file": growing,
        "fdatasync/s, preallocated file": machine.syncs_per_s(folder / "fixed", seconds),
        "memcpy GB/s": machine.memcpy_bytes_per_s() / 1e9,
    }
