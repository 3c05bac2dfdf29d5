"""A disk that fails or is full at any step costs a typed error, nothing acknowledged, no repair."""

import contextlib
import random

import pytest

from siltstone.errors import RequestError, UnavailableError
from tests.crash.manifest_scenario import ROOT, Progress, check, run, steps
from tests.support.simulated_files import Fault, Kind, SimFiles, When

FAULTS = [
    (Kind.EIO, When.BEFORE),
    (Kind.EIO, When.AFTER),
    (Kind.ENOSPC, When.BEFORE),
    (Kind.ENOSPC, When.MIDDLE),
    (Kind.SHORT, When.BEFORE),
]


def step_count() -> int:
    files = SimFiles()
    run(files, Progress())
    return files.operations


@pytest.mark.parametrize("is_sticky", [False, True])
@pytest.mark.parametrize(("kind", "when"), FAULTS)
def test_a_fault_at_any_step_is_told_and_what_was_acknowledged_stays(kind, when, is_sticky):
    for at in range(1, step_count() + 1):
        files, progress = SimFiles([Fault(at, kind, when, is_sticky=is_sticky)]), Progress()
        for step in steps(files, progress):
            # RequestError, FileNotFoundError: the step before failed to make what this one needs.
            # Another OSError: `read` says what the system says.
            with contextlib.suppress(UnavailableError, RequestError, FileNotFoundError):
                try:
                    step()
                except OSError:
                    if files.trace[-1].what != "read":
                        raise
        if kind is Kind.SHORT:
            assert progress.acknowledged == progress.begun == list("abcde")
        files.faults = ()
        for image in files.images(random.Random(at), limit=6):
            check(image.files, progress)
        check(files, progress)


def test_a_publish_whose_directory_sync_failed_is_said_again_under_a_new_name():
    files, progress = SimFiles(), Progress()
    todo = list(steps(files, progress))
    todo[0]()
    before = files.operations
    todo[1]()
    sync = next(n for n, op in enumerate(files.trace, 1) if n > before and op.what == "sync_dir")
    again, progress = SimFiles([Fault(sync, Kind.EIO)]), Progress()
    todo = list(steps(again, progress))
    todo[0]()
    todo[1]()
    assert progress.acknowledged == ["a"]
    assert again.list(ROOT / "manifest") == [f"{n:020d}.json" for n in (1, 2, 3)]
