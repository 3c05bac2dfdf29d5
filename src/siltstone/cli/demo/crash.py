"""Crash: a writer is killed with SIGKILL in full flight; what it had acknowledged must be there."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from siltstone.cli.demo.checks import Findings, violations
from siltstone.cli.demo.writer import Writer
from siltstone.store import Store, connect

ACKNOWLEDGED_MIN = 500
WAIT_S = 60.0  # a bound for busy machines; a quiet one takes one second or two
PAST_CHECKS = 10


@dataclass(frozen=True, slots=True)
class Crashed:
    """One crash: what was acknowledged before it, and how long the reopening took."""

    acknowledged: int
    reopen_s: float
    last_id: int


def crash(path: Path, start: int, threads: int, findings: Findings) -> Crashed:
    """Kill a writer that goes on from row `start` of the flights; reopen the store; check it."""
    with Writer(path, start, threads, enough_count=ACKNOWLEDGED_MIN) as writer:
        writer.enough.wait(WAIT_S)
        acknowledged = killed(writer, findings)
    began = time.perf_counter()
    with connect(path) as store:
        reopen_s = time.perf_counter() - began
        findings.note("after SIGKILL", survived(store, start, acknowledged, threads), 2)
        seqs = sorted(acknowledged.values())[:: max(1, len(acknowledged) // PAST_CHECKS)]
        for seq in [store.seq, *seqs]:
            with store.snapshot(seq=seq) as snapshot:
                findings.note("after SIGKILL", violations(snapshot))
    return Crashed(len(acknowledged), reopen_s, max(acknowledged, default=start) + threads)


def killed(writer: Writer, findings: Findings) -> dict[int, int]:
    """Kill a writer; return flight id -> seq, as it acknowledged them before."""
    why = writer.kill()
    if why or not writer.acknowledged:
        findings.fail(why or "the writer acknowledged nothing before it was killed")
    return writer.acknowledged


def survived(store: Store, start: int, acknowledged: dict[int, int], threads: int) -> list[str]:
    """Return what is wrong with the landings above row `start`, by what was acknowledged."""
    wrong: list[str] = []
    found = set(store["flights"].to_arrow(["id"], f"id > {start}")["id"].to_pylist())
    lost = sorted(acknowledged.keys() - found)
    if lost or store.seq < max(acknowledged.values(), default=0):
        wrong.append(f"{len(lost)} acknowledged landings are lost, first {lost[:1]}")
    unasked = found - acknowledged.keys()
    if len(unasked) > threads:
        wrong.append(f"{len(unasked)} landings are there that {threads} threads cannot have begun")
    return wrong
