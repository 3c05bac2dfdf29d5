"""Automatic merge: the merge after a large write on Spark, and what a commit says is due.

commit ─▶ large, and above base? ─▶ checkpoint ─▶ worth a merge? ─▶ merge
          else an owner's maintenance decides       by the owner's rules

The commit is complete before, and stays valid if the merge fails: failures are logged, and the next
check of the table starts the merge again.

`transaction` has the driver's session, and merges on Spark. The commit of the data source runs in a
Python process of Spark that has no session and ends afterwards. Nothing goes on after it: it says
in the log what is due, for `siltstone maintain`. An owner or a server that it commits through
keeps its store up by itself.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from siltstone.admin import due_of
from siltstone.api.store import Store
from siltstone.api.tasks import ATTACHED
from siltstone.errors import SiltstoneError
from siltstone.local.store import LocalStore
from siltstone.maintenance.schedule.unmerged import MERGE_ROWS_MIN, MERGE_SHARE
from siltstone.spark.context.options import ALWAYS, OFF
from siltstone.spark.writes.maintenance import merge
from siltstone.spark.writes.staging import StageJob

_log = logging.getLogger(__name__)


def due(db: Store, jobs: Sequence[StageJob], choice: str) -> list[str]:
    """Return the tables that need a merge after the commit of `jobs`; flush their rows."""
    rows: Counter[str] = Counter()
    for job in jobs:
        stage = job.piece.stage
        if stage.target == ATTACHED:
            rows[stage.table] += sum(piece.rows for piece in job.staged)
    least = 1 if choice == ALWAYS else MERGE_ROWS_MIN
    large = {table for table, count in rows.items() if count >= least}
    if choice == OFF or not large:
        return []
    try:
        db.checkpoint()
        found = [table for table in db.status().tables if table.name in large]
    except SiltstoneError as error:
        _log.warning("the rows are committed; cannot tell whether to merge them: %s", error)
        return []
    share = 0.0 if choice == ALWAYS else MERGE_SHARE
    return [t.name for t in found if t.unmerged_rows >= max(least, share * t.base_rows)]


def merge_on(spark: SparkSession, root: Path, tables: Sequence[str]) -> None:
    """Merge tables on Spark, one after the other."""
    for table in tables:
        try:
            merge(spark, root, table)
        except (SiltstoneError, PySparkException, OSError) as error:
            _log.warning("the rows are committed; merging %r failed: %s", table, error)


def report(db: Store, tables: Sequence[str]) -> None:
    """Say in the log what is due for a store that the committing process owned, and has closed.

    Args:
        db: The store.
        tables: Those that need a merge after the commit.
    """
    if not isinstance(db, LocalStore):
        return
    try:
        due = due_of(db.path)
    except SiltstoneError as error:
        _log.warning("the rows are committed; cannot tell what is due: %s", error)
        return
    what = [f"merge of {', '.join(tables)}"] if tables else []
    what += [step for step in due if step != "merge" or not tables]
    if what:
        command = "merge" if tables else "maintain"
        _log.warning(
            "the rows are committed; due: %s; run `siltstone %s --db %s`",
            ", ".join(what),
            command,
            db.path,
        )
