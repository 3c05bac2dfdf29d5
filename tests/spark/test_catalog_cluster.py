"""On a standalone cluster a statement of SQL has its rows once, whatever its executors suffer."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from siltstone.spark.catalog.jars import jar
from siltstone.spark.catalog.settings import CLASS
from tests.spark import catalog_cluster_driver as driver
from tests.spark import faulty_daemon
from tests.spark.clusters import PROGRAMS, ROOT, cluster, environment

SCHEMA = {"id": "int64", "v": "int64", "s": "string"}
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.sql.shuffle.partitions": "2",
    "spark.task.maxFailures": "4",
}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
}


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # Two attempts of a task are never at one host.
    hosts = ("127.0.0.1", "127.0.0.2")
    with cluster(tmp_path_factory.mktemp("cluster"), hosts) as found:
        yield found


class Submitted:
    """What an application said, and the store that it leaves."""

    def __init__(self, folder: Path, master: str, which: str, more: dict[str, str]) -> None:
        self.path = folder / "shop"
        faults = folder / "faults"
        faults.mkdir()
        with st.connect(self.path, background=False) as db:
            db.create_table("t", SCHEMA, "id").upsert(
                [{"id": n, "v": n, "s": "before"} for n in range(1000)]
            )
            db.create_table("big", SCHEMA, "id")
            db.checkpoint()
            db.merge()  # what only the log has is one task
        settings = {
            **SETTINGS,
            **more,
            "spark.sql.catalog.shop": CLASS,
            "spark.sql.catalog.shop.uri": str(self.path),
            "spark.siltstone.python": str(faulty_daemon.executable(faults)),
        }
        flags = [word for each in settings.items() for word in ("--conf", "=".join(each))]
        program = [PROGRAMS / "spark-submit", "--master", master, "--jars", jar(), *flags]
        done = subprocess.run(
            [*map(str, program), str(driver.__file__), which, str(faults)],
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=800,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        assert lines, done.stdout + done.stderr[-6000:]
        self.said: dict[str, Any] = json.loads(lines[0].removeprefix("RESULT "))

    def rows(self, table: str, seq: int) -> dict[int, tuple[int, str]]:
        """Return the rows of a table at a seq, by key; no key is there twice."""
        with st.connect(self.path, read_only=True) as db, db.snapshot(seq=seq) as snapshot:
            found = snapshot[table].to_arrow().to_pylist()
        assert len({row["id"] for row in found}) == len(found)
        return {row["id"]: (row["v"], row["s"]) for row in found}

    def commits(self, since: int, until: int) -> int:
        with st.connect(self.path, read_only=True) as db:
            return sum(since < entry.seq <= until for entry in db.log(1000))

    def leaves_what_vacuum_takes(self) -> None:
        with st.connect(self.path, background=False) as db:
            before = {name: db[name].count() for name in db.tables()}
            db.checkpoint()
            db.merge()
            db.vacuum(dry_run=False, grace_s=0)
            assert db.vacuum(grace_s=0).files == ()
            assert db.verify(deep=True).is_sound
            assert {name: db[name].count() for name in db.tables()} == before


@pytest.fixture(scope="module")
def steps(master: str, tmp_path_factory: pytest.TempPathFactory) -> Submitted:
    return Submitted(tmp_path_factory.mktemp("steps"), master, "steps", {})


def _expected() -> dict[str, dict[int, tuple[int, str]]]:
    """Return the rows of the table after each statement."""
    rows = {n: (n, "before") for n in range(1000)}
    found = {}
    rows |= {n: (n, "inserted") for n in range(1000, 2000)}
    found["insert"] = dict(rows)
    rows |= {n: (v + 1, "updated") for n, (v, _) in rows.items() if n % 7 == 2}
    found["update"] = dict(rows)
    for n in range(500, 2500):
        if n not in rows:
            rows[n] = (0, "new")
        elif n % 3 == 0:
            del rows[n]
        elif n % 3 == 1:
            rows[n] = (-1, "merged")
    found["merge"] = dict(rows)
    found["delete"] = {n: each for n, each in rows.items() if each[0] % 5 != 3 or each[0] < 0}
    return found


def test_each_statement_is_one_commit_of_the_tasks_of_all_executors(steps: Submitted) -> None:
    assert len(steps.said["processes"]) == 2, "each executor has its own"
    for name, rows in _expected().items():
        seq = steps.said[name]
        assert steps.rows("t", seq) == rows, name
    made = steps.said["make"]
    with st.connect(steps.path, read_only=True) as db, db.snapshot(seq=made) as snapshot:
        found = {row["id"]: row["s"] for row in snapshot["made"].to_arrow().to_pylist()}
    assert found == {n: s for n, (_, s) in _expected()["delete"].items()}
    seqs = [steps.said[name] for name in driver.STATEMENTS]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))


@pytest.mark.parametrize("fault", driver.FAULTS)
def test_a_statement_goes_on_when_one_of_its_processes_ends(steps: Submitted, fault: str) -> None:
    """Rows of a killed JVM, of its Python process, or of a task that failed are staged again."""
    number = driver.FAULTS.index(fault)
    seq, is_left = steps.said[fault]
    assert not is_left, "it happened"
    count = driver.PIECES * driver.ROWS
    found = steps.rows("big", seq)
    assert len(found) == (number + 1) * count
    mine = {n: found[n] for n in range(number * count, (number + 1) * count)}
    assert mine == {n: (n, fault * 20) for n in mine}
    assert steps.commits(seq - 1, seq) == 1


def test_a_merge_goes_on_when_a_python_process_ends(steps: Submitted) -> None:
    seq, is_left = steps.said["changed"]
    assert not is_left, "it happened"
    count, moved = len(driver.FAULTS) * driver.PIECES * driver.ROWS, driver.ROWS // 2
    found = steps.rows("big", seq)
    assert {n: v for n, (v, _) in found.items()} == {
        n: 0 if n >= count else n + (n >= moved) for n in range(count + moved)
    }
    read, is_left = steps.said["reading.die"]
    assert not is_left, "it happened"
    assert read == [len(found), len(found), sum(v for v, _ in found.values())]


def test_processes_of_python_end_with_their_executors(steps: Submitted) -> None:
    first, last = steps.said["processes"], steps.said["last processes"]
    assert not {pid for pid, _ in first} & {pid for pid, _ in last}, "all of them were killed"
    for pid, socket in first + last:
        assert not _serves(pid, socket)
        assert not Path(socket).parent.exists()


def _serves(pid: int, socket: str) -> bool:
    try:
        return os.fsencode(socket) in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_what_the_killed_left_is_vacuums(steps: Submitted) -> None:
    steps.leaves_what_vacuum_takes()


def test_of_two_attempts_of_a_task_one_is_committed(master: str, tmp_path: Path) -> None:
    found = Submitted(tmp_path, master, "speculation", SPECULATION)
    count = driver.PIECES * driver.ROWS
    for number, name in enumerate(("killed", "racing")):
        seq, attempts = found.said[name]
        assert attempts == [f"{name}.0", f"{name}.1"]
        rows = found.rows("big", seq)
        assert len(rows) == (number + 1) * count
        mine = {n: rows[n] for n in range(number * count, (number + 1) * count)}
        assert mine == {n: (n, name * 20) for n in mine}
    seq, attempts = found.said["merging"]
    assert attempts == ["merging.0", "merging.1"]
    rows = found.rows("big", seq)
    assert {n: v for n, (v, _) in rows.items()} == {
        n: n + (30_000 <= n < 30_000 + count) for n in range(2 * count)
    }
    found.leaves_what_vacuum_takes()
