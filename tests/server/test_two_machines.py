"""A store on a shared file system: one machine owns and serves it, the others join it by its path.

Their directories have different paths, and their processes different host names.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

import siltstone as st
from siltstone.server.rest.tokens import digest_of
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.ownership import read_holder
from tests.support.machines import Machine, address

SECRET = "s" * 40
COMMIT = """
with st.connect(root + "/shop", join=True) as db:
    print(type(db).__name__, db.path)
    print(db["t"].upsert({"id": 2, "v": "driver"}).seq)
"""


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    shared = tmp_path / "shared"
    shared.mkdir()
    with st.connect(shared / "shop", background=False) as db:
        db.create_table("t", {"id": "int64", "v": "string"}, "id").upsert({"id": 1, "v": "here"})
    write_tokens(shared)
    return shared


def write_tokens(shared: Path) -> None:
    """Write the access tokens of a server beside the shared directory."""
    tokens = shared.parent / "tokens"
    tokens.write_text(f"driver admin sha256:{digest_of(SECRET).hex()}\n")
    tokens.chmod(0o600)


@pytest.fixture
def there(shared: Path) -> Machine:
    return Machine.of("there", shared)


@pytest.fixture
def here(shared: Path) -> Machine:
    return Machine.of("here", shared)


@contextmanager
def served(machine: Machine, host: str = "") -> Generator[subprocess.Popen[str]]:
    """Own and serve the store on a machine."""
    command = [sys.executable, "-m", "siltstone", "serve", "--db", str(machine.root / "shop")]
    command += ["--host", host or address(), "--port", "0"]
    command += ["--tokens", str(machine.shared.parent / "tokens")]
    with machine.running(*command) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http"), process.communicate()
        yield process


@pytest.mark.parametrize("is_remote", [False, True])
def test_the_owner_on_another_machine_is_joined_by_the_path_whatever_locks_say(
    there: Machine, here: Machine, is_remote: bool
) -> None:
    with served(there):
        lines = here.python(COMMIT, is_remote=is_remote, SILTSTONE_TOKEN=SECRET)
        read = here.python(
            'print(st.connect(root + "/shop", read_only=True)["t"].count())', is_remote=is_remote
        )
    assert lines == [f"JoinedStore {here.root}/shop", "3"]
    assert read == ["2"]


def test_rows_are_staged_in_the_shared_directory_and_committed_there(
    there: Machine, here: Machine
) -> None:
    code = """
import pyarrow as pa
with st.connect(root + "/shop", join=True) as db:
    task = db.stage("t", "upsert")
    print(task.root)
    piece = task.run(pa.table({"id": range(10, 40), "v": ["x"] * 30}))
    with db.transaction() as tx:
        tx.attach(task, [piece])
    print(db["t"].count())
"""
    with served(there):
        lines = here.python(code, SILTSTONE_TOKEN=SECRET)
    assert lines == [f"{here.root}/shop", "31"]


def test_the_server_wants_its_token(there: Machine, here: Machine) -> None:
    environment = {"SILTSTONE_TOKEN": ""}
    with served(there):
        (line,) = here.python(COMMIT, **environment)
    assert line.startswith("AccessError")


def test_an_owner_that_serves_its_own_machine_alone_is_named(there: Machine, here: Machine) -> None:
    with served(there, "127.0.0.1"):
        (line,) = here.python(COMMIT, SILTSTONE_TOKEN=SECRET)
    assert line.startswith("OwnedError")
    assert "on there; open it with read_only=True, or join it with join=True (first call" in line


def test_where_locks_do_not_work_a_dead_owner_is_named_and_nothing_is_owned(
    there: Machine, here: Machine
) -> None:
    with served(there) as process:
        process.kill()
        process.wait()
    before = (there.shared / "shop/LOCK").read_bytes()
    (line,) = here.python(COMMIT, is_remote=True, SILTSTONE_TOKEN=SECRET)
    assert line.startswith(f"UnavailableError {here.root}/shop is on nfs4, where locks")
    assert "does not answer" in line
    assert (there.shared / "shop/LOCK").read_bytes() == before


def test_where_locks_work_a_dead_owner_is_succeeded(there: Machine, here: Machine) -> None:
    with served(there) as process:
        process.kill()
        process.wait()
    lines = here.python(COMMIT, SILTSTONE_TOKEN=SECRET)
    assert lines == [f"LocalStore {here.root}/shop", "3"]


def test_a_copy_of_the_directory_is_not_taken_for_the_store(
    there: Machine, shared: Path, tmp_path: Path
) -> None:
    """It has the store's LOCK, with the URL, and perhaps the same device and inode."""
    other = tmp_path / "other"
    with served(there):
        shutil.copytree(shared, other)
        copied = Machine.of("copied", other)
        lines = copied.python(COMMIT, is_remote=True, SILTSTONE_TOKEN=SECRET)
        url = 'db = st.connect(url)\nprint(db.stage("t").root)'
        named = copied.python(f"url = {url_of(shared)!r}\n{url}", SILTSTONE_TOKEN=SECRET)
    assert lines[0].startswith("UnavailableError")
    assert f"serves {there.root}/shop, not {copied.root}/shop" in lines[0]
    assert named[0].startswith("RequestError to be staged for, the store's files must be on this")


def url_of(shared: Path) -> str:
    url = read_holder(RealFiles(), shared / "shop").url
    assert url is not None
    return url
