"""An owner that ends does what is due for its store, as far as it fits, and nothing goes on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.admin import maintain_store
from siltstone.maintenance.schedule.overdue import vacuumed_s_ago
from siltstone.maintenance.schedule.scheduler import HISTORY_PARTS_MAX
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.manifest_store import ManifestStore
from siltstone.storage.manifest.ownership import read_holder
from tests.maintenance.ends import (
    ROWS,
    SMALL,
    Hanging,
    age,
    behind,
    fill,
    is_sound,
    owner,
    program,
    run,
    status_of,
    unmerged,
)

SECONDS = 4.0
"""Of an end: long enough to start a child on a busy machine, and none of them ends."""
CLOSES = """
db = st.connect(sys.argv[1], close_upkeep_s=float(sys.argv[2]), **OPTIONS)
db.close()
print("closed")
"""


def ago(root: Path) -> float:
    return vacuumed_s_ago(RealFiles(), ManifestStore(RealFiles(), root))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# what runs


def test_an_end_merges_and_vacuums_what_is_due(tmp_path: Path) -> None:
    root = behind(tmp_path / "s")
    owner(root).close()
    assert unmerged(root) == 0
    assert not (root / "manifest" / "FLOOR").exists()  # it is younger than an hour
    age(root)
    records = len([*(root / "manifest").glob("*.json")])
    with owner(root, retention="0s") as db:
        fill(db, value=2)
    assert ago(root) < 3600
    assert len([*(root / "manifest").glob("*.json")]) < records  # by the owner's own retention
    assert (unmerged(root), status_of(root).owed) == (0, ())
    assert is_sound(root, 2)


def test_an_end_optimizes_histories_of_many_small_parts_and_no_plain_table(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with st.connect(root, background=False) as db:
        for _ in range(HISTORY_PARTS_MAX + 1):
            fill(db, 1)
        db.create_table("p", {"v": "int64"})
        for _ in range(3):
            db["p"].append([{"v": 1}])
    owner(root, memory_bytes_max=1 << 30).close()
    found = {table.name: table for table in status_of(root).tables}
    assert found["t"].history_parts < HISTORY_PARTS_MAX // 2
    assert found["p"].base_parts == 3


@pytest.mark.timeout(900)
def test_a_store_of_260_short_programs_stays_small(tmp_path: Path) -> None:
    root, most = tmp_path / "s", 0
    for number in range(260):
        with st.connect(root, close_upkeep_s=120) as db:
            if not number:
                db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
            first = 12_000 * (number % 100)
            rows = {"id": range(first, first + 12_000), "v": [number] * 12_000}
            db["t"].upsert(pa.table(rows))
            most = max(most, db.status().tables[0].unmerged_rows)
        log = sum(file.stat().st_size for file in (root / "wal").iterdir())
        assert log < 64 << 20
    assert most < 300_000
    assert unmerged(root) < 300_000
    with st.connect(root, background=False) as db:
        assert db["t"].count() == 1_200_000
        assert db["t"].get(0) == {"id": 0, "v": 200}


def closed_without_background(root: Path, hanging: Hanging) -> None:
    run("st.connect(sys.argv[1], background=False, **OPTIONS).close()", root, python=hanging.python)


def closed_with_no_time(root: Path, hanging: Hanging) -> None:
    run(CLOSES, root, 0, python=hanging.python)


def closed_without_upkeep(root: Path, hanging: Hanging) -> None:
    run("st.connect(sys.argv[1], **OPTIONS).close(upkeep=False)", root, python=hanging.python)


def read_alone(root: Path, hanging: Hanging) -> None:
    run("st.connect(sys.argv[1], read_only=True, **OPTIONS).close()", root, python=hanging.python)


def ended_by_an_exception(root: Path, hanging: Hanging) -> None:
    text = """
try:
    with st.connect(sys.argv[1], **OPTIONS):
        raise KeyError
