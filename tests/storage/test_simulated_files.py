"""A simulated machine forgets exactly what was not synced, and fails exactly where it is told."""

import random
from pathlib import Path

import pytest

from tests.support.simulated_disk import Disk, Node, Write
from tests.support.simulated_files import Fault, Kind, SimFiles, SimulatedCrash, When

F, G = Path("/f"), Path("/g")


def images(files: SimFiles) -> dict[str, dict[str, bytes | None]]:
    return {i.label: dict(i.files.tree()) for i in files.images(random.Random(1))}


def contents(files: SimFiles, path: Path = F) -> set[bytes | None]:
    return {tree.get(str(path)) for tree in images(files).values()}


def test_what_was_synced_with_its_name_is_in_every_image():
    files = SimFiles()
    files.write(F, b"kept")
    files.sync_dir(Path("/"))
    assert contents(files) == {b"kept"}


def test_a_synced_file_whose_directory_was_not_may_have_no_name():
    files = SimFiles()
    files.write(F, b"kept")
    assert contents(files) == {None, b"kept"}


def test_a_name_may_be_durable_before_the_content():
    files = SimFiles()
    files.open(F, create=True).pwrite(b"abcd", 0)
    files.sync_dir(Path("/"))
    assert contents(files) == {
        b"",
        b"a",
        b"ab",
        b"abc",
        b"abcd",
        bytes(4),
        b"a\0\0\0",
        b"ab\0\0",
    } | {
        b"abc\0",
        b"\0bcd",
        b"\0\0cd",
        b"\0\0\0d",
    }


def test_a_write_may_reach_the_disk_before_an_earlier_one():
    files = SimFiles()
    files.write(F, bytes(4))
    files.sync_dir(Path("/"))
    file = files.open(F)
    file.pwrite(b"1", 0)
    file.pwrite(b"2", 1)
    assert contents(files) >= {bytes(4), b"1\0\0\0", b"\x002\0\0", b"12\0\0"}


def test_a_torn_write_is_cut_at_sectors_of_the_file():
    files = SimFiles()
    files.preallocate(F, 2048)
    files.sync_dir(Path("/"))
    files.open(F).pwrite(b"x" * 1000, 100)
    assert any(
        c is not None and c.rstrip(b"\0").endswith(b"x") and c.count(b"x") == 412
        for c in contents(files)
    )


def test_a_replaced_file_is_the_old_or_the_new_one():
    files = SimFiles()
    files.replace(F, b"old")
    files.faults = [Fault(files.operations + 5)]  # open, pwrite, sync, rename; then sync_dir
    with pytest.raises(SimulatedCrash):
        files.replace(F, b"new")
    assert contents(files) == {b"old", b"new"}


def test_a_rename_that_was_not_synced_first_may_leave_an_empty_file():
    files = SimFiles()
    files.replace(F, b"old")
    files.replace(F, b"new", durable=False)
    assert {b"old", b"new", b""} <= contents(files)


def test_a_sync_covers_no_write_that_came_after_it_began():
    disk = Disk()
    inode = disk.make(F, Node())
    disk.sync(disk.inode(Path("/")))
    disk.apply(Write(inode, 0, b"ab"))
    began = disk.clock
    disk.apply(Write(inode, 2, b"c"))
    disk.sync(inode, before=began)
    left = {image.tree()[1][1] for _, image in disk.images(random.Random(1))}
    assert left == {b"ab", b"ab\0", b"abc"}
    disk.sync(inode)
    assert [image.tree()[1][1] for _, image in disk.images(random.Random(1))] == [b"abc"]


def test_a_write_that_is_synced_by_its_own_call_makes_nothing_else_durable():
    files = SimFiles()
    file = files.open(F, create=True)
    files.sync_dir(Path("/"))
    file.pwrite(b"before", 0)
    assert file.pwritev_synced([b"be", b"hind"], 6)
    assert contents(files) >= {bytes(6) + b"behind", b"beforebehind"}
    assert all(content.endswith(b"behind") for content in contents(files))


