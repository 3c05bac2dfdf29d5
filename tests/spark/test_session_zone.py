"""The driver tells planners its session's zone, so a time without an offset has one."""

from __future__ import annotations

import datetime as dt
import os
import pickle
import socket
import stat
import subprocess
import sys
import textwrap
import zoneinfo
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict

import siltstone as st
from siltstone.spark import register, session_answers
from siltstone.spark.session_answers import Address, Answers, Desk
from siltstone.spark.session_zone import ZONE_QUESTION, zone_at, zone_of
from siltstone.spark.sessions import ANSWERS
from siltstone.spark.source import source_of

ZONE = "spark.sql.session.timeZone"
DESKS = {ZONE_QUESTION: Desk(zone_of)}
EAST, WEST = "Asia/Kathmandu", "America/St_Johns"
NAIVE = "2026-11-20 10:00"


@pytest.fixture
def abroad(spark: SparkSession) -> Iterator[SparkSession]:
    found = register(spark.newSession())
    found.conf.set(ZONE, EAST)
    yield found
    for query in found.streams.active:
        query.stop()


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False) as found:
        found.create_table("t", {"id": "int64"}, primary_key="id")
        found.serve_local()
        yield found


def two_commits(db: st.Store) -> dt.datetime:
    """Commit rows 1 and 2; return a moment in between."""
    db["t"].insert({"id": 1})
    between = dt.datetime.now(dt.UTC)
    db["t"].insert({"id": 2})
    return between


def local(moment: dt.datetime, zone: str) -> str:
    return str(moment.astimezone(zoneinfo.ZoneInfo(zone)).replace(tzinfo=None))


def ids(frame: DataFrame) -> list[int]:
    return sorted(row["id"] for row in frame.select("id").collect())


def test_a_read_goes_by_the_zone_that_its_session_has_at_load(
    abroad: SparkSession, db: st.Store
) -> None:
    between = two_commits(db)
    reader = abroad.read.format("siltstone")
    frames: list[DataFrame] = []
    for zone in (EAST, WEST):
        abroad.sql(f"SET TIME ZONE '{zone}'")
        reader = reader.option("timestampAsOf", local(between, zone))
        frames.append(reader.load(f"{db.path}/t"))
        assert ids(frames[-1]) == [1]
    abroad.conf.set(ZONE, "UTC")
    assert [ids(frame) for frame in frames] == [[1], [1]]


def test_a_view_of_sql_and_each_option_that_is_a_time_do_as_well(
    abroad: SparkSession, db: st.Store
) -> None:
    between = local(two_commits(db), EAST)
    for name in ("at", "timestampAsOf"):
        abroad.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW old USING siltstone"
            f" OPTIONS (uri '{db.path}', table 't', {name} '{between}')"
        )
        assert ids(abroad.table("old")) == [1]
    changes = abroad.read.format("siltstone").option("readChangeFeed", "true")
    later = changes.option("startingTimestamp", between).load(f"{db.path}/t")
    changes = abroad.read.format("siltstone").option("readChangeFeed", "true")
    until = changes.options(startingVersion="0", endingTimestamp=between).load(f"{db.path}/t")
    abroad.conf.set(ZONE, WEST)
    assert (ids(later), ids(until)) == ([2], [1])


def test_a_schema_that_the_caller_gives_changes_nothing(abroad: SparkSession, db: st.Store) -> None:
    between = local(two_commits(db), EAST)
    reader = abroad.read.format("siltstone").schema("id bigint not null")
    frame = reader.option("timestampAsOf", between).load(f"{db.path}/t")
    assert ids(frame) == [1]


def test_a_stream_begins_at_a_time_of_its_session(
    abroad: SparkSession, db: st.Store, tmp_path: Path
) -> None:
    between = local(two_commits(db), EAST)
    seen: list[int] = []
    reader = abroad.readStream.format("siltstone").option("startingTimestamp", between)
    writer = reader.load(f"{db.path}/t").writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.foreachBatch(lambda frame, _: seen.extend(ids(frame))).start()
    assert query.awaitTermination(120)
    assert seen == [2]


def test_the_zone_that_is_named_wins_and_an_offset_over_both(
    abroad: SparkSession, db: st.Store
) -> None:
    between = two_commits(db)
    reader = abroad.read.format("siltstone").option("timestampAsOf", local(between, WEST))
    assert ids(reader.option("timeZone", WEST).load(f"{db.path}/t")) == [1]
    reader = abroad.read.format("siltstone").option("timestampAsOf", between.isoformat())
    assert ids(reader.load(f"{db.path}/t")) == [1]


def test_two_sessions_have_each_their_own_zone(
    spark: SparkSession, abroad: SparkSession, db: st.Store
) -> None:
    between = two_commits(db)
    other = register(spark.newSession())
    other.conf.set(ZONE, WEST)
    for session, zone in ((abroad, EAST), (other, WEST)):
        reader = session.read.format("siltstone").option("timestampAsOf", local(between, zone))
        assert ids(reader.load(f"{db.path}/t")) == [1]


