"""Who opens a store read-only makes no write call on it: the kernel's own account of a real one.

Without an owner it may sync the log, so that what it shows is durable; that changes no byte.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import siltstone as st
from tests.compat.golden import GOLDEN, unpacked

STRACE = shutil.which("strace")
CHANGING = (
    "creat,mkdir,mkdirat,rmdir,unlink,unlinkat,rename,renameat,renameat2,link,linkat,symlink,"
    "symlinkat,mknod,mknodat,chmod,fchmod,fchmodat,chown,fchown,fchownat,utimensat,truncate,"
    "ftruncate,fallocate,write,writev,pwrite64,pwritev,pwritev2,fsync,fdatasync,sync_file_range,"
    "copy_file_range,sendfile,setxattr,fsetxattr"
)
OPENING = "open,openat"
WRITABLE = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND|O_TMPFILE")

READER = """
import sys
import siltstone as st

with st.connect(sys.argv[1], read_only=True) as db:
    assert db["t"].get(1) == {"id": 1, "v": 10}
    assert db["t"].get(2) == {"id": 2, "v": 22}, "the log is read, too"
    assert db["t"].to_arrow(filter="v > 10").num_rows == 2
    assert db["log"].count() == 2
    assert sum(len(feed.read_all()) for feed in db.changes().values()) > 0
    with db.snapshot(seq=int(sys.argv[2])) as then:
        assert then["t"].get(2) == {"id": 2, "v": 20}
    db.status()
    db.verify()
    print("read", flush=True)
    sys.stdin.readline()
    assert db["t"].get(4) == {"id": 4, "v": 40}, "what came meanwhile is read, too"
"""

LOOK = """
import sys
import siltstone as st

for root in sys.argv[1:]:
    with st.connect(root, read_only=True) as db:
        for name in db.tables():
            db[name].to_arrow()
        for tag in db.tags():
            db.snapshot(tag=tag).close()
        db.status()
        assert db.verify().is_sound
"""


@pytest.mark.skipif(STRACE is None, reason="strace is not installed")
def test_a_read_only_process_makes_no_write_call_on_the_store(tmp_path: Path) -> None:
    root, trace = tmp_path / "shop", tmp_path / "trace"
    with st.connect(root, segment_bytes=65_536, background=False) as db:
        db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        db.create_table("log", {"v": "int64"})
        old = db["t"].upsert([{"id": 1, "v": 10}, {"id": 2, "v": 20}]).seq
        db["log"].append({"v": 1})
        db.checkpoint()
        db.merge()
        db["t"].upsert([{"id": 2, "v": 22}, {"id": 3, "v": 30}])
        db["log"].append({"v": 2})
        with traced(trace, READER, str(root), str(old)) as reader:
            line = reader.stdout.readline() if reader.stdout else ""
            if line == "read\n":
                db["t"].upsert({"id": 4, "v": 40})
                db.checkpoint()
            _, errors = reader.communicate("go on\n", timeout=120)
    assert reader.returncode == 0, errors
    require_no_change(trace, root, syncs=False)


@pytest.mark.skipif(STRACE is None, reason="strace is not installed")
def test_a_reader_makes_no_write_call_on_what_a_kill_or_another_client_left(tmp_path: Path) -> None:
    roots = [unpacked(state, tmp_path) for state in GOLDEN]
    with traced(tmp_path / "trace", LOOK, *map(str, roots)) as reader:
        _, errors = reader.communicate(timeout=120)
    assert reader.returncode == 0, errors
    for root in roots:
        require_no_change(tmp_path / "trace", root, syncs=True)


def require_no_change(trace: Path, root: Path, *, syncs: bool) -> None:
    calls = trace.read_text(errors="replace").splitlines()
    ours = [call for call in calls if str(root) in call]
    assert any("openat" in call for call in ours), "nothing was traced"
    synced = re.compile(rf"fd?a?t?a?sync\(\d+<{re.escape(str(root))}/wal(/[^/]*\.wal)?>\)")
    allowed = [call for call in ours if syncs and synced.search(call)]
    assert [call for call in ours if is_change(call) and call not in allowed] == []


def traced(trace: Path, script: str, *arguments: str) -> subprocess.Popen[str]:
    strace = [str(STRACE), "-f", "-y", "-qq", "-s", "4096", "-o", str(trace)]
    return subprocess.Popen(
        [*strace, "-e", f"trace={OPENING},{CHANGING}", sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def is_change(call: str) -> bool:
    """Say whether a traced call changes a file, or opens one so that it could."""
    name = re.match(r"\d+\s+(?:<\.\.\. )?(\w+)", call)
    assert name is not None, call
    return name[1] not in OPENING.split(",") or WRITABLE.search(call) is not None


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ('12 openat(AT_FDCWD</>, "/s/LOCK", O_RDONLY|O_CLOEXEC) = 3</s/LOCK>', False),
        ('12 openat(AT_FDCWD</>, "/s/LOCK", O_RDWR|O_CLOEXEC) = 3</s/LOCK>', True),
        ('12 openat(AT_FDCWD</>, "/s/x", O_WRONLY|O_CREAT, 0666) = 3</s/x>', True),
        ('12 pwrite64(3</s/wal/MARK>, "", 0, 0) = 0', True),
        ('12 unlink("/s/x") = 0', True),
    ],
)
def test_the_account_tells_a_change_from_a_look(call: str, *, expected: bool) -> None:
    assert is_change(call) is expected
