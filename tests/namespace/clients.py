"""What a stock client does: pylance alone, through a namespace."""

from __future__ import annotations

from typing import Any

import lance
import pyarrow as pa


def rows(first: int, end: int, value: str = "x") -> pa.Table:
    return pa.table({"id": list(range(first, end)), "v": [value] * (end - first)})


def make(ns: Any, name: str, table: pa.Table, **options: Any) -> lance.LanceDataset:
    return lance.write_dataset(
        table, namespace_client=ns, table_id=[name], mode="create", **options
    )


def append(ns: Any, name: str, table: pa.Table) -> lance.LanceDataset:
    return lance.write_dataset(table, namespace_client=ns, table_id=[name], mode="append")


def opened(ns: Any, name: str, **options: Any) -> lance.LanceDataset:
    return lance.dataset(namespace_client=ns, table_id=[name], **options)


def ids(dataset: lance.LanceDataset) -> list[int]:
    return sorted(dataset.to_table(columns=["id"])["id"].to_pylist())
