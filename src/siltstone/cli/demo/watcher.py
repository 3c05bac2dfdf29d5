"""Watcher: reads the store and checks every snapshot, also in a process next to its owner.

python -m siltstone.cli.demo.watcher STORE FIRST_SEQ      until stdin ends; then one JSON line
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from siltstone.cli.demo.checks import VIOLATIONS_SHOWN, Findings, violations
from siltstone.store import Store, connect

PAUSE_S = 0.1
END_TIMEOUT_S = 120


@contextmanager
def watched(path: Path, first_seq: int, findings: Findings) -> Generator[None]:
    """Let a watcher run during the block; collect its findings at the end."""
    command = [sys.executable, "-m", "siltstone.cli.demo.watcher", str(path), str(first_seq)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield
        finally:
            try:
                out, err = process.communicate(timeout=END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
            _collect(process.returncode, out, err, findings)


def _collect(code: int, out: bytes, err: bytes, findings: Findings) -> None:
    if code != 0:
        last = err.decode(errors="replace").strip().splitlines()[-1:]
        findings.fail(f"the read-only process failed: {' '.join(last)}")
        return
    found = json.loads(out)
    for name, count in found["checked"].items():
        findings.note(name, [], count)
    findings.note("another process, now", found["wrong"], 0)


def watch(
    who: str, store: Store, first_seq: int, stop: threading.Event, findings: Findings
) -> None:
    """Check the newest and an older snapshot in turn until `stop`, once at least."""
    random = np.random.default_rng(first_seq)
    while True:
        with store.snapshot() as now:
            findings.note(f"{who}, now", violations(now))
        with store.snapshot(seq=int(random.integers(first_seq, now.seq, endpoint=True))) as past:
            findings.note(f"{who}, past", violations(past))
        if stop.wait(PAUSE_S):
            break


def main() -> None:
    """Watch until stdin ends."""
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    path, first_seq, findings = sys.argv[1], int(sys.argv[2]), Findings()
    with connect(path, read_only=True) as store:
        watch("another process", store, first_seq, stop, findings)
    print(json.dumps({"checked": findings.checked, "wrong": findings.wrong[:VIOLATIONS_SHOWN]}))


if __name__ == "__main__":
    main()
