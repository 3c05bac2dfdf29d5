"""A client of Spark Connect uses the catalog of its server, if that was started with the jar."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import siltstone as st
from siltstone.spark.catalog.jars import jar
from siltstone.spark.catalog.settings import CLASS
from tests.children import with_pandas
from tests.spark.clusters import ROOT
from tests.spark.connect_servers import connect_server

BEFORE = [[1, "a"], [2, "b"], [3, "c"]]


def _said(folder: Path, which: str, more: Mapping[str, str]) -> dict[str, Any]:
    """Let a client talk to a server of its own."""
    store = folder / "shop"
    with st.connect(store, background=False) as db:
        db.create_table("o", {"id": "int64", "v": "string"}, "id")
        db.create_table("log", {"seq": "int64", "id": "int64", "v": "string"})
        db["o"].upsert([{"id": n, "v": v} for n, v in BEFORE])
    catalog = {"spark.sql.catalog.shop": CLASS, "spark.sql.catalog.shop.uri": str(store)}
    with connect_server(folder / "server", {**catalog, **more}) as url:
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.connect_client", url, which, str(store)],
            cwd=ROOT,
            env=with_pandas(),
            capture_output=True,
            text=True,
            check=False,
            timeout=800,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stdout + done.stderr[-4000:]
    return json.loads(lines[0].removeprefix("RESULT "))


def test_a_client_reads_and_writes_the_catalog_of_its_server(tmp_path: Path) -> None:
    said = _said(tmp_path, "with", {"spark.jars": str(jar())})
    after = [[2, "b"], [3, "three"], [4, "four"], [5, "five"], [6, "six"]]
    assert said == {
        "tables": [["", "log", False], ["", "o", False]],
        "select": [[2, "b"], [3, "c"]],
        "inserted": [*BEFORE, [4, "four"]],
        "again": ["AnalysisException", "o[4] exists already; use upsert to replace it"],
        "none": ["AnalysisException", said["none"][1]],
        "merged": [[1, "a"], [2, "b"], [3, "three"], [4, "four"], [5, "five"]],
        "merged by a frame": after,
        "updated": [[2, "B"], [4, "FOUR"], [6, "SIX"]],
        "version": BEFORE,
        "option": BEFORE,
        "twice": [5, 5],
        # Such a client sends the text of a frame with each action: it reads anew, at one seq.
        "after": [10, 20, 3],
        "made": [10, 3],
        "tag": [["mine"]],
        "streamed": 16,
        "imports siltstone": False,
    }
    assert "`shop`.`none` cannot be found" in said["none"][1]
    with st.connect(tmp_path / "shop", background=False) as db:
        assert db["made"].primary_key == ("id",)
        assert db["o"].count() == 10
        assert db.verify(deep=True).is_sound


def test_a_server_without_the_jar_names_it_and_has_the_format(tmp_path: Path) -> None:
    said = _said(tmp_path, "without", {})
    assert said["format"] == BEFORE
    assert said["written"] == 2 * len(BEFORE)
    kind, sentence = said["a name"]
    assert kind == "SparkException"
    assert sentence.startswith(
        "[CANNOT_LOAD_CATALOG.PLUGIN_CLASS_NOT_FOUND] Cannot load catalog 'shop' with the plugin"
        f" class '{CLASS}': cannot find the plugin class."
    )
    assert "`other`.`o` cannot be found" in said["no catalog"][1]
    assert said["registered"] == 2 * len(BEFORE), "a server that sees the client's jar takes it"
