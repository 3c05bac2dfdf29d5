"""Copies: a closed store is copied slowly, and a copy is replaced under the jobs that work on it.

Nothing that siltstone started by itself may touch a closed store: the copy is as whole as its
original. A job whose directory is replaced ends by name, and what lies there then is untouched.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import siltstone as st

SLOW_S = 3.0
"""What a slow copy takes, about."""
JOBS = ("merge", "optimize", "vacuum")
_JOB = """
import sys
import siltstone as st
from siltstone import admin

do = {
    "merge": lambda root: admin.merge_store(root),
    "optimize": lambda root: admin.optimize_store(root, target_rows=64),
    "vacuum": lambda root: admin.vacuum_store(root, dry_run=False, grace_s=0),
}[sys.argv[2]]
print("begun", flush=True)
try:
    do(sys.argv[1])
except (st.ReplacedError, st.RequestError) as error:
    print(type(error).__name__, flush=True)
else:
    print("done", flush=True)
"""


def slow_copy(root: Path, target: Path) -> None:
    """Copy a closed store file by file, and see that nothing changes it meanwhile."""
    before = _tree(root)
    pause = SLOW_S / max(1, len(before))
    for name in before:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, target / name)
        time.sleep(pause)
    changed = {name for name, what in _tree(root).items() if before.get(name) != what}
    changed |= before.keys() - _tree(root).keys()
    assert not changed, f"a closed store was touched: {sorted(changed)[:5]}"


def replace(root: Path, older: Path, chance: random.Random, count: Callable[[str], object]) -> None:
    """Put an older copy in the place of a store on which each of the jobs has just begun.

    Args:
        root: The store; it is `older` afterwards.
        older: Is copied.
        chance: Says how long a job may work before.
        count: Hears how each job ended.
    """
    for job in JOBS:
        there = root.with_name(f"{root.name} {job}")
        shutil.copytree(root, there)
        with subprocess.Popen(
            [sys.executable, "-c", _JOB, str(there), job], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            time.sleep(chance.random() * 0.5)
            there.rename(there.with_name("aside"))
            shutil.copytree(older, there, dirs_exist_ok=True)
            ended = process.stdout.read().strip()
        assert process.returncode == 0, f"{job} whose store was replaced: {ended}"
        count(f"replaced under {job}: {ended}")
        for place in (there, there.with_name("aside")):
            with st.connect(place, read_only=True) as db:
                found = db.verify(deep=True)
            assert found.is_sound, f"{place} after {job}: {found}"
            shutil.rmtree(place)


def _tree(root: Path) -> dict[str, tuple[int, int, int]]:
    found = {str(path.relative_to(root)): path.stat() for path in root.rglob("*") if path.is_file()}
    return {name: (each.st_ino, each.st_size, each.st_mtime_ns) for name, each in found.items()}
