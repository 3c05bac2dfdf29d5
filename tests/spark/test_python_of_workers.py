"""A session of one's own, in an environment that is not activated: Spark's `python3` is another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import siltstone as st
from tests.children import with_pandas
from tests.spark.conftest import SETTINGS

CHOSEN = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
PROGRAM = """
import json
import os
import sys
from pyspark.sql import SparkSession
from siltstone.spark import register, snapshot
from siltstone.spark.context.java import java_home

os.environ["JAVA_HOME"] = str(java_home(os.environ))
local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
settings = {**json.loads(sys.argv[2]), **local}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()

def read():
    found = spark.read.format("siltstone").load(f"{sys.argv[1]}/t")
    return sorted(row.id for row in found.collect())

try:
    read()
except Exception as error:
    print("DATA_SOURCE_NOT_FOUND" in str(error))
register(spark)
print(read())
rows = spark.createDataFrame([(8,)], "id bigint")
rows.write.format("siltstone").mode("append").save(f"{sys.argv[1]}/t")
with snapshot(spark, sys.argv[1]) as shop:
    print(sorted(row.id for row in shop["t"].collect()))
"""


def test_a_session_that_is_registered_reads_and_writes_with_the_drivers_python(
    tmp_path: Path,
) -> None:
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho 'No module named pyspark' >&2\nexit 1\n")
    other.chmod(0o755)
    with st.connect(tmp_path / "shop", background=False) as db:
        db.create_table("t", {"id": "int64"}, "id")
        db["t"].insert({"id": 7})
    kept = {name: value for name, value in with_pandas().items() if name not in CHOSEN}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "shop"), json.dumps(SETTINGS)],
        env={**kept, "PATH": os.pathsep.join([str(other.parent), kept["PATH"]])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.stdout.splitlines() == ["True", "[7]", "[7, 8]"], done.stderr
