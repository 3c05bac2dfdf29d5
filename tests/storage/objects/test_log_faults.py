"""Whatever becomes of a request to a log of objects, nothing acknowledged is lost or doubled.

Each fault is tried at each request of a process; then, and in the middle, others take the log over.
"""

from __future__ import annotations

import contextlib

import pytest

from tests.storage.objects.logs import Bucket, Process, SleepyServer
from tests.support.simulated_objects import Fault, SimulatedKill

PASSING = [Fault.LOST, Fault.NOT_DONE, Fault.TWICE, Fault.LATER, Fault.CONFLICT, Fault.HALF]
COMMITS = 3


def requests_of_a_run() -> int:
    """Return how many requests a process makes whose log has frames of another one."""
    bucket = lived()
    process = Process("a", bucket, bucket.server())
    process.run(COMMITS, publishes=True)
    assert len(process.told) == COMMITS
    return process.server.requests


def lived() -> Bucket:
    bucket = Bucket()
    Process("z", bucket, bucket.server()).run(2)
    return bucket


def require_all_of(bucket: Bucket, *processes: Process) -> None:
    """Check that the log has what was acknowledged, and not what was refused, in order, once."""
    content = bucket.content()
    assert [seq for seq, _ in content] == list(range(1, len(content) + 1))
    for process in processes:
        assert set(process.told) <= set(content)
        assert not set(process.refused) & set(content)


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_at_any_request_changes_nothing(fault: Fault) -> None:
    for at in range(1, requests_of_a_run() + 1):
        bucket = lived()
        server = bucket.server()
        server.faults[at] = fault
        process = Process("a", bucket, server)
        process.run(COMMITS, publishes=True)
        assert len(process.told) == COMMITS
        server.land()
        require_all_of(bucket, process)


@pytest.mark.parametrize("fault", [Fault.KILLED_BEFORE, Fault.KILLED_AFTER, Fault.DENIED])
def test_a_process_that_ends_at_any_request_loses_nothing_acknowledged(fault: Fault) -> None:
    for at in range(1, requests_of_a_run() + 1):
        bucket = lived()
        server = bucket.server()
        server.faults[at] = fault
        first, then = Process("a", bucket, server), Process("b", bucket, bucket.server())
        with contextlib.suppress(SimulatedKill):
            first.run(COMMITS, publishes=True)
        then.run(COMMITS, publishes=True)
        assert len(then.told) == COMMITS
        require_all_of(bucket, first, then)


def test_a_put_that_lands_after_others_took_over_harms_nobody() -> None:
    for at in range(1, requests_of_a_run() + 1):
        for rounds in (1, 2):
            bucket = lived()
            server = bucket.server()
            server.faults = dict.fromkeys(range(at, at + 1000), Fault.LATER)
            processes = [Process("a", bucket, server)]
            processes[0].run(COMMITS, publishes=True)
            for name in "bc"[:rounds]:
                processes.append(Process(name, bucket, bucket.server()))
                processes[-1].run(COMMITS, publishes=True)
                assert len(processes[-1].told) == COMMITS
            server.land()
            processes.append(Process("d", bucket, bucket.server()))
            processes[-1].run(1)
            require_all_of(bucket, *processes)


@pytest.mark.parametrize("is_behind", [False, True], ids=["before it", "before its answer"])
@pytest.mark.parametrize("others", [1, 2])
def test_a_process_that_sleeps_at_any_request_finds_out_that_others_went_on(
    others: int, is_behind: bool
) -> None:
    for at in range(1, requests_of_a_run() + 1):
        bucket = lived()
        processes = [Process(name, bucket, bucket.server()) for name in "bc"[:others]]

        def meanwhile(processes: list[Process] = processes) -> None:
            for process in processes:
                process.run(COMMITS, publishes=True)

        server = SleepyServer(
            bucket.objects, below="shop/", asleep={at: meanwhile}, is_behind=is_behind
        )
        sleeper = Process("a", bucket, server)
        sleeper.run(COMMITS, publishes=True)
        assert all(len(process.told) == COMMITS for process in processes)
        last = max([sleeper, *processes], key=lambda process: process.epoch)
        assert last.append()  # who claimed last is not ended by one that claimed before
        require_all_of(bucket, sleeper, *processes)
