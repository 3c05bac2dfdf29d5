"""Maintained: a store that no process owns is owned once more, for what is due.

    own ─▶ recover ─▶ remove lapsed tags, commit what optimizers left ─▶ end ─▶ its mirrors catch up

LOCK says from the start that the owner ends, so others may wait for it. Its end has an upkeep
without a bound (`maintenance/schedule/upkeep.py`).
"""

from __future__ import annotations

import contextlib
import logging
import math
from dataclasses import dataclass, replace
from pathlib import Path

from siltstone.engine.recover.replay import view_of
from siltstone.errors import SiltstoneError, in_words
from siltstone.maintenance.backup.sent_records import mirrors_of
from siltstone.maintenance.schedule.overdue import due_steps
from siltstone.maintenance.schedule.upkeep import Ending, Progress
from siltstone.open.environment import Env, Storage
from siltstone.open.owner import own_store
from siltstone.options import Options
from siltstone.storage.site import Site

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Maintained:
    """What was due for a store: the steps that were done, and those that were not.

    A step is "merge", "optimize", "vacuum" or "mirror". Another process that waited for the store
    cut short what was not done, or the log says why it failed.
    """

    done: tuple[str, ...]
    left: tuple[str, ...]


def maintain(root: Path, options: Options, env: Env, on_progress: Progress | None) -> Maintained:
    """Own a store, and end at once; see the module and `admin.maintain_store`."""
    alone = replace(options, background=False, mirror=None)
    parts = own_store(root, alone, env, ends=True)
    hears = on_progress or (lambda _what, _done, _all: None)
    ending = Ending(upkeep=True, seconds=math.inf, on_progress=hears)
    with contextlib.closing(parts):
        assert parts.owner is not None
        parts.owner.vacuum.forget_lapsed_tags()
        if parts.owner.optimizer.has_left():
            parts.owner.optimizer.take_finished()
        parts.close(ending)
    _mirror(Storage.of(root, options, env).site, options, ending)
    return Maintained(tuple(ending.done), tuple(ending.left))


def _mirror(site: Site, options: Options, ending: Ending) -> None:
    """Let the mirrors catch up: the one of the options, and those that a close left behind."""
    owed = {known.url for known in mirrors_of(site.files, site.root) if known.is_owed}
    for url in sorted(owed | ({options.mirror} if options.mirror else set())):
        from siltstone.open.mirroring import Mirroring  # noqa: PLC0415 - few have one

        ending.on_progress("mirror", len(ending.done), len(ending.done) + 1)
        try:
            Mirroring(site, url, options.retention_s).run()
            ending.done.append("mirror")
        except SiltstoneError as error:
            _log.warning("the mirror at %s failed: %s", url, in_words(error))
            ending.left.append("mirror")


def due(root: Path, options: Options, env: Env) -> tuple[str, ...]:
    """Return the steps that are due for a store, by its newest record."""
    storage = Storage.of(root, options, env)
    record, lease = storage.site.manifests.lease_newest()
    with lease:
        view = view_of(record, lease, storage.readers)
        return tuple(due_steps(view, storage.site, options.memory_bytes_max))
