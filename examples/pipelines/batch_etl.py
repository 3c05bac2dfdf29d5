"""Batch ETL: raw sales from Parquet into two tables of a store, in one commit, as often as it runs.

    python examples/pipelines/batch_etl.py RAW_PARQUET_DIR STORE DAY

RAW_PARQUET_DIR has the columns id, customer, amount, sold_at; DAY is like 2026-11-20. A day that is
run again, after a crash or because its raw data was corrected, leaves the same rows: sales and
totals are upserted by their keys, both in one transaction.
"""

import sys

from pyspark.sql import functions as f

import siltstone as st
from siltstone.spark import session, transaction

SALES = {
    "id": "int64",
    "customer": "int64",
    "amount": "decimal(12,2)",
    "sold_at": "timestamp[us, tz=UTC]",
}
TOTALS = {"customer": "int64", "day": "date32", "sales": "int64", "amount": "decimal(18,2)"}


def main(raw: str, store: str, day: str) -> None:
    spark = session()  # finds Java, or brings its own; any other session: register(spark)

    # Names and types are held against the table's before a row is written.
    sales = (
        spark.read.parquet(raw)
        .where(f.to_date("sold_at") == day)
        .dropDuplicates(["id"])
        .select(*SALES)
    )
    totals = (
        sales.groupBy("customer", f.to_date("sold_at").alias("day"))
        .agg(f.count("*").alias("sales"), f.sum("amount").cast("decimal(18,2)").alias("amount"))
        .select(*TOTALS)
    )

    # This process owns the store. Were it owned by another that says db.serve_local(), then
    # st.connect(store, join=True) would work through it.
    with st.connect(store) as db:
        if "sales" not in db.tables():
            db.create_table("sales", SALES, primary_key="id")
        if "totals" not in db.tables():
            db.create_table("totals", TOTALS, primary_key=["customer", "day"])

        # Spark's tasks write files that nobody sees; the end of the block commits them all at once.
        with transaction(db) as tx:
            tx.write(sales, "sales", op="upsert")
            tx.write(totals, "totals", op="upsert")
        print(f"committed {day} at seq {tx.seq}")

        # The past stays readable, by Spark too: both tables as they were at this very commit.
        read = spark.read.format("siltstone").option("uri", store).option("seq", tx.seq)
        read.option("table", "totals").load().orderBy(f.desc("amount")).show(5)


if __name__ == "__main__":
    main(*sys.argv[1:])
