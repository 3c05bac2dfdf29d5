"""A program that ends without a close has its last commits in the bucket, as after a close."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import atexit, sys
atexit.register(lambda: tell())  # before siltstone has its own, so it is called after it
import siltstone as st
import siltstone.open.mirroring as mirroring
from siltstone.storage.bucket.bucket import Bucket
from tests.maintenance.mirrors import at, objects_of
from tests.support.simulated_objects import SimBucket, SimServer

bucket = SimBucket()

class Server(SimServer):
    endpoint = ""

mirroring.ObstoreServer = lambda place, settings: Server(bucket, below="shop/")
mirroring.require_known = lambda *given: "simulated"
mirroring.probe = lambda *given: None
db = st.connect(sys.argv[1], mirror="s3://simulated/shop")
table = db.create_table("t", {"id": "int64"}, primary_key="id")
db.checkpoint()
if sys.argv[2] == "shipped":
    db.wait_shipped()
table.upsert({"id": 2})
seq = db.seq

def tell():
    found = Bucket(objects_of(at(bucket))).choose(None, None)
    print(found.seq - seq, flush=True)
"""


@pytest.mark.parametrize("kind", ["mirrored", "shipped"])
def test_an_exit_without_a_close_mirrors_the_last_commit(tmp_path: Path, kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "s"), kind],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.stdout, done.returncode) == ("0\n", 0), done.stderr
