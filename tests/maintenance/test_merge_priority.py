"""A merge that nobody waits for is nice to others; one that writers wait for is not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from siltstone.engine.commit.write_set import WriteSet
from siltstone.errors import BusyError, UnavailableError
from siltstone.maintenance.merge import merge_child
from siltstone.maintenance.merge.merge_child import NICENESS, MergeChild
from siltstone.maintenance.merge.slots import Slot
from siltstone.maintenance.schedule.scheduler import Scheduler
from tests.maintenance.idle_work import IdleWork
from tests.maintenance.stores import open_store

MEMORY_BYTES_MAX = 400_000_000
WRITE_SET = WriteSet(1, None, (), nbytes=1)


def child_of(root: Path, python: Path) -> MergeChild:
    """Return one that needs no slot of the machine, which other tests may have."""
    return MergeChild(root, python=str(python), slot=Slot)


@pytest.fixture
def child(tmp_path: Path):
    """A child that waits for ever at whatever it is told to do."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 3600\n")
    python.chmod(0o755)
    found = child_of(tmp_path, python)
    yield found
    found.stop()


def niceness(child: MergeChild) -> int:
    """Return that of the process once `nice` has set it and run what it is to run."""
    assert child._process is not None
    pid = child._process.pid
    while Path(f"/proc/{pid}/comm").read_text().strip() != "sleep":
        assert child.is_running
        os.sched_yield()
    return os.getpriority(os.PRIO_PROCESS, pid)


@pytest.mark.parametrize(
    ("line", "told"), [("kill -9 $$", "killed by signal 9"), ("exit 3", "exit code 3"),
                       ("echo said >&2; exit 3", "said")]
)  # fmt: skip
def test_a_child_that_ended_says_how(tmp_path: Path, line: str, told: str) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{line}\n")
    python.chmod(0o755)
    child = child_of(tmp_path, python)
    child.start()
    assert child._process is not None
    child._process.wait()
    with pytest.raises(UnavailableError, match=f"the merge child failed: {told}"):
        child.start()


def test_a_merge_that_nobody_waits_for_is_nice(child: MergeChild) -> None:
    child.start()
    assert niceness(child) == NICENESS


def test_a_merge_that_begins_while_writers_wait_is_not(child: MergeChild) -> None:
    child.hurry(is_waited_for=True)
    child.start()
    assert niceness(child) == os.nice(0)


def test_one_that_runs_when_writers_begin_to_wait_is_raised_or_begun_again(
    child: MergeChild,
) -> None:
    child.start()
    assert niceness(child) == NICENESS
    child.hurry(is_waited_for=True)
    assert niceness(child) == os.nice(0)
    child.hurry(is_waited_for=False)
    child.stop()
    child.start()
    assert niceness(child) == NICENESS


def test_one_that_may_not_be_raised_and_gets_no_processor_is_begun_again(
    child: MergeChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", refused)
    child.start()
    assert niceness(child) == NICENESS
    first = child._process
    child.hurry(is_waited_for=True)
    assert niceness(child) == os.nice(0)
    assert first.poll() is not None
    again = child._process
    child.hurry(is_waited_for=True)
    assert child._process is again, "once is enough"


def test_one_that_gets_its_share_goes_on(
    child: MergeChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", refused)
    monkeypatch.setattr(merge_child, "_processor_s", lambda _: 1e9)
    child.start()
    before = child._process
    child.hurry(is_waited_for=True)
    assert child._process is before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_somebody_without_privileges_gets_it_too(tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from tests.maintenance.test_merge_priority import child_of, niceness\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "child = child_of(Path('/'), Path('/tmp') / sys.argv[1])\n"
        "child.start()\n"
        "assert niceness(child) == 19\n"
        "child.hurry(is_waited_for=True)\n"
        "assert niceness(child) == os.nice(0), niceness(child)\n"
        "child.stop()\n"
    )
    folder = Path("/tmp") / f"siltstone-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        python = folder / "python"
        python.write_text("#!/bin/sh\nexec sleep 3600\n")
        python.chmod(0o755)
        setup = subprocess.run(
            [sys.executable, "-c", script, f"{folder.name}/python"],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parents[2],
        )
    finally:
        (folder / "python").unlink()
        folder.rmdir()
    assert setup.returncode == 0, setup.stderr


def scheduler_of(
    db, hurried: list[bool], *, room_timeout_s: float, is_overdue: Callable[[], bool]
) -> Scheduler:
    work = IdleWork(
        history_bytes=lambda: MEMORY_BYTES_MAX * is_overdue(),
        hurry=hurried.append,
    )
    return Scheduler(
        db._core.committer,
        work,
        memory_bytes_max=MEMORY_BYTES_MAX,
        memtable_bytes_max=1 << 20,
        sealed_generations_max=1,
        room_timeout_s=room_timeout_s,
        is_background=True,
    )


def test_writers_that_wait_hurry_the_merge_until_they_go_on(tmp_path):
    hurried: list[bool] = []
    with open_store(tmp_path / "s") as db:
        scheduler = scheduler_of(
            db, hurried, room_timeout_s=600, is_overdue=lambda: True not in hurried
        )
        scheduler._hear_news()
        assert hurried == [False], "nobody waits"
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(scheduler.room, WRITE_SET)
            while True not in hurried:
                scheduler._hear_news()
            scheduler._hear_news()
            waiting.result(60)
        assert hurried[-1] is False


def test_a_writer_that_waited_too_long_is_told_for_what_and_how_long(tmp_path):
    with open_store(tmp_path / "s") as db:
        scheduler = scheduler_of(db, [], room_timeout_s=0.5, is_overdue=lambda: True)
        scheduler._hear_news()
        with pytest.raises(BusyError) as caught:
            scheduler.room(WRITE_SET)
        for words in (
            "take 400 MB",
            "at most 200 MB",
            "a merge is due",
            "waited 0.5 s",
            "room_timeout_s",
            "memory_bytes",
        ):
            assert words in str(caught.value)
