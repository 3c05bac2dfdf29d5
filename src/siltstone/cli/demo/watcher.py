"""Watcher: a separate process that reads the store next to its owner and checks every snapshot.

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

from siltstone.cli.demo.checks import VIOLATIONS_SHOWN, Findings, scattered, violations
from siltstone.store import connect

PAUSE_S = 0.1
END_TIMEOUT_S = 120


@contextmanager
def watched(path: Path, first_seq: int, findings: Findings) -> Generator[None]:
    """Let a watcher run beside the block; collect its findings at the end."""
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
