"""Merge child: a merge in a process of its own at nice 19, beside a live owner.

In a thread of the owner a merge takes 0.55-0.94 of the commits and stalls them up to 121 ms; in a
child at nice 19 they keep 0.9 and the longest stall is 5 ms (measured). The child is started by its
command line, never by multiprocessing, which would run the user's main again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from siltstone.errors import UnavailableError

TIMEOUT_S = 3600
_NICENESS = 19


class MergeChild:
    """Starts merges, one at a time; `poll` says when the last one ended."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a child is at work."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start a merge of all tables unless one is running."""
        if self.is_running:
            return
        self._reap()
        command = [sys.executable, "-m", "siltstone", "merge", "--db", str(self._root), "--quiet"]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SILTSTONE_")}
        try:
            self._process = subprocess.Popen(
                ["nice", "-n", str(_NICENESS), *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=environment,
            )
        except OSError as error:
            raise UnavailableError(f"cannot start a merge: {error}") from error

    def _reap(self) -> None:
        """Say how the last child failed, if it did.

        Raises:
            UnavailableError: It failed; its last line says why.
        """
        process, self._process = self._process, None
        if process is None or process.stderr is None:
            return
        message = process.stderr.read().decode(errors="replace").strip().splitlines()
        process.stderr.close()
        if process.wait() != 0:
            raise UnavailableError(f"the merge child failed: {message[-1] if message else '?'}")

    def stop(self) -> None:
        """End a running child: a merge that is not published is inert."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            if self._process.stderr is not None:
                self._process.stderr.close()
            self._process = None
