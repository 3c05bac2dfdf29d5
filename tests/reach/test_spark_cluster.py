"""A cluster of Spark that shares nothing but the bucket reads a store while its owner writes.

Neither the driver nor the two workers, each with a home of its own, hear of the store's path: they
have the URL, and the credentials of their environment. A file of the night.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

import siltstone as st
from tests.maintenance.mirrors import content, go_on, lived
from tests.reach.conftest import mirror
from tests.spark.clusters import ROOT, cluster, environment

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
HALF = 2000


@contextmanager
def writing(db: st.Store, url: str) -> Generator[None]:
    """Commit, merge and mirror until the block ends; an error in it is raised at the end."""
    ends, errors = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            for number in itertools.count(1):
                go_on(db, number)
                if number % 3 == 0:
                    db.merge()
                mirror(db.path, url)
                if ends.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    owner = threading.Thread(target=work)
    owner.start()
    try:
        yield
    finally:
        ends.set()
        owner.join()
    assert not errors, errors


def test_two_workers_with_the_bucket_alone_read_at_a_seq_while_the_owner_writes(
    url: str, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    homes = [tmp_path / "one", tmp_path / "other"]
    for home in homes:
        home.mkdir()
    with lived(tmp_path / "s") as db:
        big = db.create_table("big", {"id": "int64"}, primary_key="id")
        big.upsert([{"id": number} for number in range(2 * HALF)])
        db.checkpoint()
        db.merge()
        mirror(db.path, url)
        expected, seq = content(db), db.seq
        with cluster(tmp_path, homes=homes) as master, writing(db, url):
            given = {"master": master, "url": url, "seq": seq, "half": HALF}
            done = subprocess.run(
                [sys.executable, "-m", "tests.reach.cluster_driver", json.dumps(given)],
                cwd=ROOT, env=environment(), capture_output=True, text=True, check=False,
            )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stdout[-2000:] + done.stderr[-6000:]
    said = json.loads(lines[0].removeprefix("RESULT "))
    assert said["homes"] == [[str(home), HALF] for home in homes]
    keyed = [[row["id"], row["v"]] for row in expected["keyed"]]
    rows = sorted(keyed + [[row["a"], "plain"] for row in expected["plain"]])
    assert said["before"] == said["after"] == rows
    assert len(said["newest"]) >= 3
    for keyed_new, plain_all in said["newest"]:  # both tables at one seq
        assert plain_all == len(expected["plain"]) + keyed_new
