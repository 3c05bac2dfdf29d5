"""A store tells what it does, in one line each, without a secret, and waits for no target."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from siltstone.maintenance.schedule.pace import TELL_EVERY_S, Pace, Zone
from siltstone.telemetry import notices
from siltstone.telemetry.notices import NoticeLog
from tests.server.rest import rest_of


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, "siltstone"):
        yield


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{record.levelname} {record.name} {record.getMessage()}" for record in caplog.records]


def test_a_library_writes_nowhere_by_itself(tmp_path: Path) -> None:
    program = """if True:
        import logging, sys
        import siltstone as st
        from siltstone.telemetry.notices import NoticeLog
        assert any(type(h) is logging.NullHandler for h in logging.getLogger("siltstone").handlers)
        with st.connect(sys.argv[1]) as db:
            NoticeLog("siltstone.test").warning("a warning")
    """
    command = [sys.executable, "-c", program, str(tmp_path / "shop")]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_last_lines_of_a_process_are_written() -> None:
    program = """if True:
        import logging
        logging.basicConfig(format="%(levelname)s %(name)s %(message)s %(funcName)s")
        from siltstone.telemetry.notices import NoticeLog
        def work():
            NoticeLog("siltstone.test").warning("it is %d", 7)
        work()
    """
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == "WARNING siltstone.test it is 7 work\n"


def test_open_work_and_close_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "shop"
    with st.connect(root, background=False) as db:
        db.create_table("t", {"id": "int64"}, primary_key="id").upsert({"id": 1})
    with st.connect(root, background=False) as db:
        db["t"].upsert({"id": 2})
        db.checkpoint()
        db.merge()
        db.optimize()
        db.vacuum(dry_run=False)
        db.backup(tmp_path / "copy")
    found = lines(caplog)
    for begin, end in (
        (f"INFO siltstone.open.owner opened {root}: epoch 1, seq 0;", "and no torn write"),
        (f"INFO siltstone.open.parts closed {root}: seq 2", ""),
        (f"INFO siltstone.open.owner opened {root}: epoch 2, seq 2; recovery found 2 commits", ""),
        ("INFO siltstone.work checkpoint: record ", " s"),
        ("INFO siltstone.work merge: Merged(seq=3, tables=('t',), rows=2, replans=()), in ", " s"),
        ("INFO siltstone.work optimize: ", " s"),
        ("INFO siltstone.work vacuum: ", " were deleted, in 0."),
        ("INFO siltstone.work backup: ", " up to seq 3, in "),
        (f"INFO siltstone.open.parts closed {root}: seq 3", ""),
    ):
        assert [line for line in found if line.startswith(begin) and end in line], (begin, found)
    assert not [line for line in found if "\n" in line]


def test_a_torn_write_that_recovery_found_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "shop"
    with st.connect(root, background=False) as db:
        db.create_table("t", {"id": "int64"}, primary_key="id")
        (segment,) = (root / "wal").glob("*.wal")
    written = segment.read_bytes().rstrip(b"\0")
    with segment.open("r+b") as file:
        file.seek(len(written) + 8)
        file.write(b"torn")
    st.connect(root, background=False).close()
    assert [line for line in lines(caplog) if " a torn write, which is now in " in line]


def test_writers_that_are_held_back_are_told_of_once_in_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = 0.0
    pace = Pace(flushing=Zone(1, 2), folding=Zone(1, 2), clock=lambda: now_s)
    for _ in range(5):
        pace.slowed(0.5)
    pace.stopped(1.0)
    now_s = TELL_EVERY_S
    pace.stopped(1.0)
    found = [line for line in lines(caplog) if "held back" in line]
    assert [line.partition("open ")[2].partition(";")[0] for line in found] == [
        "1 commits were slowed for 0.5 s, and 0 stopped for 0.0 s",
        "5 commits were slowed for 2.5 s, and 2 stopped for 2.0 s",
    ]


class Blocking(logging.Handler):
    """A target that takes nothing until it may; it lists what it took."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()
        self.taken: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.has_begun.set()
        assert self.may_go_on.wait(60)
        self.taken.append(record.getMessage())


@pytest.fixture
def blocking() -> Iterator[Blocking]:
    target = Blocking()
    logging.getLogger("siltstone").addHandler(target)
    try:
        yield target
    finally:
        target.may_go_on.set()
        logging.getLogger("siltstone").removeHandler(target)
        assert notices.settle(60)


def test_a_target_that_blocks_keeps_no_commit_no_checkpoint_and_no_close(
    tmp_path: Path, blocking: Blocking
) -> None:
    log = NoticeLog("siltstone.test")
    log.warning("the first")
    assert blocking.has_begun.wait(60)
    for number in range(3_000):
        log.warning("line %d", number)
    with st.connect(tmp_path / "shop", memtable_bytes_max=1 << 20) as db:
        table = db.create_table("t", {"id": "int64", "text": "string"}, primary_key="id")
        for number in range(20):
            table.upsert({"id": number, "text": "x"})
        db.checkpoint()
        assert db.status().flushed_seq == db.seq
    blocking.may_go_on.set()
    assert notices.settle(60)
    ours = [line for line in blocking.taken if line.startswith(("the first", "line "))]
    assert ours[:2] == ["the first", "line 0"]  # stores of other tests may say something, too
    assert "line 2999" not in blocking.taken
    (lost,) = [line for line in blocking.taken if "dropped" in line]
    assert lost.endswith(" lines of the log were dropped: their target was too slow")
    assert len(blocking.taken) + int(lost.split()[0]) > 3_000


def test_no_line_has_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = "s3cr3t-77"
    with rest_of(tmp_path / "shop") as (db, _, rest):
        db.create_table("t", {"id": "int64", "text": "string"}, primary_key="id")
        with pytest.raises(st.SiltstoneError):
            db.sql("select cast(? as int64)", [secret])
        with pytest.raises(st.SiltstoneError):
            db.sql("insert into t values (?, 'x')", [secret])
        for statement in ("select cast($1 as int64)", "insert into t values ($1, 'x')", "select ("):
            body = {"sql": statement, "parameters": [secret]}
            assert rest.post("/v1/sql", body).status >= 400
        assert rest.get("/v1/status", authorization=f"Bearer {secret}").status in {200, 401}
        begun = rest.post("/v1/transaction/begin", {}).json["id"]
        assert rest.post(f"/v1/transaction/{begun}/commit", {}).status == 200
        assert rest.post(f"/v1/transaction/{secret}/commit", {}).status >= 400
        options: dict[str, Any] = {"storage_options": {"secret_key": secret}}
        with pytest.raises(st.SiltstoneError):
            st.connect("s3://bucket/x", read_only=True, **options)
    text = "\n".join(lines(caplog))
    assert "opened" in text
    assert secret not in text
    assert begun.partition("-")[2] not in text  # its holder may commit
