"""Processes that race to publish build one chain, in which every change stands once."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.manifest_store import ManifestStore, initialise
from tests.crash.manifest_scenario import marks

PROCESSES, PUBLISHES = 4, 25

PUBLISH = """
import pathlib, sys
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.manifest_store import ManifestStore, initialise
from tests.crash.manifest_scenario import add
root, me, publishes = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
sys.stdin.read()  # all start at once
record = initialise(RealFiles(), root)
store = ManifestStore(RealFiles(), root)
for n in range(publishes):
    name = f"{me}-{n}"
    record = store.publish(add(name), base=record, attempts=1000)
"""


def test_processes_that_publish_at_once_lose_no_change_and_leave_no_hole(tmp_path: Path):
    root = tmp_path / "shop"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", PUBLISH, str(root), str(n), str(PUBLISHES)],
            stdin=subprocess.PIPE,
        )
        for n in range(PROCESSES)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.close()
    assert [child.wait(60) for child in children] == [0] * PROCESSES

    initialise(RealFiles(), root)
    store = ManifestStore(RealFiles(), root)
    numbers = store.numbers()
    assert numbers == list(range(1, PROCESSES * PUBLISHES + 2))
    chain = [store.read(number) for number in numbers]
    for before, after in pairwise(chain):
        assert marks(after)[:-1] == marks(before)
        assert after.time_us > before.time_us
    wanted = {f"{me}-{n}" for me in range(PROCESSES) for n in range(PUBLISHES)}
    assert set(marks(chain[-1])) == wanted
    assert len({record.store_id for record in chain}) == 1
    assert len({record.writer for record in chain}) == len(chain)
    assert all(name.endswith(".json") for name in RealFiles().list(store.folder))
