"""Typed calls: what a type checker says of calls; pyright reads this file, and nothing runs it."""

# pyright: reportUnnecessaryTypeIgnoreComment=error

from __future__ import annotations

from typing import Literal, assert_type

from pyspark.sql import DataFrame

import siltstone as st
from siltstone.admin import create_index_in, merge_store
from siltstone.namespace import SiltstoneNamespace
from siltstone.spark import transaction


def options_have_names_and_types() -> None:
    st.connect("shop", verify="scrub", retention="7d", background=False, memory_bytes_max=1 << 30)
    st.connect("http://host:2333", token="secret")
    st.connect("shop", verify="sometimes")  # pyright: ignore[reportArgumentType]
    st.connect("shop", retentoin="7d")  # pyright: ignore[reportCallIssue]
    st.connect("shop", memory_bytes_max="1GB")  # pyright: ignore[reportArgumentType]


def words_are_those_that_a_call_knows(db: st.Store) -> None:
    db.transaction(isolation="serializable", durability="async")
    db.transaction(isolation="serialisable")  # pyright: ignore[reportArgumentType]
    db.transaction(durability="fsync")  # pyright: ignore[reportArgumentType]
    db.stage("orders", "insert")
    db.stage("orders", "merge")  # pyright: ignore[reportArgumentType]
    assert_type(db.outcome("1-2"), Literal["committed", "not committed", "in doubt"])
    assert_type(db.jobs()[0].state, Literal["running", "dead", "finished"])


def an_index_has_a_kind_and_its_options(db: st.Store) -> None:
    db["orders"].create_index("place", "vector", metric="cosine", encoding="pq", sub_vectors=4)
    db["orders"].create_index("text", "fts", name="words", language="German", stem=False)
    db["orders"].create_index("id", "b-tree")  # pyright: ignore[reportArgumentType]
    db["orders"].create_index("place", "vector", metric="far")  # pyright: ignore[reportArgumentType]
    db["orders"].create_index("place", "vector", metrik="l2")  # pyright: ignore[reportCallIssue]
    create_index_in("shop", "orders", "id", "bitmap", details={"metric": "dot"}, retention="1d")
    create_index_in("shop", "orders", "id", "hash")  # pyright: ignore[reportArgumentType]


def maintenance_takes_the_options_of_a_store(db: st.Store) -> None:
    merge_store("shop", "orders", segment_bytes=1 << 20)
    merge_store("shop", token="secret")  # pyright: ignore[reportCallIssue]
    db.serve(port=0, allowed_hosts=["shop.example"])
    db.serve(prot=0)  # pyright: ignore[reportCallIssue]


def spark_has_words_of_its_own(frame: DataFrame) -> None:
    with transaction("shop", merge="off") as tx:
        tx.write(frame, "orders", op="upsert", mode="append", missing="null")
        tx.write(frame, "orders", op="merge")  # pyright: ignore[reportArgumentType]
        tx.write(frame, "orders", mode="error")  # pyright: ignore[reportArgumentType]
        tx.write(frame, "orders", missing="ignore")  # pyright: ignore[reportArgumentType]
    transaction("shop", merge="never")  # pyright: ignore[reportArgumentType]


def an_open_store_has_a_namespace(db: st.Store) -> None:
    SiltstoneNamespace(db, keyed="fresh").transaction(isolation="serializable")
    SiltstoneNamespace("shop")  # pyright: ignore[reportArgumentType]
    SiltstoneNamespace(db, keyed="newest")  # pyright: ignore[reportArgumentType]
