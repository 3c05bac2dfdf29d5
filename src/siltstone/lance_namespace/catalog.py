"""Lance catalog: a store as a Lance Namespace, in the words of its spec, over plain values.

    request, answer    dicts as they stand in JSON; `client` gives them the classes of Python,
                       a server the routes
    scope              where statements go: each its own commit, an open transaction, a snapshot

A plain table is versions that clients stage and this commits. A keyed one is read as of its last
merge.
"""

from __future__ import annotations

from collections.abc import Callable

from siltstone.lance_namespace.batches import BatchOperations
from siltstone.lance_namespace.errors import UnsupportedOperationError
from siltstone.lance_namespace.namespaces import NamespaceOperations
from siltstone.lance_namespace.requests import Answer, Request
from siltstone.lance_namespace.scope import Scope
from siltstone.lance_namespace.tables import TableOperations
from siltstone.lance_namespace.versions import VersionOperations
from siltstone.units import require

READS = frozenset(
    (
        *("list_namespaces", "describe_namespace", "namespace_exists"),
        *("create_namespace", "drop_namespace"),  # they change nothing: see NamespaceOperations
        *("list_tables", "list_all_tables", "describe_table", "table_exists"),
        *("list_table_branches", "list_table_versions", "describe_table_version"),
    )
)
WRITES = frozenset(
    (
        *("declare_table", "drop_table", "rename_table", "create_table_version"),
        *("batch_create_table_versions", "batch_delete_table_versions", "batch_commit_tables"),
    )
)


_KINDS = (NamespaceOperations, TableOperations, VersionOperations, BatchOperations)
_KIND_OF = {name: kind for kind in _KINDS for name in READS | WRITES if hasattr(kind, name)}
require(_KIND_OF.keys() == READS | WRITES, "an operation that is neither read nor write")


class LanceCatalog:
    """See the module."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def answer(self, operation: str, request: Request) -> Answer:
        """Answer a request by the name of its operation, one of `READS` and `WRITES`.

        Raises:
            UnsupportedOperationError: There is no such operation.
            SiltstoneError: Any other of `siltstone.errors` or of `errors` here.
        """
        kind = _KIND_OF.get(operation)
        if kind is None:
            raise UnsupportedOperationError(f"there is no operation {operation!r:.80}")
        method: Callable[[Request], Answer] = getattr(kind(self._scope), operation)
        return method(request)
