"""The real file system: what only the kernel can show."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from siltstone.storage.files.files import Buffer, RealFiles, mount_type
from siltstone.storage.files.locks import RealLock
from tests.support.traced import NthLine

FULL_DISK = """
import errno, resource, signal, sys
from pathlib import Path
from siltstone.storage.files.files import RealFiles
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
files, path = RealFiles(), Path(sys.argv[1])
for write in (
    lambda f: f.pwrite(bytes(600), 500),
    lambda f: f.pwritev([b"a" * 300, b"b" * 300], 500),
    lambda f: f.pwritev_synced([b"a" * 300, b"b" * 300], 500),
):
    file = files.open(path, create=True)
    try:
        write(file)
    except OSError as error:
        print(errno.errorcode[error.errno], file.size())
    file.close()
try:
    files.create_if_absent(path.with_name("whole"), bytes(2000))
except OSError as error:
    print(errno.errorcode[error.errno], files.list(path.parent))
"""


def test_a_short_write_goes_on_until_the_system_says_why(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "f")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [*["EFBIG 1000"] * 3, "EFBIG ['f']"]


@pytest.mark.parametrize("method", ["pwrite", "pwritev"])
def test_a_short_write_of_a_view_of_wide_items_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
):
    """Cut off after as many bytes as there are items."""
    data, write = memoryview(bytes(range(80))).cast("d"), os.pwrite
    cuts = iter([10])

    def cut(fd: int, buffer: Buffer, offset: int) -> int:
        given = memoryview(buffer).cast("B")
        return write(fd, given[: next(cuts, len(given))], offset)

    monkeypatch.setattr(os, "pwrite", cut)
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, offset: cut(fd, buffers[0], offset))
    file = RealFiles().open(tmp_path / "file", new=True)
    file.pwrite(data, 0) if method == "pwrite" else file.pwritev([data], 0)
    assert file.pread(200, 0) == data.tobytes()
    file.close()


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EIO])
def test_a_system_without_synced_writes_says_so_and_other_errors_are_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
):
    def refuses(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "pwritev", refuses)
    file = RealFiles().open(tmp_path / "file", new=True)
    if code == errno.EIO:
        with pytest.raises(OSError, match="Input/output"):
            file.pwritev_synced([b"abc"], 0)
    else:
        assert file.pwritev_synced([b"abc"], 0) is False
    assert file.size() == 0
    file.close()


def test_a_forked_child_does_not_keep_its_parents_lock(tmp_path: Path):
    files = RealFiles()
    lock = files.lock(tmp_path / "LOCK", create=True)
    assert lock is not None
    told, tell = os.pipe()
    wait, end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        os.write(tell, b"closed" if lock.fd == -1 else b"held")
        os.read(wait, 1)  # lives until the parent closes its end
        os._exit(0)
    os.close(wait)
    assert os.read(told, 10) == b"closed"
    assert files.lock(tmp_path / "LOCK") is None, "the child released the parent's lock"
    lock.release()
    again = files.lock(tmp_path / "LOCK")
    assert again is not None, "the child still holds it"
    again.release()
    os.close(end)
    os.waitpid(child, 0)
    os.close(told)
    os.close(tell)


def test_a_lock_ends_with_its_process(tmp_path: Path):
    code = (
        "import sys, pathlib; from siltstone.storage.files.files import RealFiles\n"
        "lock = RealFiles().lock(pathlib.Path(sys.argv[1]), create=True)\n"
        "print(lock is not None, flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "LOCK")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "True\n"
        assert RealFiles().lock(tmp_path / "LOCK") is None
        child.kill()
        child.wait()
    lock = RealFiles().lock(tmp_path / "LOCK")
    assert lock is not None
    lock.release()


MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /mnt/nas rw - nfs4 server:/export rw
31 22 0:27 / /mnt/with\\040space rw - fuse.sshfs host: rw
32 22 0:28 / /srv rw - tmpfs tmpfs rw
33 22 0:29 / /srv rw master:1 - cifs //host/share rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/x", "ext4"),
        ("/mnt/nas/shop", "nfs4"),
        ("/mnt/nasty", "ext4"),
        ("/mnt/with space/shop", "fuse.sshfs"),
        ("/srv/shop", "cifs"),
    ],
)
def test_a_path_is_on_the_nearest_and_latest_mount(path, kind):
    assert mount_type(Path(path), MOUNTS) == kind


@pytest.mark.parametrize("nth", range(1, 8))
def test_a_lock_that_another_thread_releases_names_a_file_or_does_not(
    tmp_path: Path, nth: int
) -> None:
    """A store may close between any two lines of a thread that asks whether it is in place."""
    path = tmp_path / "f"
    lock = RealFiles().lock(path, create=True)
    assert lock is not None
    with NthLine(nth, lock.release, RealLock.names):
        assert lock.names(path) in {True, False}
    lock.release()
