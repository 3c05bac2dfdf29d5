"""Stock: what an unmodified Lance client does through our namespace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lance
import pyarrow as pa

from siltstone.api.store import Store
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.staging import staged


def make(db: Store, name: str, rows: pa.Table) -> None:
    """Create a table as a client does: it declares it, then writes its first version."""
    lance.write_dataset(
        rows, namespace_client=SiltstoneNamespace(db), table_id=[name], mode="create"
    )


def commit(db: Store, rows: Mapping[str, pa.Table], declared: str | None = None) -> None:
    """Append to several tables in one batch commit; declare one more in it."""
    ns = SiltstoneNamespace(db)
    operations: list[dict[str, Any]] = [
        {"create_table_version": staged(ns, name, more)} for name, more in rows.items()
    ]
    if declared is not None:
        operations.append({"declare_table": {"id": [declared]}})
    ns.batch_commit_tables({"operations": operations})