except KeyError:
    pass
"""
    run(text, root, python=hanging.python)


def ended_by_an_exception_that_nobody_caught(root: Path, hanging: Hanging) -> None:
    text = "db = st.connect(sys.argv[1], **OPTIONS)\nraise KeyError('mine')"
    started = program(text, root, python=hanging.python)
    errors = started.communicate(timeout=300)[1]
    assert started.returncode == 1
    assert errors.endswith("KeyError: 'mine'\n")


def closed_by_the_handler_of_a_signal(root: Path, hanging: Hanging) -> None:
    text = """
import signal
db = st.connect(sys.argv[1], **OPTIONS)
signal.signal(signal.SIGTERM, lambda *_: db.close())
signal.raise_signal(signal.SIGTERM)
"""
    run(text, root, python=hanging.python)


def closed_in_memory(_: Path, hanging: Hanging) -> None:
    text = """
with st.connect(":memory:", **OPTIONS) as db:
    db.create_table("t", {"id": "int64"}, primary_key="id")
    db["t"].upsert([{"id": n} for n in range(600)])
    db.checkpoint()
"""
    run(text, python=hanging.python)


def closed_with_nothing_to_do(root: Path, hanging: Hanging) -> None:
    run("st.connect(sys.argv[1]).close()", root, python=hanging.python)


@pytest.mark.parametrize(
    "use",
    [
        closed_without_background,
        closed_with_no_time,
        closed_without_upkeep,
        read_alone,
        ended_by_an_exception,
        ended_by_an_exception_that_nobody_caught,
        closed_by_the_handler_of_a_signal,
        closed_in_memory,
        closed_with_nothing_to_do,
    ],
)
def test_an_end_without_an_upkeep_starts_no_child(
    tmp_path: Path, use: Callable[[Path, Hanging], None]
) -> None:
    hanging = Hanging(tmp_path).make()
    use(behind(tmp_path / "s"), hanging)
    assert hanging.pids == []
    assert not (tmp_path / "s" / "jobs" / "OWED").exists()


def test_an_end_that_asks_for_an_upkeep_has_one_without_a_background(tmp_path: Path) -> None:
    root, heard = behind(tmp_path / "s"), []
    db = owner(root, background=False)
    db.close(True, on_progress=lambda *news: heard.append(news))
    assert unmerged(root) == 0
    assert heard == [("merge", 0, 1), ("", 1, 1)]


def test_only_true_and_false_say_whether_there_is_an_upkeep(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s") as db, pytest.raises(st.RequestError, match="upkeep"):
        db.close("yes")  # type: ignore[arg-type]


# what does not fit


def test_a_merge_that_does_not_fit_is_killed_named_and_tried_again_when_its_rows_have_doubled(
    tmp_path: Path,
) -> None:
    hanging, root = Hanging(tmp_path).make(), behind(tmp_path / "s")
    assert run(CLOSES, root, SECONDS, python=hanging.python) == "closed\n"
    assert [is_alive(pid) for pid in hanging.pids] == [False]
    assert status_of(root).owed == ("merge",)
    assert "owed: merge did not fit into a close; run `siltstone maintain`" in str(status_of(root))
    run(CLOSES, root, SECONDS, python=hanging.python)
    assert len(hanging.pids) == 1
    behind(root, 2 * ROWS)
    run(CLOSES, root, SECONDS, python=hanging.python)
    assert len(hanging.pids) == 2
    assert status_of(root).owed == ("merge",)
    owner(root).close(upkeep=True)  # asked for
    assert (unmerged(root), status_of(root).owed) == (0, ())
    assert is_sound(root, 1)


def test_what_others_have_done_since_is_not_owed_any_more(tmp_path: Path) -> None:
    hanging, root = Hanging(tmp_path).make(), behind(tmp_path / "s")
    run(CLOSES, root, SECONDS, python=hanging.python)
    with st.connect(root, background=False) as db:
        db.merge()
    assert status_of(root).owed == ()
    st.connect(root, memory_bytes_max=SMALL).close()
    assert not (root / "jobs" / "OWED").exists()


@pytest.mark.parametrize("damage", [b"", b"siltstone-owed 6 0000000000000000\n{}", b"\xff" * 80])
def test_a_damaged_list_of_what_is_owed_is_none(tmp_path: Path, damage: bytes) -> None:
    root = behind(tmp_path / "s")
    (root / "jobs").mkdir(exist_ok=True)
    (root / "jobs" / "OWED").write_bytes(damage)
    assert status_of(root).owed == ()
    owner(root).close()
    assert unmerged(root) == 0


def test_a_child_that_fails_is_a_warning_and_keeps_no_other_step_from_running(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = behind(tmp_path / "s")
    age(root)
    db = owner(root)
    db._parts.owner.merge_child._python = "/bin/false"
    db.close()
    assert "merge at the end of the store failed: UnavailableError: the merge child failed" in (
        caplog.text
    )
    assert ago(root) < 3600
    assert status_of(root).owed == ("merge",)


def test_the_stores_of_an_exit_have_the_time_of_one(tmp_path: Path) -> None:
    hanging = Hanging(tmp_path).make()
    roots = [behind(tmp_path / f"s{number}") for number in range(12)]
    text = "stores = [st.connect(root, close_upkeep_s=4, **OPTIONS) for root in sys.argv[1:]]"
    run(text, *roots, python=hanging.python)
    assert len(hanging.pids) == 1
    assert not is_alive(hanging.pids[0])
    assert {status_of(root).owed for root in roots} == {("merge",)}
    assert all(is_sound(root, 1) for root in roots)


def test_a_step_that_had_no_time_is_tried_at_the_next_end(tmp_path: Path) -> None:
    hanging = Hanging(tmp_path).make()
    roots = [behind(tmp_path / f"s{number}") for number in range(2)]
    text = "stores = [st.connect(root, close_upkeep_s=4, **OPTIONS) for root in sys.argv[1:]]"
    run(text, *roots, python=hanging.python)
    run(text, *roots, python=hanging.python)
    assert len(hanging.pids) == 2  # of each store, one


# who waits


def test_a_process_that_wants_the_store_waits_for_the_end_and_hurries_it(tmp_path: Path) -> None:
    hanging, root = Hanging(tmp_path).make(tells=True), behind(tmp_path / "s")
    closing = program(CLOSES, root, 600, python=hanging.python)
    child = hanging.hear()
    assert read_holder(RealFiles(), root).ends
    with st.connect(root, background=False) as db:
        assert db["t"].count() == ROWS
        assert not is_alive(child)
    assert closing.communicate(timeout=60)[0] == "closed\n"
    assert status_of(root).owed == ("merge",)


def test_a_process_waits_for_an_end_no_longer_than_it_is_told(tmp_path: Path) -> None:
    hanging, root = Hanging(tmp_path).make(tells=True), behind(tmp_path / "s")
    closing = program(CLOSES, root, 600, python=hanging.python)
    child = hanging.hear()
    with pytest.raises(st.OwnedError, match=f"owned by process {closing.pid}"):
        st.connect(root, join_timeout_s=0)
    assert is_alive(child)
    closing.send_signal(signal.SIGINT)
    closing.communicate(timeout=60)


def test_a_process_that_joins_owns_the_store_after_the_end(tmp_path: Path) -> None:
    hanging, root = Hanging(tmp_path).make(tells=True), behind(tmp_path / "s")
    closing = program(CLOSES, root, 600, python=hanging.python)
    hanging.hear()
    with st.connect(root, join=True, background=False) as db:
        assert not db.is_read_only
        assert db["t"].count() == ROWS
    assert closing.communicate(timeout=60)[0] == "closed\n"


def test_a_reader_reads_while_the_owner_ends(tmp_path: Path) -> None:
    hanging, root = Hanging(tmp_path).make(tells=True), behind(tmp_path / "s")
    closing = program(CLOSES, root, 600, python=hanging.python)
    child = hanging.hear()
    with st.connect(root, read_only=True) as db:
        assert db["t"].count() == ROWS
    assert is_alive(child)
    closing.send_signal(signal.SIGINT)
    closing.communicate(timeout=60)


def test_ctrl_c_ends_the_upkeep_and_the_close_completes(tmp_path: Path) -> None:
    hanging, root = Hanging(tmp_path).make(tells=True), behind(tmp_path / "s")
    text = """
