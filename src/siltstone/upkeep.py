"""Upkeep: the child that the end of an owner starts when its store is behind with maintenance.

    merge, if enough is unmerged ─▶ optimize histories of many small parts ─▶ vacuum, once an hour

The newest record says what is overdue; the owner that started it may not know all of that. It never
owns the store: the next program must be able to open it. So plain tables are left to an owner, and
it vacuums next to an owner, or after one that proved where its log ends, until the next one comes.
If an owner comes or goes meanwhile, the vacuum begins again, a few times.

It may be killed anywhere, as any merge, optimize or vacuum may. It prints nothing.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from siltstone.admin import follow_vacuum
from siltstone.engine.recover.following import Follower
from siltstone.engine.recover.replay import view_of
from siltstone.errors import BusyError, SiltstoneError
from siltstone.maintenance.compaction.plain_table_commit import PlainTablesOfAnOwner
from siltstone.maintenance.gc.vacuum import GRACE_S, Vacuumed
from siltstone.maintenance.merge.merge_child import TIMEOUT_S
from siltstone.maintenance.schedule.overdue import Overdue, crumbled
from siltstone.open.environment import Env, Maintainers, Storage, maintainers
from siltstone.options import Options

VACUUM_ATTEMPTS = 8
VACUUM_PAUSE_S = 2.0


def keep_up(root: Path, options: Options) -> list[SiltstoneError]:
    """Do what is overdue for the store at `root`; return what failed: the rest was done.

    Raises:
        RequestError: There is no store (any more); nothing was made.
        UnavailableError, CorruptionError: Its newest record cannot be read.
    """
    env = Env()
    env.require_store(root)
    storage = Storage.of(root, options, env)
    due = _overdue(storage, options)
    work = maintainers(storage, _plain_tables(storage))
    steps: list[Callable[[], object]] = []
    if due.merge:
        steps.append(work.merger.merge)
    if due.optimize:
        steps.append(partial(_optimize, storage, work))
    if due.vacuum:
        steps.append(partial(_vacuum, root, options, env))
    failed: list[SiltstoneError] = []
    for step in steps:
        try:
            step()
        except SiltstoneError as error:
            failed.append(error)
    return failed


def _overdue(storage: Storage, options: Options) -> Overdue:
    record, lease = storage.site.manifests.lease_newest()
    with lease:
        view = view_of(record, lease, storage.readers)
        return Overdue.at(view, storage.site, options.memory_bytes_max)


def _plain_tables(storage: Storage) -> PlainTablesOfAnOwner:
    site = storage.site
    return PlainTablesOfAnOwner(
        follow=lambda: Follower(site.files, site.root, site.manifests, storage.readers),
        own_and_take=lambda: False,
        wait_s=0,
    )


def _optimize(storage: Storage, work: Maintainers) -> None:
    """Optimize the tables whose histories ask for it, and no plain table with them."""
    for table in crumbled(storage.site.manifests.newest(), storage.site.tables.reader):
        work.optimizer.optimize(table, by_tiers=True)


def _vacuum(root: Path, options: Options, env: Env) -> Vacuumed:
    for _ in range(VACUUM_ATTEMPTS - 1):
        with suppress(BusyError):
            return follow_vacuum(root, options, env, dry_run=False, grace_s=GRACE_S)
        time.sleep(VACUUM_PAUSE_S)
    return follow_vacuum(root, options, env, dry_run=False, grace_s=GRACE_S)


def main(arguments: Sequence[str]) -> int:
    """Run the child; `arguments` are the store and the options of its owner, as JSON."""
    signal.alarm(TIMEOUT_S)  # ends it wherever it is
    root, options = arguments
    found = replace(Options(**json.loads(options)), tune_malloc=True)
    with suppress(SiltstoneError):
        return 1 if keep_up(Path(root), found) else 0
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
