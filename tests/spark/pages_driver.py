"""A Spark with its pages: uses a store, then prints what the pages' REST API says of it.

    python -m tests.spark.pages_driver STORE

One line for each description of a job, and one for each name of ours that a plan has.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from typing import Any

from pyspark.sql import SparkSession

import siltstone as st
from siltstone.spark import merge, session, snapshot, transaction

SETTINGS = {
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
}


def asked(spark: SparkSession, what: str) -> Any:
    context = spark.sparkContext
    place = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/{what}"
    with urllib.request.urlopen(place) as answer:
        return json.load(answer)


def use(spark: SparkSession, path: str) -> None:
    with snapshot(spark, path) as now:
        assert len(now["orders"].collect()) == 13
        now.create_views()
        assert len(spark.sql("select * from orders where id > 10").collect()) == 2
    with snapshot(spark, path, tag="loaded") as past:
        assert len(past["orders"].collect()) == 10
    with transaction(path) as tx:
        tx.write(spark.range(20, 22).selectExpr("id", "'x' v"), "orders")
    with st.connect(path, background=False) as db:
        db.checkpoint()
    spark.sparkContext.setJobDescription("mine")
    with transaction(path) as tx:
        tx.write(spark.range(30, 31).selectExpr("id", "'y' v"), "orders")
    spark.sparkContext.setLocalProperty("spark.job.description", None)
    merge(spark, path)
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None


def main(path: str) -> None:
    spark = session(SETTINGS, master="local[2]")
    use(spark, path)
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    jobs = {job["description"] for job in asked(spark, "jobs") if "description" in job}
    for text in sorted(jobs):
        sys.stdout.write(f"job {text}\n")
    plans = asked(spark, "sql?details=true&planDescription=true&length=1000")
    steps = {
        found
        for plan in plans
        for found in re.findall(r"siltstone: [^(\n]*", plan["planDescription"])
    }
    for text in sorted(steps):
        sys.stdout.write(f"step {text.strip()}\n")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