db = st.connect(sys.argv[1], close_upkeep_s=600, **OPTIONS)
try:
    db.close()
except KeyboardInterrupt:
    print(db)
"""
    closing = program(text, root, python=hanging.python)
    child = hanging.hear()
    closing.send_signal(signal.SIGINT)
    out, errors = closing.communicate(timeout=60)
    assert (out, errors) == (f"<Store {root}, closed>\n", "")
    assert not is_alive(child)
    assert status_of(root).owed == ("merge",)
    assert is_sound(root, 1)


def test_ctrl_c_ends_the_upkeep_of_an_exit_without_a_word(tmp_path: Path) -> None:
    hanging, root = Hanging(tmp_path).make(tells=True), behind(tmp_path / "s")
    text = "db = st.connect(sys.argv[1], close_upkeep_s=600, **OPTIONS)"
    ending = program(text, root, python=hanging.python)
    child = hanging.hear()
    ending.send_signal(signal.SIGINT)
    assert ending.communicate(timeout=60) == ("", "")
    assert ending.returncode == 0
    assert not is_alive(child)
    assert is_sound(root, 1)


# siltstone maintain


def test_maintain_does_what_is_due_however_long_it_takes(tmp_path: Path) -> None:
    hanging, root = Hanging(tmp_path).make(), behind(tmp_path / "s")
    run(CLOSES, root, SECONDS, python=hanging.python)
    age(root)
    done = maintain_store(root, memory_bytes_max=SMALL)
    assert (done.done, done.left) == (("merge", "vacuum"), ())
    assert (unmerged(root), status_of(root).owed) == (0, ())
    assert ago(root) < 3600
    assert maintain_store(root, memory_bytes_max=SMALL).done == ()
    assert is_sound(root, 1)


def test_maintain_removes_the_tags_that_have_lapsed(tmp_path: Path) -> None:
    root = behind(tmp_path / "s")
    with st.connect(root, background=False) as db:
        db.tag("brief", lasts=1)
        lapses = time.time() + 1
    while time.time() <= lapses:
        os.sched_yield()
    maintain_store(root)
    with st.connect(root, read_only=True) as db:
        assert db.tags() == {}


def test_maintain_gives_way_to_a_process_that_wants_the_store(tmp_path: Path) -> None:
    hanging, root = Hanging(tmp_path).make(tells=True), behind(tmp_path / "s")
    text = "from siltstone.admin import maintain_store\n"
    text += "print(maintain_store(sys.argv[1], memory_bytes_max=1 << 20))"
    maintaining = program(text, root, python=hanging.python)
    child = hanging.hear()
    with st.connect(root, background=False) as db:
        assert db["t"].count() == ROWS
    assert not is_alive(child)
    out, errors = maintaining.communicate(timeout=60)
    assert (out, errors) == ("Maintained(done=(), left=('merge',))\n", "")


def test_maintain_makes_no_store_and_takes_none_from_its_owner(tmp_path: Path) -> None:
    with pytest.raises(st.RequestError, match="not a store"):
        maintain_store(tmp_path / "s")
    assert not (tmp_path / "s").exists()
    with owner(tmp_path / "s"), pytest.raises(st.OwnedError):
        maintain_store(tmp_path / "s")
