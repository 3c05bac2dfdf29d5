"""The real and the simulated file system keep one contract."""

from contextlib import closing
from pathlib import Path

import pytest

from siltstone.storage.files.files import Files, RealFiles
from tests.support.simulated_files import SimFiles


@pytest.fixture(params=["real", "simulated"])
def place(request, tmp_path: Path) -> tuple[Files, Path]:
    if request.param == "real":
        return RealFiles(), tmp_path
    files = SimFiles()
    files.mkdir(Path("/base"))
    return files, Path("/base")


def test_a_write_at_an_offset_is_read_back_and_a_gap_reads_as_zeros(place):
    files, base = place
    file = files.open(base / "f", create=True)
    file.pwrite(b"world", 10)
    file.pwrite(b"hello", 0)
    assert (file.size(), file.pread(5, 0), file.pread(99, 3)) == (
        15,
        b"hello",
        b"lo" + bytes(5) + b"world",
    )
    assert file.pread(4, 15) == b""
    file.sync()
    file.close()
    file.close()
    assert files.read(base / "f") == b"hello" + bytes(5) + b"world"
    assert files.size(base / "f") == 15


def test_buffers_of_any_kind_and_number_are_written_one_after_the_other(place):
    files, base = place
    file = files.open(base / "f", create=True)
    buffers = [b"%04d" % n for n in range(2500)]
    file.pwritev([bytearray(b"<<"), *buffers, memoryview(b">>"), b""], 3)
    assert file.pread(20_000, 3) == b"<<" + b"".join(buffers) + b">>"
    file.pwritev([], 0)
    file.pwrite(b"", 0)
    file.close()


def test_what_is_stored_is_read_as_it_was_written_also_by_who_may_only_read(place):
    files, base = place
    files.write(base / "f", bytes(range(256)) * 50)
    with closing(files.open(base / "f")) as file:
        file.pwrite(b"not synced", 5000)
        for offset in (0, 1, 4095, 4096, 4999, 12_700, 12_800, 13_000):
            for size in (0, 1, 4096, 4097, 20_000):
                assert file.pread_stored(size, offset) == file.pread(size, offset)
    with closing(files.open(base / "f", write=False)) as file:
        file.sync()
        assert file.pread_stored(10, 5000) == b"not synced"
        assert file.pread(10, 5000) == b"not synced"


def test_one_call_writes_and_syncs_buffers_of_any_kind_and_number(place):
    files, base = place
    file = files.open(base / "f", create=True)
    buffers = [b"%04d" % n for n in range(2500)]
    for at in (0, 30_000):
        assert file.pwritev_synced([bytearray(b"<<"), *buffers[:900], memoryview(b">>")], at)
    assert file.pread(3606, 30_000) == b"<<" + b"".join(buffers[:900]) + b">>"
    assert file.pwritev_synced(buffers, 7)
    assert file.pread(10_000, 7) == b"".join(buffers)
    assert file.pwritev_synced([memoryview(bytes(80)).cast("d")], 0)
    file.close()
    with pytest.raises(OSError, match="Bad file"):
        file.pwritev_synced([b"x"], 0)


def test_open_makes_a_file_only_when_told(place):
    files, base = place
    with pytest.raises(FileNotFoundError):
        files.open(base / "f")
    files.open(base / "f", create=True).close()
    files.open(base / "f", create=True).close()
    with pytest.raises(FileExistsError):
        files.open(base / "f", new=True)
    with pytest.raises(FileNotFoundError):
        files.open(base / "none" / "f", create=True)


def test_a_file_opened_for_reading_refuses_a_write_and_a_closed_one_everything(place):
    files, base = place
    files.write(base / "f", b"abc")
    file = files.open(base / "f", write=False)
    with pytest.raises(OSError, match="Bad file"):
        file.pwrite(b"x", 0)
    file.close()
    for use in (lambda: file.pread(1, 0), file.sync, file.size):
        with pytest.raises(OSError, match="Bad file"):
            use()


def test_an_unlinked_file_lives_on_for_who_opened_it(place):
    files, base = place
    files.write(base / "f", b"abc")
    file = files.open(base / "f")
    files.unlink(base / "f")
    assert (files.exists(base / "f"), file.pread(3, 0)) == (False, b"abc")
    file.close()


def test_write_refuses_a_taken_name_and_leaves_the_file(place):
    files, base = place
    files.write(base / "f", b"old")
    with pytest.raises(FileExistsError):
        files.write(base / "f", b"new")
    assert files.read(base / "f") == b"old"


def test_create_if_absent_wins_once_and_leaves_nothing_else(place):
    files, base = place
    assert files.create_if_absent(base / "f", b"first")
    assert not files.create_if_absent(base / "f", b"second")
    assert (files.read(base / "f"), files.list(base)) == (b"first", ["f"])
    with pytest.raises(FileNotFoundError):
        files.create_if_absent(base / "none" / "f", b"")


@pytest.mark.parametrize("durable", [True, False])
def test_replace_puts_new_content_in_place_and_leaves_nothing_else(place, durable):
    files, base = place
    for content in (b"one", b"", b"two"):
        files.replace(base / "f", content, durable=durable)
        assert (files.read(base / "f"), files.list(base)) == (content, ["f"])