def test_a_failed_sync_leaves_the_content_readable_and_never_durable():
    files = SimFiles()
    file = files.open(F, create=True)
    files.sync_dir(Path("/"))
    file.pwrite(b"lost", 0)
    files.faults = [Fault(files.operations + 1, Kind.EIO)]
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.sync()
    assert files.read(F) == b"lost"
    assert file.pread_stored(4, 0) == b""
    assert contents(files) == {b""}


def test_a_sync_may_fail_after_it_made_the_content_durable():
    files = SimFiles()
    file = files.open(F, create=True)
    files.sync_dir(Path("/"))
    file.pwrite(b"kept", 0)
    files.faults = [Fault(files.operations + 1, Kind.EIO, When.AFTER)]
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    assert contents(files) == {b"kept"}


@pytest.mark.parametrize("when", list(When))
def test_a_crash_stops_the_machine_before_in_or_after_a_write(when):
    files = SimFiles()
    file = files.open(F, create=True)
    files.faults = [Fault(files.operations + 1, when=when)]
    with pytest.raises(SimulatedCrash):
        file.pwrite(b"abcd", 0)
    for use in (
        lambda: file.pread(1, 0),
        file.sync,
        lambda: files.read(F),
        lambda: files.exists(F),
    ):
        with pytest.raises(SimulatedCrash):
            use()
    written = {When.BEFORE: b"", When.MIDDLE: b"ab", When.AFTER: b"abcd"}[when]
    assert files.killed().read(F) == written


def test_a_short_write_is_completed_and_a_full_disk_after_it_is_told():
    files = SimFiles()
    file = files.open(F, create=True)
    files.faults = [Fault(files.operations + 1, Kind.SHORT)]
    file.pwrite(b"abcd", 0)
    assert (files.read(F), files.trace[-2].what) == (b"abcd", "pwrite")
    files.faults = [
        Fault(files.operations + 1, Kind.SHORT),
        Fault(files.operations + 2, Kind.ENOSPC),
    ]
    with pytest.raises(OSError, match="No space"):
        file.pwrite(b"wxyz", 0)
    assert files.read(F) == b"wxcd"


def test_a_sticky_fault_stays_until_it_is_taken_away():
    files = SimFiles([Fault(2, Kind.ENOSPC, is_sticky=True)])
    file = files.open(F, create=True)
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            file.pwrite(b"x", 0)
    files.faults = []
    file.pwrite(b"x", 0)


def test_a_killed_process_loses_no_write_but_a_power_cut_after_it_still_may():
    files = SimFiles()
    files.open(F, create=True).pwrite(b"abc", 0)
    lock = files.lock(F)
    assert lock is not None
    files.crash()
    after = files.killed()
    assert (lock.fd, after.read(F)) == (-1, b"abc")
    assert after.lock(F) is not None
    assert None in contents(after)


def test_images_are_different_and_leave_the_machine_alone():
    files = SimFiles()
    files.replace(F, b"old", durable=False)
    files.write(G, b"other")
    before = files.tree()
    found = [image.files.tree() for image in files.images(random.Random(1))]
    assert len(found) == len(set(found)) > 4
    assert files.tree() == before
    assert len(list(files.images(random.Random(1), limit=3))) == 3


def test_a_directory_whose_name_was_lost_takes_its_files_along():
    files = SimFiles()
    files.make_level(Path("/d"))
    files.write(Path("/d/f"), b"x")
    files.sync_dir(Path("/d"))
    assert contents(files, Path("/d/f")) == {None, b"x"}


def test_every_handle_on_the_machine_competes_for_its_locks():
    files = SimFiles()
    lock = files.lock(F, create=True)
    assert lock is not None
    assert files.lock(F, shared=True) is None


def test_a_directory_that_a_killed_process_began_is_durable_when_the_next_made_it():
    deep = Path("/a/b/c")
    at = 1
    while True:
        files = SimFiles([Fault(at)])
        try:
            files.mkdir(deep)
        except SimulatedCrash:
            after = files.killed()
            after.mkdir(deep)
            assert all("/a/b/c" in tree for tree in images(after).values()), f"killed at {at}"
            at += 1
        else:
            break
    assert at == 8  # the root's sync, then three levels, made and synced
