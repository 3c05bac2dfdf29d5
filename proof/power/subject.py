"""Subject: the process that is recorded.

    python -m proof.power.subject SCENARIO STORE TOLD

Each part of the scenario is a process of its own, so that one may be killed and the next recover.
Nothing of Lance is imported before the fork. What is acknowledged is a line in the file TOLD,
written when the call has returned, so its place in the account of strace is its place in time.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

_FINISHED, _MORE = 0, 10


def main(scenario: str, store: str, told: str) -> int:
    """Live all parts; return 0 when each ended as it should."""
    part = 0
    while True:
        child = os.fork()
        if child == 0:
            _live(scenario, Path(store), Path(told), part)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL:
            return 1
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) != _MORE:
            return os.WEXITSTATUS(status)
        part += 1


def _live(scenario: str, store: Path, told: Path, part: int) -> None:
    """Be the process of one part."""
    from proof.power.life import Life  # noqa: PLC0415 - Lance does not survive a fork
    from proof.power.scenarios import SCENARIOS  # noqa: PLC0415

    parts = SCENARIOS[scenario].parts
    life = Life(store, told, SCENARIOS[scenario].options)
    parts[part](life)
    life.close()
    os._exit(_FINISHED if part + 1 == len(parts) else _MORE)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
