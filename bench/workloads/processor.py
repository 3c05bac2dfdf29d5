"""CPU: the processor time of a commit, a read and a transfer, in a process of their own.

A wait for the disk or a neighbour hardly moves it, so it tells more of a change than a rate does.
Functions are counted in this process, for a commit of one row; see `bench.cpu`.
"""

from __future__ import annotations

import json
import subprocess
import sys

from bench.cpu.calls import C, calls_in_process, ours
from bench.workload import Metrics, Place


class Processor:
    name = "CPU"
    title = "processor time and calls, of one commit, read and transfer"

    def prepare(self, peer: Place) -> None:
        del peer

    def measure(self, peer: Place, turn: int) -> Metrics:
        command = [sys.executable, "-m", "bench.cpu.work"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        fresh = peer.another(f"calls-{turn}")
        calls, before_sync = calls_in_process(fresh.path)["upsert"]
        fresh.remove()
        return {
            **json.loads(done.stdout),
            "commit calls": float(calls.total()),
            "commit functions of ours": float(ours(calls)),
            "commit functions up to the sync": float(before_sync),
            "commit syncs": float(sum(calls[C, name] for name in ("pwritev", "fdatasync"))),
        }
