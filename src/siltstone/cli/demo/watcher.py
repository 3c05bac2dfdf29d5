"""Watcher: a separate process that reads the store next to its owner and checks every snapshot.

python -m siltstone.cli.demo.watcher STORE FIRST_SEQ      until stdin ends; then one JSON line
"""

from __future__ import annotations

import json
import sys
import threading

from siltstone.cli.demo.checks import VIOLATIONS_SHOWN, Findings, scattered, violations
from siltstone.store import connect

PAUSE_S = 0.1


def watch(path: str, first_seq: int, stop: threading.Event) -> Findings:
    """Check the newest and an older snapshot in turn until `stop`."""
    findings = Findings()
    with connect(path, read_only=True) as store:
        for share in scattered():
            with store.snapshot() as now:
                findings.note("another process, now", violations(now))
            seq = first_seq + int(share * (now.seq - first_seq))
            with store.snapshot(seq=seq) as past:
                findings.note("another process, past", violations(past))
            if stop.wait(PAUSE_S):
                break
    return findings


def main() -> None:
    """Watch until stdin ends."""
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    findings = watch(sys.argv[1], int(sys.argv[2]), stop)
    print(json.dumps({"checked": findings.checked, "wrong": findings.wrong[:VIOLATIONS_SHOWN]}))


if __name__ == "__main__":
    main()
