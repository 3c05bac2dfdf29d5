"""One store has one owner, in this process and among all."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from siltstone.errors import ClosedError, OwnedError, UnavailableError
from siltstone.storage.files.files import RealFiles
from siltstone.storage.files.locks import LinkCount, RealLock
from siltstone.storage.manifest.ownership import Holder, own, read_holder
from tests.support.simulated_files import Fault, Kind, SimFiles

OWN = """
import pathlib, sys
from siltstone.storage.files.files import RealFiles
from siltstone.storage.files.locks import LinkCount, RealLock
from siltstone.storage.manifest.ownership import own
held = own(RealFiles(), pathlib.Path(sys.argv[1]))
held.announce(epoch=7, endpoint="unix:/run/shop")
print("owned", flush=True)
sys.stdin.read()
"""


def start_owner(path: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", OWN, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "owned\n"
    return child


def test_a_second_owner_in_this_process_is_refused_until_the_first_releases(tmp_path):
    files = RealFiles()
    first = own(files, tmp_path)
    with pytest.raises(OwnedError) as refused:
        own(files, tmp_path / ".." / tmp_path.name)
    assert refused.value.pid == os.getpid()
    first.release()
    first.release()
    assert not first.is_held
    with pytest.raises(ClosedError):
        first.announce(epoch=1)
    assert read_holder(files, tmp_path) == Holder()
    own(files, tmp_path).release()


def test_another_process_is_named_and_its_death_frees_the_store(tmp_path):
    with start_owner(tmp_path) as child:
        with pytest.raises(OwnedError) as refused:
            own(RealFiles(), tmp_path)
        assert (refused.value.pid, refused.value.host) == (child.pid, os.uname().nodename)
        assert refused.value.endpoint == "unix:/run/shop"
        assert read_holder(RealFiles(), tmp_path).epoch == 7
        child.kill()
        child.wait()
        own(RealFiles(), tmp_path).release()


def test_two_stores_have_two_owners(tmp_path):
    held = []
    for name in "ab":
        (tmp_path / name).mkdir()
        held.append(own(RealFiles(), tmp_path / name))
    for ownership in held:
        ownership.release()


def test_a_forked_child_owns_nothing_and_holds_nothing(tmp_path):
    files = RealFiles()
    held = own(files, tmp_path)
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        answers = [str(held.is_held)]
        for use in (held.require_held, lambda: own(files, tmp_path)):
            try:
                use()
            except (ClosedError, OwnedError) as error:
                answers.append(type(error).__name__)
        held.release()  # must not free the parent's
        os.write(tell, ",".join(answers).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(told, 100) == b"False,ClosedError,OwnedError"
    assert held.is_held
    assert read_holder(files, tmp_path).pid == os.getpid()
    assert files.lock(tmp_path / "LOCK") is None
    held.release()
    os.close(told)
    os.close(tell)


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse", "fuse.sshfs", "9p"])
def test_a_file_system_whose_locks_lie_is_refused_unless_forced(kind):
    files = SimFiles()
    files.filesystem_type = kind
    with pytest.raises(UnavailableError, match=f"on {kind}"):
        own(files, Path("/"))
    assert files.operations == 0
    own(files, Path("/"), force=True).release()


def test_a_failed_attempt_leaves_the_store_free():
    files = SimFiles()
    own(files, Path("/")).release()
    steps = 3  # the lock's open, LOCK's open, its write
    for at in range(1, steps + 1):
        files.faults = [Fault(files.operations + at, Kind.EIO)]
        with pytest.raises(UnavailableError):
            own(files, Path("/"))
        files.faults = []
        own(files, Path("/")).release()


def test_a_damaged_lock_file_names_nobody_and_stops_nobody(tmp_path):
    (tmp_path / "LOCK").write_bytes(b"\xff{")
    assert read_holder(RealFiles(), tmp_path) == Holder()
    own(RealFiles(), tmp_path).release()


class LyingLocks:
    """A forced network file system, on which flock is granted to everybody."""

    def __init__(self, files: SimFiles) -> None:
        self._files = files

    def lock(self, path: Path, *, shared: bool = False, create: bool = False):
        return self._files.lock(path, shared=True, create=create)

    def __getattr__(self, name: str):
        return getattr(self._files, name)


def test_a_second_handle_in_this_process_is_refused_even_where_locks_lie():
    files = LyingLocks(SimFiles())
    first = own(files, Path("/"))  # type: ignore[arg-type]
    with pytest.raises(OwnedError):
        own(files, Path("/"))  # type: ignore[arg-type]
    first.release()
    own(files, Path("/")).release()  # type: ignore[arg-type]


def test_a_file_system_that_counts_no_links_has_lost_no_store(tmp_path, monkeypatch):
    monkeypatch.setattr(RealLock, "look", property(lambda _: partial(LinkCount, 0)))
    owned = own(RealFiles(), tmp_path)
    assert owned.look().st_nlink == 1
    (tmp_path / "LOCK").unlink()
    with pytest.raises(UnavailableError, match="deleted or replaced"):
        owned.require_in_place()
    assert owned.look().st_nlink == 0
    owned.release()
