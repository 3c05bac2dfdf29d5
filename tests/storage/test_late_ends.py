"""What is freed while the interpreter ends prints nothing.

Python clears the globals of modules that something still refers to, and only then frees what
`builtins` holds (Python/pylifecycle.c, `finalize_modules`). Here an object in `builtins` clears
them when it is freed, and frees the last reference to what is tested after that.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import atexit, builtins, sys
from pathlib import Path
import siltstone as st
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.manifest_store import ManifestStore

db = st.connect(sys.argv[1], background=False)
table = db.create_table("t", {"id": "int64"}, primary_key="id")
table.upsert([{"id": number} for number in range(100)])
db.checkpoint()
db.merge()
table.get(7)

class Last:
    def __init__(self, held, names):
        self.held, self.names = held, names
    def __del__(self):
        for names in self.names:
            for each in [*names]:
                if each != "__builtins__":
                    names[each] = None
        self.held.clear()

held = {
    "lease": lambda: [ManifestStore(RealFiles(), db.path).lease_newest()],
    "lock": lambda: [RealFiles().lock(db.path / "some.lock", create=True)],
    "transaction": lambda: [db, db.transaction()],
    "store": lambda: [db, table],
}[sys.argv[2]]()
if held[0] is db:
    atexit._clear()  # a process whose end does not close it
builtins.last = Last(held, [vars(m) for n, m in sys.modules.items() if n.startswith("siltstone.")])
del held, db, table
raise SystemExit(7)
"""


@pytest.mark.parametrize("what", ["lease", "lock", "transaction", "store"])
def test_what_outlives_the_modules_ends_without_a_word(tmp_path: Path, what: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "shop"), what],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")
