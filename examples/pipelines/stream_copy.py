"""Streaming: what changes in one store goes into another, each change exactly once.

    python examples/pipelines/stream_copy.py SOURCE_STORE TARGET_STORE CHECKPOINT_DIR

Kill it at any moment and start it again with the same checkpoint: the source goes on at the last
seq that was done, and a batch that was committed already is not committed twice, because its
number is part of the commit. SOURCE_STORE has a keyed table `orders`; it may be written meanwhile,
by its owner in another process.
"""

import sys

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import siltstone as st
from siltstone.spark import session, transaction

ORDERS = {"id": "int64", "customer": "int64", "total": "float64"}


def main(source: str, target: str, checkpoint: str) -> None:
    spark = session()
    changes = (
        spark.readStream.format("siltstone")
        .option("uri", source)
        .option("table", "orders")
        .option("startingSeq", "earliest")  # all rows as they are, then each change
        .load()  # the columns of the table, and _seq and _op
    )

    with st.connect(target) as db:
        if "orders" not in db.tables():
            db.create_table("orders", ORDERS, primary_key="id")

        def apply(batch: DataFrame, number: int) -> None:
            """Apply the newest change of each key; one commit, or none at all."""
            # The query's id lies in the checkpoint: a new checkpoint counts its batches anew.
            app = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
            order = f.struct("_seq", f.col("_op") != "delete")  # a commit may delete, then write
            newest = batch.groupBy("id").agg(f.max_by(f.struct("*"), order).alias("it"))
            rows = newest.select("it.*").select("_op", *ORDERS)
            with transaction(db, token=(app, number)) as tx:
                tx.write(rows.where("_op = 'upsert'").drop("_op"), "orders", op="upsert")
                tx.write(rows.where("_op = 'delete'").select("id"), "orders", op="delete")

        query = (
            changes.writeStream.foreachBatch(apply)
            .option("checkpointLocation", checkpoint)
            .trigger(
                availableNow=True
            )  # all there is, then end; processingTime="1 second": for ever
            .start()
        )
        query.awaitTermination()
        print(f"{target}: {db['orders'].count()} orders at seq {db.seq}")


if __name__ == "__main__":
    main(*sys.argv[1:])
