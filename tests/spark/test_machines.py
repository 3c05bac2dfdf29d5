"""Driver here, owner there, executors on both: one shared directory, two host names."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import siltstone as st
from tests.server.test_two_machines import SECRET, served, url_of, write_tokens
from tests.spark.clusters import DEPLOY, ROOT, environment, running
from tests.support.machines import Machine


def test_a_driver_commits_through_the_owner_of_another_machine_what_executors_of_both_wrote(
    tmp_path: Path,
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    with st.connect(shared / "shop", background=False) as db:
        db.create_table("t", {"id": "int64", "v": "string"}, "id").upsert({"id": 1, "v": "here"})
    write_tokens(shared)
    here, there = (Machine.of(name, shared, at="mnt") for name in ("here", "there"))
    where = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        stack.enter_context(served(there))
        master = (f"{DEPLOY}.master.Master", *where)
        said = running(tmp_path / "master", "Starting Spark master at", *master, machine=here)
        found = re.search(r"spark://\S+", stack.enter_context(said))
        assert found
        for machine in (here, there):
            size = ("--cores", "1", "--memory", "600m")
            size += ("--work-dir", str(tmp_path / f"work-{machine.name}"))
            worker = (f"{DEPLOY}.worker.Worker", *where, *size, found[0])
            ready, log = "Successfully registered with master", tmp_path / machine.name
            stack.enter_context(running(log, ready, *worker, machine=machine))
        driver = [sys.executable, "-m", "tests.spark.machines_driver", found[0]]
        done = subprocess.run(
            here.command(*driver, f"{here.root}/shop", url_of(shared)),
            cwd=ROOT,
            env=here.environment(**environment(), SILTSTONE_TOKEN=SECRET),
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    first, second = range(100, 140), range(200, 240)
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "hosts": ["here", "there"],
        "driver": "here",
        "path": [1, *first],
        "url": [1, *first, *second],
    }
    with st.connect(shared / "shop", background=False) as db:
        assert db["t"].count() == 81
        assert db.verify(deep=True).is_sound