def test_beside_a_stream_whose_copy_of_the_session_has_another_zone_such_a_time_is_refused(
    abroad: SparkSession, db: st.Store
) -> None:
    between = two_commits(db)
    reader = abroad.read.format("siltstone")
    query = abroad.readStream.format("rate").load().writeStream.format("noop").start()
    assert ids(reader.option("timestampAsOf", local(between, EAST)).load(f"{db.path}/t")) == [1]
    abroad.conf.set(ZONE, WEST)
    with pytest.raises(Exception, match=r"has no zone.* as option 'timeZone'"):
        reader.option("timestampAsOf", local(between, WEST)).load(f"{db.path}/t")
    query.stop()
    assert ids(reader.load(f"{db.path}/t")) == [1]


def test_a_zone_that_python_does_not_know_is_named_as_the_setting_of_the_session(
    abroad: SparkSession, db: st.Store
) -> None:
    abroad.conf.set(ZONE, "PST")  # one of Java's own
    reader = abroad.read.format("siltstone").option("timestampAsOf", NAIVE)
    with pytest.raises(Exception, match=f"'{ZONE}' must be a time zone, .* got 'PST'"):
        reader.load(f"{db.path}/t")


def test_only_this_user_may_ask_and_for_known_sessions_alone(abroad: SparkSession) -> None:
    (folder, session), is_new = served(abroad)
    assert not is_new
    assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
    assert zone_at((folder, session)) == EAST
    assert zone_at((folder, "of nobody")) is None
    assert zone_at((folder, "x" * 10_000)) is None
    assert zone_at((folder, session)) == EAST


def served(spark: SparkSession) -> tuple[Address, bool]:
    found = ANSWERS.serve(spark)
    assert found is not None
    return found


def test_where_nobody_answers_the_zone_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_answers, "ANSWER_S_MAX", 0.2)
    assert zone_at((str(tmp_path / "none"), "s")) is None
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind("zone")
        assert zone_at((".", "s")) is None  # it does not listen
        silent.listen(0)
        assert zone_at((".", "s")) is None  # it does not answer
        assert zone_at((".", "s")) is None  # too many wait


def test_who_says_nothing_holds_up_the_others_for_a_moment_only(
    abroad: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, _ = served(abroad)
    monkeypatch.setattr(session_answers, "QUESTION_S_MAX", 0.1)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(Path(address[0], "zone")))
        silent.sendall(b"no end of a line")
        assert served(abroad) == (address, False)
        assert zone_at(address) == EAST


def test_of_too_many_sessions_the_first_are_not_answered_for(
    abroad: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_answers, "SESSIONS_MAX", 2)
    answers = Answers(DESKS)
    places = [answers.serve_as(name, abroad)[0] for name in ("a", "b", "c")]
    assert [zone_at(place) for place in places] == [None, EAST, EAST]


def test_where_the_driver_has_another_python_than_the_workers_nothing_is_registered(
    spark: SparkSession, db: st.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark plans a source that it finds with the driver's Python: that alone may have ours."""
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "/another/python")
    found = register(spark.newSession())
    reader = found.read.format("siltstone")
    assert reader.load(f"{db.path}/t").count() == 0
    with pytest.raises(Exception, match="has no zone"):
        reader.option("timestampAsOf", NAIVE).load(f"{db.path}/t")


def test_an_answer_that_fails_is_none_and_the_next_one_is_given(abroad: SparkSession) -> None:
    class Broken:
        sparkContext = abroad.sparkContext  # noqa: N815 - Spark's name

        def __getattr__(self, name: str) -> object:
            raise RuntimeError(name)

    answers = Answers(DESKS)
    broken, _ = answers.serve_as("broken", Broken())  # pyright: ignore[reportArgumentType]
    whole, _ = answers.serve_as("whole", abroad)
    assert [zone_at(broken), zone_at(whole)] == [None, EAST]


def test_the_socket_goes_with_its_process_and_not_with_a_fork_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "siltstone-x"
    folder.mkdir()
    session_answers._remove(str(folder), os.getpid() + 1)
    assert folder.exists()
    session_answers._remove(str(folder), os.getpid())
    assert not folder.exists()


def test_a_frame_that_was_pickled_asks_no_more(abroad: SparkSession, db: st.Store) -> None:
    """Without an answer at `load()` there is none later: one frame has one zone."""
    options = {"uri": str(db.path), "table": "t", "timestampAsOf": NAIVE}
    source = source_of(("nobody", "s"))(CaseInsensitiveDict(options))
    again = pickle.loads(cloudpickle.dumps(source))
    address, _ = served(abroad)
    assert vars(again)["_asked"] is None
    asked = source_of(address)(CaseInsensitiveDict(options))
    assert vars(pickle.loads(cloudpickle.dumps(asked)))["_zone"] == EAST


def test_a_class_that_travels_needs_nothing_that_an_older_siltstone_lacks() -> None:
    """Else executors that have one could not say that both need the same."""
    data = cloudpickle.dumps(source_of(("/tmp/zone", "s")))
    assert b"session_zone" not in data
    assert b"session_answers" not in data


def test_a_driver_that_answers_ends_when_its_program_does() -> None:
    script = """
    from siltstone.open import closing
    from siltstone.spark.session_answers import Answers, Desk
    closing.EXIT_TIMEOUT_S = 3600.0
    Answers({"zone": Desk(lambda *_: "", threads=2)}).serve_as("a session", None)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    subprocess.run(command, check=True, timeout=60)
