"""Watching: starts the process that reads next to the owner, ends it, collects its findings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from siltstone.cli.demo.checks import Findings

END_TIMEOUT_S = 120


class Watcher:
    """A context manager around the process `siltstone.cli.demo.watcher`."""

    def __init__(self, path: Path, first_seq: int, findings: Findings) -> None:
        self._command = [sys.executable, "-m", "siltstone.cli.demo.watcher", str(path)]
        self._command.append(str(first_seq))
        self._findings = findings

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            out, err = self._process.communicate(timeout=END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            out, err = self._process.communicate()
        if self._process.returncode != 0:
            last = err.decode(errors="replace").strip().splitlines()[-1:]
            self._findings.fail(f"the read-only process failed: {' '.join(last)}")
            return
        found = json.loads(out)
        for name, count in found["checked"].items():
            self._findings.note(name, [], count)
        self._findings.note("another process, now", found["wrong"], 0)
