"""Group upserts: rows of several callers, each its own commit, made by one thread at once.

A thread for each of them would have to be woken for its commit, and again for its answer. Each is
admitted, refused or in doubt by itself, as if it had a thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import table_schema_of
from siltstone.engine.commit.admission import SchemaMovedError
from siltstone.engine.commit.core import Core
from siltstone.engine.commit.recent_writes import ForgottenError
from siltstone.engine.commit.write_set import BLIND, Receipt, WriteSet
from siltstone.engine.write.row_plan import RowPlan, row_plan
from siltstone.errors import ConflictError
from siltstone.formats.manifest import Catalog, TableDefinition


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """A keyed table whose rows travel as tuples, as the catalog has it now."""

    core: Core
    plan: RowPlan

    @property
    def schema(self) -> pa.Schema:
        """The columns as callers see them."""
        return self.plan.table_schema.arrow

    def upsert(self, row: Mapping[str, object], *, is_whole: bool = True) -> WriteSet:
        """Return what `GroupUpserts.commit` commits.

        `is_whole`: a row that lacks a column is refused; else it has null there.

        Raises:
            SchemaMismatchError: A column or value does not fit.
        """
        return self.plan.upsert(row, next(self.core.numbers), is_whole=is_whole)


class GroupUpserts:
    """See the module. Any thread; what is known of the tables is one reference."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._known: tuple[Catalog, dict[str | int, PlannedTable | None]] | None = None

    def table(self, key: str | int) -> PlannedTable | None:
        """Return a table by its name, or by its id; None: its rows go alone.

        Raises:
            ClosedError, ReadOnlyError: Nothing can be written.
            TableNotFoundError: There is no table of that name. One whose id is gone goes alone.
        """
        self._core.writer()
        catalog, known = self._core.state().view.catalog, self._known
        if known is None or known[0] is not catalog:
            self._known = known = catalog, {}
        if key not in known[1]:
            found = catalogs.find(catalog, key) if type(key) is str else _by_id(catalog, key)
            if found is None:
                return None
            known[1][key] = self._planned(catalog, found)
        return known[1][key]

    def _planned(self, catalog: Catalog, found: TableDefinition) -> PlannedTable | None:
        plan = row_plan(catalog, found, table_schema_of(catalogs.schema_of(found)))
        return None if plan is None else PlannedTable(self._core, plan)

    def commit(self, planned: Sequence[WriteSet]) -> list[Receipt | BaseException | None]:
        """Return for each its receipt, or its error; None: nothing was written, it goes alone.

        Such a one has to wait for room, its table changed meanwhile, or it needs more than recent
        writes to know whether it conflicts.
        """
        commit, spans = self._core.writer().commit_all, self._core.works.spans
        found = commit(planned) if spans is None else spans.commit_all(commit, planned)
        if found is None:
            return [None] * len(planned)
        return [
            each if type(each) is Receipt else self._outcome(write_set, each)
            for write_set, each in zip(planned, found, strict=True)
        ]

    def _outcome(
        self, write_set: WriteSet, found: Receipt | BaseException
    ) -> Receipt | BaseException | None:
        if not isinstance(found, SchemaMovedError | ForgottenError | ConflictError):
            return found
        if not isinstance(found, ConflictError) or write_set.read_seq is BLIND:
            return None
        with self._core.latency.lock:
            self._core.latency.conflicts += 1
        return found


def _by_id(catalog: Catalog, key: object) -> TableDefinition | None:
    found = catalogs.by_id(catalog, key)  # type: ignore[arg-type]
    return found if found is not None and catalogs.is_alive(found) else None
