"""The part cache gives back what was written, within its bound, or nothing."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from siltstone.formats.parts.part_file import PartIdentity
from siltstone.storage.cache.part_cache import PartCache
from siltstone.storage.cache.part_file import PartFile

ROWS = 1_000
COLUMNS = ((1, "id", "int64"), (2, "v", "string"), (3, "x", ["vector", "float", 2]))


def rows_of(number: int) -> pa.RecordBatch:
    """Return the rows of a part: no two parts have the same."""
    ids = range(number * ROWS, number * ROWS + ROWS)
    return pa.record_batch(
        {
            "id": pa.array(ids),
            "v": pa.array([f"row {n} of part {number}" for n in ids]),
            "x": pa.array([[n, 0.5] for n in ids], pa.list_(pa.float32(), 2)),
        }
    )


def identity(number: int, store_id: str = "store", folder: str = "tables/t-1/base") -> PartIdentity:
    return PartIdentity(store_id, folder, number, (f"data/{number}.lance",), ROWS, COLUMNS)


def made(cache: PartCache, number: int, **whose: Any) -> PartFile | None:
    rows = rows_of(number)

    def scan(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from [rows.select(names).slice(at, 300) for at in range(0, ROWS, 300)]

    return cache.make(identity(number, **whose), rows.schema, scan)


def there(cache: PartCache, number: int) -> PartFile | None:
    return cache.open(identity(number), rows_of(number).schema)


def cache_at(
    folder: Path, *, bytes_max: int | None = 1 << 20, store_id: str = "store"
) -> PartCache:
    return PartCache(folder, lambda: store_id, bytes_max=bytes_max, open_bytes_max=1 << 20)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*/parts/*"))


def test_a_file_has_each_row_and_columns_of_some(tmp_path: Path) -> None:
    cache = cache_at(tmp_path / "new" / "scratch")
    file = made(cache, 3)
    assert file is not None
    assert [file.row(n) for n in range(ROWS)] == rows_of(3).to_pylist()
    some = [999, 0, 17, 17]
    found = file.take(some, ["x", "id"])
    assert found == rows_of(3).select(["x", "id"]).take(pa.array(some))
    assert made(cache, 3) is file


def test_another_process_finds_the_file(tmp_path: Path) -> None:
    made(cache_at(tmp_path), 3)
    file = there(cache_at(tmp_path), 3)
    assert file is not None
    assert file.row(7) == rows_of(3).to_pylist()[7]


def test_files_and_folders_are_of_their_user_alone(tmp_path: Path) -> None:
    made(cache_at(tmp_path / "scratch"), 1)
    (file,) = files(tmp_path / "scratch")
    assert file.stat().st_mode & 0o777 == 0o600
    assert {each.stat().st_mode & 0o777 for each in file.parents[:3]} == {0o700}


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o622])
def test_a_file_that_others_may_read_or_write_is_not_read(tmp_path: Path, mode: int) -> None:
    made(cache_at(tmp_path), 1)
    files(tmp_path)[0].chmod(mode)
    assert there(cache_at(tmp_path), 1) is None


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    made(cache_at(tmp_path), 1)
    (file,) = files(tmp_path)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert there(cache_at(tmp_path), 1) is None


def test_rows_of_another_store_table_or_part_under_the_name_are_not_read(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    made(cache, 1)
    made(cache, 2)
    made(cache, 1, store_id="other")
    made(cache, 1, folder="t-2/base")
    mine, *others = (tmp_path / "store" / "parts" / each.name for each in (
        identity(1), identity(2), identity(1, store_id="other"), identity(1, folder="t-2/base"),
    ))  # fmt: skip
    assert len(files(tmp_path)) == 4
    for other in others:
        mine.write_bytes(other.read_bytes())
        assert there(cache_at(tmp_path), 1) is None


def test_a_file_that_is_damaged_anywhere_gives_the_rows_or_nothing(tmp_path: Path) -> None:
    made(cache_at(tmp_path), 1)
    (path,) = files(tmp_path)
    whole, wanted = path.read_bytes(), rows_of(1).to_pylist()
    lost = 0
    for at in range(0, len(whole), 97):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        file = there(cache_at(tmp_path), 1)
        for row in range(0, ROWS, 50):
            found = None if file is None else file.row(row)
            assert found in (None, wanted[row]), (at, row)
            lost += found is None
    assert lost > 100


@pytest.mark.parametrize("size", [0, 1, 23, 5_000, -1])
def test_a_file_that_is_cut_is_not_read(tmp_path: Path, size: int) -> None:
    made(cache_at(tmp_path), 1)
    (path,) = files(tmp_path)
    path.write_bytes(path.read_bytes()[:size])
    assert there(cache_at(tmp_path), 1) is None


def test_an_open_file_that_is_cut_is_lost_and_made_again(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    file = made(cache, 1)
    (path,) = files(tmp_path)
    os.truncate(path, 5_000)
    assert file is not None
    assert file.row(ROWS - 1) is None
    assert file.take([ROWS - 1], ["id"]) is None
    assert there(cache, 1) is None
    assert made(cache, 1) is not None


def test_an_open_file_that_is_deleted_is_let_go_of_in_the_end(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    file = made(cache, 1)
    files(tmp_path)[0].unlink()
    assert file is not None
    found = [file.row(5) for _ in range(3_000)]
    assert found[0] == rows_of(1).to_pylist()[5]
    assert found[-1] is None


def test_all_files_of_a_user_keep_to_the_bound_and_those_used_longest_ago_go(
    tmp_path: Path,
) -> None:
    made(cache_at(tmp_path, store_id="other"), 0, store_id="other")
    (first,) = files(tmp_path)
    size = first.stat().st_size
    bound = size * 7 // 2
    cache = cache_at(tmp_path, bytes_max=bound)
    for number in (1, 2):
        made(cache, number)
    for age, path in enumerate([first, *(tmp_path / "store" / "parts" / identity(n).name
                                         for n in (1, 2))]):  # fmt: skip
        os.utime(path, (age, age))
    assert there(cache_at(tmp_path), 1) is not None  # a use
    made(cache, 3)
    assert not first.exists()
    made(cache, 4)
    assert [there(cache, n) is not None for n in (1, 2, 3, 4)] == [True, False, True, True]
    assert sum(path.stat().st_size for path in files(tmp_path)) <= bound


def test_a_file_that_will_not_fit_makes_no_other_go(tmp_path: Path) -> None:
    made(cache_at(tmp_path), 1)
    size = files(tmp_path)[0].stat().st_size
    cache = cache_at(tmp_path, bytes_max=size * 3 // 4)
    assert made(cache, 2) is None
    assert there(cache, 1) is not None
    assert len(files(tmp_path)) == 1


def test_without_a_bound_there_is_a_tenth_of_what_is_free(tmp_path: Path) -> None:
    assert made(cache_at(tmp_path, bytes_max=None), 1) is not None


def test_what_a_writer_left_who_died_is_deleted_by_the_next(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    made(cache, 1)
    (file,) = files(tmp_path)
    left = file.with_name("left.tmp")
    left.write_bytes(b"x")
    left.chmod(0o600)
    made(cache, 2)
    assert not left.exists()
    assert file.exists()


def test_one_process_writes_at_a_time_and_the_others_do_without(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    made(cache, 1)
    with (tmp_path / "parts.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert made(cache, 2) is None
        assert there(cache, 1) is not None
    assert made(cache, 2) is not None


def test_a_folder_that_cannot_be_made_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/siltstone")):
        cache = cache_at(folder)
        assert made(cache, 1) is None
        assert there(cache, 1) is None
        cache.drop_parts(["tables/t-1/base/data/1.lance"])
        assert not cache.give_way(tmp_path)


def test_a_folder_that_is_open_to_others_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0o700)
    (tmp_path / "store" / "parts").mkdir()
    (tmp_path / "store" / "parts").chmod(0o777)
    assert made(cache_at(tmp_path), 1) is None
    assert files(tmp_path) == []


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.ENOLCK])
def test_a_folder_that_takes_no_new_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """Mounted to be read only, of another user, full, or on a network that lost its locks."""
    made(cache_at(tmp_path), 1)
    opened = os.open

    def refusing(path: Any, flags: int, *mode: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(error, os.strerror(error))
        return opened(path, flags, *mode)

    monkeypatch.setattr(os, "open", refusing)
    cache = cache_at(tmp_path)
    assert made(cache, 2) is None
    file = there(cache, 1)
    assert file is not None
    assert file.row(0) == rows_of(1).to_pylist()[0]
    assert cache.use().files == 1


def test_a_file_system_that_takes_no_more_leaves_no_file(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, old[1]))
        assert made(cache, 1) is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, before)
    assert files(tmp_path) == []
    assert made(cache, 1) is not None


def test_rows_that_cannot_be_read_leave_no_file(tmp_path: Path) -> None:
    def scan(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield rows_of(1).select(names)
        raise LookupError

    cache = cache_at(tmp_path)
    with pytest.raises(LookupError):
        cache.make(identity(1), rows_of(1).schema, scan)
    assert files(tmp_path) == []


def test_the_files_of_a_part_go_with_its_data_file(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    for number in (1, 2):
        made(cache, number)
    cache.drop_parts(["tables/t-1/base/data/1.lance"])
    assert [there(cache, n) is not None for n in (1, 2)] == [False, True]


def test_the_files_of_all_stores_give_way_on_their_disk(tmp_path: Path) -> None:
    made(cache_at(tmp_path, store_id="other"), 0, store_id="other")
    cache = cache_at(tmp_path)
    made(cache, 1)
    assert not cache.give_way(Path("/proc"))
    assert len(files(tmp_path)) == 2
    assert cache.give_way(tmp_path)
    assert files(tmp_path) == []
    assert not cache.give_way(tmp_path)


def test_open_files_keep_to_their_bound_of_memory(tmp_path: Path) -> None:
    writer = cache_at(tmp_path)
    for number in range(4):
        made(writer, number)
    each = writer.nbytes // 4
    cache = PartCache(tmp_path, lambda: "store", bytes_max=1 << 20, open_bytes_max=each * 2)
    for number in (0, 1, 2, 3, 0):
        file = there(cache, number)
        assert file is not None
        assert file.row(0) == rows_of(number).to_pylist()[0]
        assert cache.nbytes <= each * 2
    small = PartCache(tmp_path, lambda: "store", bytes_max=1 << 20, open_bytes_max=each - 1)
    assert there(small, 1) is None


def test_a_folder_where_no_lock_can_be_had_is_read_and_not_written(tmp_path: Path) -> None:
    """As on a network file system without locks, or where another user was first."""
    made(cache_at(tmp_path), 1)
    (tmp_path / "parts.lock").unlink()
    (tmp_path / "parts.lock").mkdir()
    cache = cache_at(tmp_path)
    assert made(cache, 2) is None
    file = there(cache, 1)
    assert file is not None
    assert file.row(3) == rows_of(1).to_pylist()[3]


@pytest.mark.parametrize("call", ["pread", "open", "statvfs", "scandir", "listdir", "write"])
@pytest.mark.parametrize("error", [errno.ESTALE, errno.EIO, errno.ETIMEDOUT])
def test_a_folder_on_a_network_whose_server_fails_gives_the_rows_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: int
) -> None:
    """As NFS does: a handle goes stale, the server answers with an error, or not in time."""
    cache = cache_at(tmp_path)
    known = made(cache, 1)
    assert known is not None
    works = getattr(os, call)

    def failing(*given: Any, **named: Any) -> Any:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, call, failing)
    new = cache_at(tmp_path)
    assert known.row(3) in (None, rows_of(1).to_pylist()[3])
    assert made(new, 2) is None or call in {"pread", "listdir"}
    found = there(new, 1)
    assert found is None or found.row(3) in (None, rows_of(1).to_pylist()[3])
    new.use()
    new.drop_parts(["tables/t-1/base/data/9.lance"])
    monkeypatch.setattr(os, call, works)
    again = made(cache_at(tmp_path), 1) or there(cache_at(tmp_path), 1)
    assert again is not None
    assert again.row(3) == rows_of(1).to_pylist()[3]
