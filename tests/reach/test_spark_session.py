"""A session of Spark reads a mirror at its URL by each of its roads. A file of the night."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

import siltstone as st
from tests.reach import spark_driver
from tests.reach.conftest import Mirrored
from tests.spark.clusters import ROOT, environment
from tests.support.bucket_servers import AZURE_KEY, SECRET

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]
Row = list[object]


@pytest.fixture(scope="module")
def said(shop: Mirrored) -> dict[str, Any]:
    """Return what a session, in processes of its own, said of the mirror; see the driver."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    with st.connect(shop.url, read_only=True) as far:
        times = {each.seq: each.time for each in far.log(1000)}
    given = {
        "url": shop.url,
        "seq": shop.changed,
        "tag": "first",
        "time": times[shop.changed].isoformat(),
        "after": shop.changed + 1,
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.reach.spark_driver", json.dumps(given)],
        cwd=ROOT, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stdout[-2000:] + done.stderr[-6000:]
    return {**json.loads(lines[0].removeprefix("RESULT ")), "stderr": done.stderr}


def rows_of(shop: Mirrored, seq: int, table: str = "keyed") -> list[Row]:
    return sorted((list(row.values()) for row in shop.at[seq][table]), key=repr)


def ids_since(shop: Mirrored, seq: int) -> list[object]:
    with st.connect(shop.root, read_only=True) as near:
        return sorted(near.changes(seq)["keyed"].read_all()["id"].to_pylist(), key=repr)


def test_each_road_reads_the_rows_of_its_moment(said: dict[str, Any], shop: Mirrored) -> None:
    reads, newest, past = said["reads"], rows_of(shop, shop.seq), rows_of(shop, shop.changed)
    assert [row[1] for row in reads["tables"]] == ["docs", "keyed", "plain"]
    assert reads["newest"] == newest
    assert reads["plain"] == rows_of(shop, shop.seq, "plain")
    for name in ("seq", "time", "loaded_at_seq", "snapshot"):
        assert reads[name] == past, name
    assert reads["tag"] == rows_of(shop, shop.tagged)
    assert reads["filtered"] == [[9]]
    assert reads["counted"] == [[len(shop.at[shop.seq]["plain"])]]
    assert reads["joined"] == [[number] for number in range(9) if number != 7]
    assert len(reads["searched"]) == 3
    assert ["first", shop.tagged] in reads["tags"]
    assert all(".lance" in path for (path,) in reads["files"])


def test_changes_are_read_as_a_range_and_as_a_stream(said: dict[str, Any], shop: Mirrored) -> None:
    since = ids_since(shop, shop.changed)
    for name in ("changes", "loaded_changes"):
        assert sorted((row[0] for row in said["reads"][name]), key=repr) == since, name
    assert since
    rows, first = said["stream"], min(row[0] for row in said["stream"])
    with st.connect(shop.url, read_only=True) as far, far.snapshot(seq=first) as then:
        begun = then["keyed"].to_arrow()["id"].to_pylist()
    after = ids_since(shop, first)
    assert sorted((row[2] for row in rows), key=repr) == sorted([*begun, *after], key=repr)


@pytest.mark.parametrize(
    "name",
    [*spark_driver.WRITES, "append", "transaction", "spark_merge"],
)
def test_what_writes_is_refused_in_one_sentence(
    said: dict[str, Any], shop: Mirrored, name: str
) -> None:
    text = said["refused"][name]
    assert f"{shop.url} is no local directory: a store in a bucket is only read" in text
    assert "open the path with mirror=URL" in text


def test_no_secret_is_in_a_plan_a_setting_or_a_log(said: dict[str, Any]) -> None:
    assert "SiltstoneCatalog" in said["said"]
    for secret in (SECRET, AZURE_KEY):
        assert secret not in json.dumps(said)
