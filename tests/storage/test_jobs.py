"""Job records: alive while their flock is held, true up to the last whole line."""

import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from random import Random

import pytest

from siltstone.errors import UnavailableError
from siltstone.formats.manifest import Record
from siltstone.storage.files.files import RealFiles
from siltstone.storage.tables.jobs import GcHorizonError, Jobs, refuse_below_gc_horizon
from tests.support.simulated_files import Fault, Kind, SimFiles, SimulatedCrash

ROOT = Path("/store")


def jobs_in(files, root=ROOT):
    clock, names = count(1_000), count(1)
    return Jobs(files, root, lambda: next(clock), lambda: f"job-{next(names)}")


@pytest.fixture
def files():
    found = SimFiles()
    found.mkdir(ROOT)
    return found


def test_a_running_job_is_seen_with_what_it_finished(files):
    jobs = jobs_in(files)
    with jobs.begin("optimize", ("orders",), ("base[0:10]",)) as job:
        job.append(b'{"n":1}')
        (seen,) = jobs.list()
    assert seen.is_running
    assert seen.job == job.job
    assert (seen.job.kind, seen.job.tables, seen.job.inputs) == (
        "optimize",
        ("orders",),
        ("base[0:10]",),
    )
    assert seen.finished == (b'{"n":1}',)


def test_a_finished_job_leaves_no_record(files):
    jobs = jobs_in(files)
    jobs.begin("merge", ()).finish()
    assert jobs.list() == []


def test_a_job_that_ends_without_a_finished_task_leaves_no_record(files):
    jobs = jobs_in(files)
    with jobs.begin("merge", ()):
        pass
    assert jobs.list() == []


def test_a_job_that_failed_with_finished_tasks_is_left_as_a_dead_one(files):
    jobs = jobs_in(files)
    with jobs.begin("optimize", ()) as job:
        job.append(b"1")
    (seen,) = jobs.list()
    assert not seen.is_running
    assert seen.finished == (b"1",)
    assert jobs.remove(seen.id)
    assert jobs.list() == []


def test_a_running_job_is_never_removed(files):
    jobs = jobs_in(files)
    with jobs.begin("merge", ()) as job:
        assert not jobs.remove(job.job.id)
        assert jobs.list()


def test_a_crash_at_every_step_leaves_whole_lines_or_nothing(files):
    def life(files):
        with jobs_in(files).begin("optimize", ("t",)) as job:
            job.append(b"1")
            job.append(b"2")

    before = files.operations
    life(files)
    for at in range(before + 1, files.operations + 1):
        machine = SimFiles()
        machine.mkdir(ROOT)
        machine.faults = (Fault(at),)
        with pytest.raises(SimulatedCrash):
            life(machine)
        for image in machine.images(Random(at), limit=8):
            found = jobs_in(image.files).list()
            assert all(not seen.is_running for seen in found)
            assert all(seen.finished in {(), (b"1",), (b"1", b"2")} for seen in found)


def test_a_torn_or_damaged_line_ends_the_list(files):
    jobs = jobs_in(files)
    with jobs.begin("optimize", ()) as job:
        job.append(b"1")
        job.append(b"2")
    path = jobs.folder / "job-1.json"
    data = files.read(path)
    files.replace(path, data[:-4])
    assert jobs.list()[0].finished == (b"1",)
    files.replace(path, b"x" + data)
    assert jobs.list()[0].job is None


def test_a_record_that_cannot_be_written_begins_nothing(files):
    files.mkdir(ROOT / "jobs")
    files.faults = (Fault(files.operations + 1, Kind.ENOSPC, is_sticky=True),)
    with pytest.raises(UnavailableError):
        jobs_in(files).begin("merge", ())
    files.faults = ()
    assert jobs_in(files).list() == []


@pytest.mark.parametrize("step", ["lock", "open"])
def test_a_record_that_a_vacuum_takes_at_birth_is_written_under_another_name(
    tmp_path, monkeypatch, step
):
    """A vacuum without a grace period takes it for what a crash had left."""
    files, taken = RealFiles(), list[Path]()
    done = getattr(files, step)

    def vacuumed_after(path, **options):
        found = done(path, **options)
        if not taken:
            taken.append(path)
            path.unlink()
        return found

    monkeypatch.setattr(files, step, vacuumed_after, raising=False)
    jobs = jobs_in(files, tmp_path)
    with jobs.begin("optimize", ()) as job:
        assert taken
        assert [seen.id for seen in jobs.list()] == [job.job.id]
    assert [*jobs.folder.iterdir()] == []


def test_what_is_no_record_stops_nobody(tmp_path):
    jobs = jobs_in(RealFiles(), tmp_path)
    job = jobs.begin("merge", ())
    (jobs.folder / "a.json").mkdir()
    (jobs.folder / "b.json").write_bytes(b"")
    (jobs.folder / "c.json").write_bytes(b"\xff" * 100_000)
    (jobs.folder / "FINISHED").mkdir()
    assert [seen.is_running for seen in jobs.list() if seen.job is None] == [False, False]
    assert jobs.finished() == []
    job.finish()
    assert [seen.id for seen in jobs.list()] == ["b", "c"]


class OfAnotherUser(RealFiles):
    def lock(self, path, *, shared=False, create=False):
        if path.suffix == ".json":
            raise PermissionError(13, "Permission denied", str(path))
        return super().lock(path, shared=shared, create=create)


def test_a_record_that_we_may_not_look_at_counts_as_running(tmp_path):
    jobs_in(RealFiles(), tmp_path).begin("merge", ()).abandon()
    (seen,) = jobs_in(OfAnotherUser(), tmp_path).list()
    assert seen.is_running
    assert seen.job is None
    assert seen.changed_us > 0


def test_the_death_of_its_process_makes_a_job_dead(tmp_path):
    code = (
        "import sys, time; from pathlib import Path\n"
        "from siltstone.storage.files.files import RealFiles\n"
        "from siltstone.storage.tables.jobs import Jobs\n"
        "jobs = Jobs(RealFiles(), Path(sys.argv[1]), time.time_ns, lambda: 'one')\n"
        "job = jobs.begin('optimize', ('t',)); job.append(b'7'); print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout.readline() == b"ready\n"
        jobs = jobs_in(RealFiles(), tmp_path)
        assert jobs.list()[0].is_running
        assert not jobs.remove("one")
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    (seen,) = jobs.list()
    assert not seen.is_running
    assert seen.job.pid == child.pid
    assert seen.finished == (b"7",)


def test_what_was_begun_before_the_condemned_time_is_not_published():
    record = Record("s", 3, 1, "w", 5, gc_horizon_us=100)
    refuse_below_gc_horizon(record, 100)
    with pytest.raises(GcHorizonError, match="99"):
        refuse_below_gc_horizon(record, 99)
    refuse_below_gc_horizon(Record("s", 3, 1, "w", 5), 0)