def test_rename_link_and_unlink_change_names_alone(place):
    files, base = place
    files.write(base / "a", b"abc")
    files.mkdir(base / "sub")
    files.rename(base / "a", base / "sub" / "b")
    files.link(base / "sub" / "b", base / "c")
    assert files.identity(base / "c") == files.identity(base / "sub" / "b")
    with pytest.raises(FileExistsError):
        files.link(base / "c", base / "sub" / "b")
    files.unlink(base / "sub" / "b")
    assert (files.read(base / "c"), files.list(base), files.list(base / "sub")) == (
        b"abc",
        ["c", "sub"],
        [],
    )
    with pytest.raises(FileNotFoundError):
        files.unlink(base / "sub" / "b")
    with pytest.raises(FileNotFoundError):
        files.rename(base / "none", base / "c")
    with pytest.raises(IsADirectoryError):
        files.rename(base / "c", base / "sub")
    files.write(base / "d", b"over")
    files.rename(base / "d", base / "c")
    assert files.read(base / "c") == b"over"


def test_mkdir_makes_parents_and_is_content_with_what_is_there(place):
    files, base = place
    files.mkdir(base / "a" / "b" / "c")
    files.mkdir(base / "a" / "b" / "c")
    assert files.is_dir(base / "a" / "b" / "c")
    with pytest.raises(FileExistsError):
        files.make_level(base / "a")
    files.write(base / "f", b"")
    for path in (base / "f", base / "f" / "g"):
        with pytest.raises(NotADirectoryError):
            files.mkdir(path)


def test_only_an_empty_directory_is_removed(place):
    files, base = place
    files.mkdir(base / "a" / "b")
    with pytest.raises(OSError, match="not empty"):
        files.rmdir(base / "a")
    files.rmdir(base / "a" / "b")
    assert files.list(base / "a") == []


def test_files_and_directories_are_told_apart(place):
    files, base = place
    files.write(base / "f", b"x")
    assert (files.exists(base / "f"), files.is_dir(base / "f")) == (True, False)
    assert (files.exists(base), files.is_dir(base)) == (True, True)
    assert (files.exists(base / "f" / "g"), files.is_dir(base / "none")) == (False, False)
    with pytest.raises(IsADirectoryError):
        files.read(base)
    with pytest.raises(NotADirectoryError):
        files.list(base / "f")
    with pytest.raises(FileNotFoundError):
        files.list(base / "none")


def test_syncs_by_name_need_the_name(place):
    files, base = place
    files.write(base / "f", b"x")
    files.sync_file(base / "f")
    files.sync_dir(base)
    for sync in (files.sync_file, files.sync_dir, files.size, files.mtime, files.identity):
        with pytest.raises(FileNotFoundError):
            sync(base / "none")
    assert isinstance(files.mtime(base / "f"), float)


def test_an_exclusive_lock_keeps_everybody_else_out_until_it_is_released(place):
    files, base = place
    with pytest.raises(FileNotFoundError):
        files.lock(base / "f")
    lock = files.lock(base / "f", create=True)
    assert lock is not None
    assert lock.fd >= 0
    assert files.lock(base / "f") is None
    assert files.lock(base / "f", shared=True) is None
    lock.release()
    lock.release()
    assert lock.fd == -1
    again = files.lock(base / "f")
    assert again is not None
    again.release()


def test_shared_locks_go_together_and_keep_an_exclusive_one_out(place):
    files, base = place
    files.write(base / "f", b"")
    first, second = files.lock(base / "f", shared=True), files.lock(base / "f", shared=True)
    assert first is not None
    assert second is not None
    first.release()
    assert files.lock(base / "f") is None
    second.release()
    last = files.lock(base / "f")
    assert last is not None
    last.release()


def test_a_lock_tells_whether_the_name_is_still_its_file(place):
    files, base = place
    files.write(base / "f", b"")
    lock = files.lock(base / "f", shared=True)
    assert lock is not None
    assert lock.names(base / "f")
    files.unlink(base / "f")
    assert not lock.names(base / "f")
    files.write(base / "f", b"")
    assert not lock.names(base / "f")
    lock.release()
    assert not lock.names(base / "f")


@pytest.mark.parametrize("size", [0, 1, 512, (1 << 20) + 7])
def test_a_preallocated_file_is_new_and_all_zeros(place, size):
    files, base = place
    files.preallocate(base / "f", size)
    assert files.read(base / "f") == bytes(size)
    with pytest.raises(FileExistsError):
        files.preallocate(base / "f", size)


def test_a_temporary_name_is_hidden_unused_and_in_the_same_directory(place):
    files, base = place
    names = {files.temporary(base / "f") for _ in range(10)}
    assert len(names) == 10
    for name in names:
        assert (name.parent, name.name[:3], name.suffix) == (base, ".f.", ".tmp")


def test_the_file_system_has_a_type(place):
    files, base = place
    assert files.filesystem(base)
