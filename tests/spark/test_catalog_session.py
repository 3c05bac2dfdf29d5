"""`session` and `register` with stores: the jar, the names, and what an application alone sets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import siltstone as st
from siltstone.errors import RequestError, UnavailableError
from siltstone.spark import register
from siltstone.spark.catalog import jars
from siltstone.spark.catalog.settings import settings_of
from tests.children import with_pandas

ROOT = Path(__file__).parents[2]
ROWS, LARGE = 10, 2_000_000


def _store(path: Path) -> Path:
    with st.connect(path, background=False) as db:
        db.create_table("t", {"id": "int64"}).append([{"id": n} for n in range(ROWS)])
        db.create_table("large", {"id": "int64"}).append(pa.table({"id": np.arange(LARGE)}))
    return path


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("session")
    allowed, long = folder / "allowed", folder / ("long" * 20)
    allowed.mkdir()
    long.mkdir()
    command = [sys.executable, "-m", "tests.spark.catalog_driver", _store(allowed / "shop")]
    done = subprocess.run(
        [*map(str, command), str(_store(folder / "other")), str(long)],
        cwd=ROOT,
        env=with_pandas(),
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stdout + done.stderr
    return json.loads(lines[0].removeprefix("RESULT "))


def test_the_python_process_starts_with_the_session(said: dict[str, Any]) -> None:
    assert said["before a query"] == 1


def test_a_session_of_stores_reads_them(said: dict[str, Any]) -> None:
    assert said["rows"] == ROWS


def test_the_socket_lies_in_a_folder_of_the_user_whose_name_is_short_enough(
    said: dict[str, Any],
) -> None:
    assert said["socket"] == "/tmp 700"


def test_sql_cannot_name_a_store_outside_of_the_roots(said: dict[str, Any]) -> None:
    assert "a catalog may not name the store at" in said["outside"]


def test_a_task_whose_process_was_killed_is_run_again(said: dict[str, Any]) -> None:
    assert said["in a task"] == LARGE


def test_a_setting_of_the_session_chooses_no_python(said: dict[str, Any]) -> None:
    assert said["session setting"] == ROWS


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ("missing", "Python does not start: Cannot run program"),
        ("without", "/bin/false has no siltstone, or cannot import it"),
        ("impostor", "the jar is of"),
    ],
)
def test_a_python_that_cannot_serve_is_named(said: dict[str, Any], which: str, words: str) -> None:
    assert words in said[which]
    assert which == "impostor" or "spark.siltstone.python" in said[which]


def test_without_memory_to_map_a_read_is_a_stream(said: dict[str, Any]) -> None:
    assert said["no memory"] == sum(range(LARGE))


def test_a_memory_that_is_no_size_is_named(said: dict[str, Any]) -> None:
    assert "spark.siltstone.memory must be a size, like 512m; got much" in said["much"]


def test_no_folder_of_a_socket_is_left(said: dict[str, Any]) -> None:
    assert len(said["folders"]) > 3
    assert [each for each in said["folders"] if Path(each).exists()] == []


def test_once_the_python_is_right_it_answers_again(said: dict[str, Any]) -> None:
    assert said["after all"] == ROWS


# --- names and stores


@pytest.mark.parametrize("name", ["a.b", "", "spark_catalog", "session", "system", "1a", "a-b"])
def test_a_name_that_no_catalog_can_have_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="a catalog's name has letters"):
        settings_of({name: tmp_path})


def test_a_store_that_is_not_there_is_refused_before_spark_hears_of_it(tmp_path: Path) -> None:
    with pytest.raises(RequestError):
        settings_of({"shop": tmp_path / "nowhere"})
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(UnavailableError):
        settings_of({"shop": "http://127.0.0.1:9"})


def test_the_store_of_a_server_keeps_its_url(tmp_path: Path) -> None:
    with st.connect(_store(tmp_path / "s"), background=False) as db:
        url = db.serve(port=0).url
        assert settings_of({"shop": url})["spark.sql.catalog.shop.uri"] == url
        assert settings_of({"shop": db})["spark.sql.catalog.shop.uri"] == str(db.path)


def test_a_name_is_one_store_in_a_session(spark: SparkSession, tmp_path: Path) -> None:
    one, other = _store(tmp_path / "one"), _store(tmp_path / "other")
    mine = register(spark.newSession(), stores={"shop": one})
    assert register(mine, stores={"shop": one}) is mine
    with pytest.raises(RequestError, match="has a catalog 'shop' already"):
        register(mine, stores={"shop": other})
    register(spark.newSession(), stores={"shop": other})
    assert mine.sql("SELECT count(*) FROM shop.t").collect()[0][0] == ROWS


def test_a_catalog_of_others_keeps_its_name(spark: SparkSession, tmp_path: Path) -> None:
    mine = spark.newSession()
    mine.conf.set("spark.sql.catalog.shop", "org.example.Catalog")
    with pytest.raises(RequestError, match="has a catalog 'shop' already: org"):
        register(mine, stores={"shop": _store(tmp_path / "s")})


def test_a_catalog_without_a_store_says_which_setting(spark: SparkSession, tmp_path: Path) -> None:
    mine = register(spark.newSession(), stores={"shop": _store(tmp_path / "s")})
    mine.conf.set("spark.sql.catalog.bare", mine.conf.get("spark.sql.catalog.shop"))
    with pytest.raises(
        Exception, match=r"catalog bare has no store: set spark.sql.catalog.bare.uri"
    ):
        mine.sql("SHOW TABLES IN bare").collect()


def test_a_table_that_was_made_again_is_another_one(spark: SparkSession, tmp_path: Path) -> None:
    path = _store(tmp_path / "s")
    mine = register(spark.newSession(), stores={"shop": path})
    frame = mine.table("shop.t")
    with st.connect(path, background=False) as db:
        db.drop_table("t")
        db.create_table("t", {"id": "int64", "more": "string"}).append([{"id": 1, "more": "x"}])
    assert frame.count() == ROWS, "a frame has its own table, at its own seq"
    assert len(frame.collect()) == ROWS
    assert mine.table("shop.t").columns == ["id", "more"]


def test_a_column_that_is_added_is_not_in_a_frame_of_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = _store(tmp_path / "s")
    mine = register(spark.newSession(), stores={"shop": path})
    frame = mine.table("shop.t")
    with st.connect(path, background=False) as db:
        db["t"].add_column("note", "string")
        db["t"].append([{"id": 99, "note": "new"}])
    assert sorted(row.id for row in frame.collect()) == list(range(ROWS))
    assert frame.columns == ["id"]
    assert mine.table("shop.t").columns == ["id", "note"]
    assert mine.sql("SELECT note FROM shop.t WHERE id = 99").collect()[0][0] == "new"


def test_the_jar_is_added_once(spark: SparkSession, tmp_path: Path) -> None:
    path = _store(tmp_path / "s")
    mine = spark.newSession()
    for name in ("one", "two"):
        register(mine, stores={name: path})
    names = [row[0] for row in mine.sql("LIST JARS").collect()]
    assert sum(jars.jar().name in name for name in names) == 1


def test_a_local_master_without_a_chosen_python_starts_this_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON")
    register(spark.newSession(), stores={"shop": _store(tmp_path / "s")})
    conf = spark.sparkContext._jsc.sc().conf()
    assert conf.get("spark.siltstone.python") == sys.executable


# --- Spark's own catalog


def _joined(spark: SparkSession, path: Path) -> SparkSession:
    """Return a session that got a catalog while it ran, and has used it."""
    found = register(spark.newSession(), stores={"own": path})
    found.sql("SHOW TABLES IN own").collect()
    return found


def test_a_session_of_stores_makes_no_entry_of_a_store_in_sparks_own_catalog(
    said: dict[str, Any],
) -> None:
    assert "Spark's own catalog keeps no table of a store" in said["own catalog"]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE n (id BIGINT) USING siltstone",
        "CREATE TABLE n (id BIGINT) USING siltstone LOCATION '{path}/t'",
        "CREATE TABLE n (id BIGINT) USING Siltstone OPTIONS (uri '{path}', table 't')",
        "CREATE OR REPLACE TABLE n (id BIGINT) USING siltstone",
        "CREATE TABLE n USING siltstone AS SELECT 7L AS id",
        "CREATE OR REPLACE TABLE default.n USING siltstone AS SELECT 7L AS id",
    ],
)
def test_no_statement_makes_an_entry_of_a_store_in_sparks_own_catalog(
    spark: SparkSession, tmp_path: Path, statement: str
) -> None:
    path = _store(tmp_path / "s")
    joined = _joined(spark, path)
    with pytest.raises(Exception, match="Spark's own catalog keeps no table of a store"):
        joined.sql(statement.format(path=path))
    assert not spark.catalog.tableExists("n")
    with st.connect(path, read_only=True) as db:
        assert db["t"].count() == ROWS


def test_a_frame_is_saved_as_no_table_of_sparks_own_catalog(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = _store(tmp_path / "s")
    joined = _joined(spark, path)
    for given in ({}, {"uri": str(path), "table": "t"}, {"path": f"{path}/t"}):
        writer = joined.range(3).write.format("siltstone").options(**given)
        with pytest.raises(Exception, match="Spark's own catalog keeps no table of a store"):
            writer.saveAsTable("n")
    assert not spark.catalog.tableExists("n")
