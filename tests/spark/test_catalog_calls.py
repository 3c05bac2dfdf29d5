"""CALL runs the procedures of a catalog: each has one result, or one clear error."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import InheritableThread
from pyspark.sql import Row, SparkSession

import siltstone as st
from siltstone.spark import register
from siltstone.spark.daemon.calls import procedures
from tests.spark.daemons import daemons, descriptors
from tests.spark.stores import owner

_numbers = itertools.count()
ORDERS = {"id": "int64", "total": "decimal128(10,2)", "s": "string"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a store with a table of each kind."""
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("o", ORDERS, "id").upsert(
            [{"id": n, "total": n, "s": f"x{n}"} for n in range(20)]
        )
        db.create_table("p", {"a": "int64", "b": "string"}).append([{"a": 1, "b": "one"}])
    return tmp_path / "s"


class Shop:
    """A catalog of a store, and the store itself."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.path, self.name = spark, path, f"c{next(_numbers)}"
        register(spark, stores={self.name: path})

    def sql(self, text: str) -> list[Row]:
        return self.spark.sql(text.format(shop=self.name)).collect()

    def call(self, text: str) -> dict[str, Any]:
        (row,) = self.sql(f"CALL {{shop}}.system.{text}")
        return row.asDict()

    def read(self, work: Callable[[st.Store], Any]) -> Any:
        with st.connect(self.path, read_only=True) as db:
            return work(db)

    def seq(self) -> int:
        return self.read(lambda db: db.seq)

    def refuses(self, text: str, said: str) -> None:
        """Check that a call says `said`, and changes nothing."""
        before = self.read(lambda db: (db.seq, db.tags()))
        with pytest.raises(Exception, match=said):
            self.sql(f"CALL {{shop}}.system.{text}")
        assert self.read(lambda db: (db.seq, db.tags())) == before


@pytest.fixture
def shop(spark: SparkSession, path: Path) -> Shop:
    return Shop(spark, path)


# --- the list


def test_a_catalog_shows_its_procedures(shop: Shop) -> None:
    found = [
        (row["namespace"], row["procedure_name"])
        for row in shop.sql("SHOW PROCEDURES IN {shop}.system")
    ]
    assert found == [(["system"], name) for name in sorted(procedures.PROCEDURES)]
    assert [(r[1], r[3]) for r in shop.sql("SHOW PROCEDURES IN {shop}")] == [
        (s, n) for s, n in found
    ]
    assert shop.sql("SHOW PROCEDURES IN {shop}.other") == []


def test_a_procedure_describes_its_parameters(shop: Shop) -> None:
    text = "\n".join(row[0] for row in shop.sql("DESCRIBE PROCEDURE {shop}.system.optimize"))
    assert "Rewrite small files as large ones." in text
    assert "target_rows BIGINT DEFAULT 1048576: rows in a file" in text


# --- maintenance


def test_checkpoint_and_merge_say_what_they_did(shop: Shop) -> None:
    done = shop.call("checkpoint()")
    assert done["seq"] == shop.seq()
    assert done["record"] > 0
    merged = shop.call("merge()")
    assert merged == {"seq": done["seq"], "tables": ["o"], "rows": 20, "deferred": None}
    assert shop.call("merge('o')") == {**merged, "rows": 0, "tables": []}
    shop.refuses("merge(table => 'q')", "no table 'q'")


def test_optimize_takes_names_and_places(shop: Shop) -> None:
    for n in range(3):
        shop.sql(f"INSERT INTO {{shop}}.p VALUES ({n}, 'more')")
    done = shop.call("optimize(target_rows => 1000, table => 'p')")
    assert (done["tables"], done["files_before"], done["files_after"]) == (["p"], 4, 1)
    assert (done["rows"], done["deferred"]) == (4, None)
    assert shop.call("optimize('p', 1000)")["tables"] == []
    shop.refuses("optimize(target_rows => 0)", "target_rows")


def test_a_vacuum_only_tells_unless_it_is_told_otherwise(shop: Shop) -> None:
    shop.call("checkpoint()")
    told = shop.call("vacuum()")
    assert told["dry_run"]
    done = shop.call("vacuum(dry_run => false)")
    assert not done["dry_run"]
    assert {*done} == {"dry_run", "files", "bytes", "oldest_seq", "spared"}
    shop.refuses("vacuum(NULL)", "dry_run of vacuum must not be NULL")


# --- tags


def test_a_tag_is_a_commit_and_can_be_read(shop: Shop) -> None:
    before = shop.seq()
    assert shop.call("tag('release')") == {
        "tag": "release", "seq": before, "commit_seq": before + 1,
    }  # fmt: skip
    shop.sql("DELETE FROM {shop}.o WHERE id < 15")
    count = "SELECT count(*) c FROM {shop}.o"
    assert shop.sql(count)[0]["c"] == 5
    assert shop.sql(count + " VERSION AS OF 'release'")[0]["c"] == 20
    assert shop.call(f"tag(seq => {before}, name => 'old', lasts => '7d')")["seq"] == before
    assert shop.read(lambda db: db.tags()) == {"release": before, "old": before}


def test_a_tag_is_dropped_by_its_name(shop: Shop) -> None:
    tagged = shop.call("tag('release')")
    gone = shop.call("drop_tag('release')")
    assert (gone["tag"], gone["seq"]) == ("release", tagged["seq"])
    assert shop.read(lambda db: db.tags()) == {}
    shop.refuses("drop_tag('release')", "there is no tag 'release'")


def test_a_tag_of_what_is_not_there_is_refused(shop: Shop) -> None:
    shop.refuses("tag('ahead', 1000)", "1000")
    shop.refuses("tag(NULL)", "name of tag must not be NULL: the tag")
    shop.refuses("tag('')", "tag")
    shop.refuses("tag('t', lasts => 'soon')", "soon")


# --- rollback


def test_a_table_goes_back_to_a_seq_in_one_commit(shop: Shop) -> None:
    before = shop.seq()
    shop.sql("DELETE FROM {shop}.o WHERE id < 15")
    shop.sql("INSERT INTO {shop}.o VALUES (99, 1, 'late')")
    done = shop.call(f"rollback_to('o', {before})")
    assert done == {"table": "o", "seq": before, "commit_seq": before + 3, "rows": 16}
    feed = shop.read(lambda db: db.changes(before + 2)["o"].read_all().to_pylist())
    assert sorted((row["_op"], row["id"]) for row in feed) == [
        ("delete", 99),
        *(("upsert", n) for n in range(15)),
    ]
    rows = shop.read(lambda db: db["o"].to_arrow().sort_by("id").to_pylist())
    assert [row["s"] for row in rows] == [f"x{n}" for n in range(20)]
    shop.call(f"rollback_to('o', seq => {before + 2})")  # the rollback is rolled back
    assert shop.read(lambda db: db["o"].count()) == 6


def test_a_plain_table_goes_back_to_a_tag(shop: Shop) -> None:
    shop.call("tag('release')")
    shop.sql("INSERT INTO {shop}.p VALUES (2, 'two')")
    assert shop.call("rollback_to('p', tag => 'release')")["rows"] == 1
    assert shop.read(lambda db: db["p"].to_arrow().to_pylist()) == [{"a": 1, "b": "one"}]


def test_an_empty_table_may_be_gone_back_to(shop: Shop) -> None:
    shop.sql("CREATE TABLE {shop}.e (id BIGINT PRIMARY KEY)")
    empty = shop.seq()
    shop.sql("INSERT INTO {shop}.e VALUES (1)")
    assert shop.call(f"rollback_to('e', {empty})")["rows"] == 1
    assert shop.call(f"rollback_to('e', {empty})")["rows"] == 0
    assert shop.read(lambda db: db["e"].count()) == 0


def test_a_rollback_that_could_lose_something_is_refused(shop: Shop) -> None:
    before = shop.seq()
    shop.refuses("rollback_to('o')", "a seq or a tag")
    shop.refuses("rollback_to('o', 1, 'release')", "a seq or a tag")
    shop.refuses("rollback_to('q', 1)", "no table 'q'")
    shop.refuses("rollback_to('o', tag => 'never')", "no tag 'never'")
    shop.refuses("rollback_to('o', 1000)", "1000")
    shop.sql("ALTER TABLE {shop}.o ADD COLUMNS (more STRING)")
    shop.refuses(f"rollback_to('o', {before})", "columns of 'o' have changed since seq")
    shop.sql("DROP TABLE {shop}.p")
    shop.sql("CREATE TABLE {shop}.p (a BIGINT, b STRING)")
    shop.refuses(f"rollback_to('p', {before})", "made later")


def test_a_rollback_conflicts_with_a_commit_that_came_after_it_began(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from siltstone.spark.daemon.calls import procedures

    with st.connect(path, background=False) as db:
        before = db.seq
        db["o"].delete([1])
        db.serve_local()
        real = procedures.stores.owner

        def late(uri: str) -> st.Store:
            db["o"].delete([2])
            return real(uri)

        given = {"table": "o", "seq": before, "tag": None}
        called = procedures.Called(str(path), str(path), "", given)
        monkeypatch.setattr(procedures.stores, "owner", late)
        with pytest.raises(st.ConflictError, match="nothing was rolled back; call it again"):
            procedures.PROCEDURES["rollback_to"].run(called)
        assert db["o"].count() == 18


# --- search


def test_a_search_returns_the_best_rows_first(shop: Shop) -> None:
    with st.connect(shop.path, background=False) as db:
        at = db.create_table("at", {"id": "int64", "v": "vector(float32, 2)"}, "id")
        at.upsert([{"id": n, "v": [n, 0]} for n in range(10)])
        docs = db.create_table("docs", {"id": "int64", "title": "string"}, "id")
        docs.upsert([{"id": 1, "title": "river silt"}, {"id": 2, "title": "a stone"}])
        db.checkpoint()
        db.merge()
        docs.create_index("title", "fts")
    near = shop.sql("CALL {shop}.system.search('at', vector => array(3.2, 0), k => 2)")
    assert [row["id"] for row in near] == [3, 4]
    assert near[0]["v"] == [3.0, 0.0]
    assert near[0]["_distance"] == pytest.approx(0.04, abs=1e-4)
    more = "filter => 'id > 6', columns => array('id')"
    some = shop.sql(f"CALL {{shop}}.system.search('at', vector => array(3.2, 0), {more})")
    assert [row["id"] for row in some] == [7, 8, 9]
    (found,) = shop.sql("CALL {shop}.system.search('docs', 'silt')")
    assert (found["id"], found["title"]) == (1, "river silt")
    assert shop.sql("CALL {shop}.system.search('docs', 'granite')") == []
    shop.refuses("search('at')", "search takes a query, of words, or a vector")
    shop.refuses("search('q', 'silt')", "no table 'q'")
    shop.refuses("search('at', vector => array(1))", "2")


# --- wrong calls


def test_a_wrong_call_is_one_clear_error(shop: Shop) -> None:
    shop.refuses("compact()", "no procedure 'system.compact'")
    shop.refuses("tags('x')", "did you mean 'system.tag'")
    with pytest.raises(Exception, match=r"no procedure 'merge'"):
        shop.sql("CALL {shop}.merge()")
    shop.refuses("tag()", "REQUIRED_PARAMETER_NOT_FOUND")
    shop.refuses("tag('a', 1, '7d', 4)", "WRONG_NUM_ARGS")
    shop.refuses("tag(named => 'a')", "UNRECOGNIZED_PARAMETER_NAME|REQUIRED_PARAMETER_NOT_FOUND")
    shop.refuses("tag('a', array(1))", "DATATYPE_MISMATCH")


def test_names_of_procedures_may_be_in_any_case(shop: Shop) -> None:
    assert shop.call("TAG('release')")["tag"] == "release"


def test_an_owner_in_another_process_does_what_is_called(shop: Shop) -> None:
    with owner(shop.path, "serve"):
        assert shop.call("checkpoint()")["seq"] == shop.seq()
        assert shop.call("merge('o')")["rows"] == 20
        shop.call("tag('release')")
        shop.sql("DELETE FROM {shop}.o")
        assert shop.call("rollback_to('o', tag => 'release')")["rows"] == 20
    assert shop.read(lambda db: db["o"].count()) == 20


def test_an_owner_that_does_not_serve_is_named(shop: Shop) -> None:
    with owner(shop.path):
        with pytest.raises(Exception, match="serve_local"):
            shop.call("tag('release')")
        with pytest.raises(Exception, match="serve_local"):
            shop.call("merge()")
    assert shop.read(lambda db: db.tags()) == {}


def test_explain_calls_nothing(shop: Shop) -> None:
    before = shop.seq()
    shop.sql("EXPLAIN CALL {shop}.system.tag('release')")
    assert (shop.seq(), shop.read(lambda db: db.tags())) == (before, {})


def test_a_process_that_dies_while_it_tags_leaves_that_in_doubt(shop: Shop) -> None:
    said = list[str]()

    def run() -> None:
        try:
            shop.call("tag('release')")
        except Exception as error:  # noqa: BLE001 - what it says is looked at
            said.append(str(error))

    with owner(shop.path, "serve") as process:
        assert shop.sql("SELECT count(*) c FROM {shop}.o")[0]["c"] == 20
        (pid,) = daemons()
        process.send_signal(signal.SIGSTOP)  # it holds the commit up
        try:
            before, working = descriptors(pid), InheritableThread(run)
            working.start()
            end = time.monotonic() + 120
            while descriptors(pid) == before and time.monotonic() < end:  # it joins the owner
                time.sleep(0.05)
            os.kill(pid, signal.SIGKILL)
            working.join(120)
            assert not working.is_alive()
        finally:
            process.send_signal(signal.SIGCONT)
        (first,) = said
        assert "in the middle of a commit: look whether the tag is in system.tags" in first
        assert shop.call("tag('release')")["tag"] == "release"
