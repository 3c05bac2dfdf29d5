"""A process that ends without `close()` ends as its program says, whatever the store is at."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import siltstone as st
from tests.nightly import by_day

LOAD = """
import atexit, os, sys, threading
import pyarrow as pa
import siltstone as st

path = sys.argv[1]
db = st.connect(path, memtable_bytes_max=65536)
t = db.create_table("t", {"id": "int64", "v": "string"}, "id")

def load(first=0, steps=12):
    for step in range(first, first + steps):
        ids = range(step * 500, step * 500 + 500)
        t.upsert(pa.table({"id": ids, "v": ["x" * 50] * 500}))
"""

# What follows the load, the status that the program says, and the rows that it acknowledged.
ENDS = {
    "falls off its end": ("load()", 0, 6_000),
    "sys.exit": ("load(); sys.exit(3)", 3, 6_000),
    "an exception": ("load(); raise ValueError", 1, 6_000),
    "sys.exit in a thread": (
        "thread = threading.Thread(target=lambda: (load(), sys.exit(3))); thread.start()",
        0,
        6_000,
    ),
    "a thread that goes on": (
        "threading.Thread(target=load).start(); load(100, 5)",
        0,
        8_500,
    ),
    "a daemon thread that reads": (
        """
load()
def read():
    while True:
        t.count(); t.scan().read_all(); db.sql("select sum(id) from t")
threading.excepthook = lambda args: None if args.exc_type is st.ClosedError else os._exit(9)
for _ in range(2):
    threading.Thread(target=read, daemon=True).start()
t.count()
""",
        0,
        6_000,
    ),
    "a served store": ("db.serve_local(); db.serve(port=0); load()", 0, 6_000),
    "its own hook, older than the store": ("load(); hook.db = db", 0, 6_001),
    "a read-only handle": (
        "load(); reader = st.connect(path, read_only=True); reader['t'].count()",
        0,
        6_000,
    ),
}
HOOK = """
import atexit
import siltstone
class hook:
    db = None
def last():
    if hook.db is not None:
        hook.db["t"].upsert({"id": 999_999, "v": "written by a hook"})
        hook.db.close()
atexit.register(last)
"""


def ended(
    script: str, path: Path, *, command: tuple[str, ...] = ("-c",)
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command, textwrap.dedent(script), str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("attempt", range(by_day(1, 2)))
@pytest.mark.parametrize("end", ENDS)
def test_a_process_that_never_closes_ends_with_its_own_status(
    tmp_path: Path, end: str, attempt: int
) -> None:
    work, status, rows = ENDS[end]
    done = ended(HOOK + LOAD + work, tmp_path / "s")
    assert done.returncode == status, done.stderr
    assert "FATAL" not in done.stderr
    assert "Traceback" not in done.stderr or status == 1
    with st.connect(tmp_path / "s") as db:
        assert db["t"].count() == rows


def test_an_exit_makes_asynchronous_commits_durable(tmp_path: Path) -> None:
    script = """
    import sys, siltstone as st
    db = st.connect(sys.argv[1], sync_interval_ms=3_600_000, background=False)
    db.create_table("t", {"id": "int64"}, "id")
    with db.transaction(durability="async") as tx:
        tx["t"].upsert({"id": 1})
    assert db.durable_seq < db.seq
    import siltstone.storage.wal.wal as wal
    wal.Wal.close = lambda self, close=wal.Wal.close: (close(self), print("synced and closed"))
    """
    done = ended(script, tmp_path / "s")
    assert (done.returncode, done.stdout) == (0, "synced and closed\n"), done.stderr
    with st.connect(tmp_path / "s") as db:
        assert db["t"].count() == 1


def test_an_exit_waits_for_what_does_not_end_only_so_long(tmp_path: Path) -> None:
    script = """
    import logging, sys, threading, siltstone as st, siltstone.open.closing as closing
    logging.basicConfig()
    closing.EXIT_TIMEOUT_S = 0.1
    db = st.connect(sys.argv[1])
    scheduler = db._parts.owner.scheduler
    scheduler.stop = threading.Event().wait
    """
    done = ended(script, tmp_path / "s")
    assert done.returncode == 0, done.stderr
    assert "did not close within" in done.stderr


AFTER_SQL = """
import threading
import siltstone as st
from siltstone.open import closing

with st.connect(":memory:", background=False) as db:
    db.sql("select 1")
assert "siltstone-sql" in [thread.name for thread in threading.enumerate()]
assert not closing._is_inside()
"""


def test_an_exit_does_not_wait_for_the_thread_that_watches_statements() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AFTER_SQL], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_threads_after_the_main_one_keep_their_store_and_say_that_it_is_not_served(
    tmp_path: Path,
) -> None:
    """Who joins would else wait for `join_timeout_s` for an answer that never comes."""
    script = """
    import subprocess, sys, threading, time
    import siltstone as st
    JOIN = (
        "import sys, siltstone as st\\n"
        "try: st.connect(sys.argv[1], join=True, join_timeout_s=3600).close()\\n"
        "except st.OwnedError as error: print(type(error).__name__, error.endpoint)"
    )
    db = st.connect(sys.argv[1], background=False)
    db.create_table("t", {"id": "int64"}, "id")
    address = db.serve_local()
    def goes_on():
        while address.exists():
            time.sleep(0.01)
        done = subprocess.run([sys.executable, "-c", JOIN, sys.argv[1]],
                              capture_output=True, text=True, timeout=90)
        db["t"].upsert({"id": 1})
        print(done.stdout.strip(), db["t"].count())
    threading.Thread(target=goes_on).start()
    """
    done = ended(script, tmp_path / "s")
    assert (done.returncode, done.stdout) == (0, "OwnedError None 1\n"), done.stderr


def test_a_forked_child_that_ends_closes_nothing_of_its_parent(tmp_path: Path) -> None:
    script = """
    import os, sys, warnings
    warnings.simplefilter("ignore")
    import siltstone as st
    db = st.connect(sys.argv[1])
    t = db.create_table("t", {"id": "int64"}, "id")
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        t.upsert({"id": 1})
        print(t.count())
    """
    done = ended(script, tmp_path / "s")
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_pytest_with_an_open_store_ends_with_status_0(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("")
    (tmp_path / "test_it.py").write_text(
        LOAD.replace("sys.argv[1]", repr(str(tmp_path / "s"))) + "\ndef test_it():\n    load()\n"
    )
    done = ended(
        str(tmp_path / "test_it.py"),
        tmp_path / "test_it.py",
        command=("-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
