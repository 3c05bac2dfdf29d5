"""Worker: a process that lives over many races and does one operation after the other when told.

    python -m tests.races.worker        a JSON line in: {"call": 7, "do": "merge", ...}
                                        a JSON line out: {"call": 7, "value": ...} or {..., "error"}

Calls run at once, each in a thread of its own. It opens a store as its owner when told; merge,
optimize and the like need only the path, and ask nobody.
"""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import siltstone as st
from siltstone import admin, failpoints
from siltstone.local.store import LocalStore
from siltstone.maintenance.merge import merge
from siltstone.open.environment import Env
from siltstone.options import Options
from siltstone.storage.lance.lance_tables import warm_up
from tests.maintenance.stores import EAGER
from tests.races import shop

merge.COMPACT_BELOW_ROWS = 0  # merges hide rows, of parts as small as these


class Worker:
    """What it holds open: a store, and a snapshot from before the race."""

    def __init__(self) -> None:
        self.db: st.Store | None = None
        self.before: st.Snapshot | None = None

    def open(self, root: str, *, read_only: bool = False, **options: object) -> int:
        self.db = st.connect(root, read_only=read_only, **{**shop.OPTIONS, **options})
        self.before = self.db.snapshot()
        return self.before.seq

    def open_thinning(self, root: str) -> int:
        """Open it with a past of a day, of which a vacuum thins all that it may."""
        options = Options(background=False, segment_bytes=65_536, retention_s=86_400)
        self.db = LocalStore.open(Path(root), options, env=Env(bounds=EAGER))
        self.before = self.db.snapshot()
        return self.before.seq

    def close(self) -> None:
        failpoints.disarm()
        if self.before is not None:
            self.before.close()
        if self.db is not None:
            self.db.close()
        self.db = self.before = None

    def arm(self, orders: str, socket: str) -> None:
        failpoints.disarm()
        failpoints.arm(orders, socket=socket)

    def crossings(self) -> dict[str, int]:
        return failpoints.crossings()

    def look(self) -> dict[str, object]:
        """Return the answers before the race, at the tag, and now."""
        assert self.db is not None
        assert self.before is not None
        with self.db.snapshot(tag=shop.TAG) as tagged, self.db.snapshot() as now:
            found = (self.before, tagged, now)
            return dict(
                zip(("before", "tagged", "now"), [shop.answers(s) for s in found], strict=True)
            )

    def serve(self) -> str:
        """Answer over HTTP; return where."""
        assert self.db is not None
        return self.db.serve(port=0).url

    # the operations

    def flush(self, root: str, stamp: int) -> None:
        assert self.db is not None
        self.db.checkpoint()

    def merge(self, root: str, stamp: int) -> None:
        _refuse_deferred(admin.merge_store(root))

    def optimize(self, root: str, stamp: int) -> None:
        found = admin.optimize_store(root, target_rows=shop.TARGET_ROWS, wait_s=0)
        if "pick them up" not in getattr(found, "reason", ""):
            _refuse_deferred(found)  # these owners take over what is left when they flush

    def index(self, root: str, stamp: int) -> None:
        admin.create_index_in(root, "wide", "n", name=f"of {stamp}")

    def vacuum(self, root: str, stamp: int) -> None:
        retention = shop.OPTIONS["retention"]
        admin.vacuum_store(root, dry_run=False, grace_s=0, retention=retention)

    def backup(self, root: str, stamp: int) -> None:
        admin.backup_store(root, shop.backups_of(root), incremental=True)

    def restore(self, root: str, stamp: int) -> None:
        admin.restore(shop.backups_of(root), shop.restored_of(root))

    def repair(self, root: str, stamp: int) -> None:
        admin.repair(root, dry_run=False)

    def vacuum_own(self, root: str, stamp: int) -> None:
        assert self.db is not None
        self.db.vacuum(dry_run=False)

    def attach(self, root: str, stamp: int) -> int:
        assert self.db is not None
        return shop.attach(self.db, stamp).seq

    def ddl(self, root: str, stamp: int) -> int:
        assert self.db is not None
        return shop.ddl(self.db, stamp).seq


def _refuse_deferred(outcome: object) -> None:
    assert not isinstance(outcome, st.Deferred), outcome


def _serve(worker: Worker, request: dict[str, object], say: Callable[[object], None]) -> None:
    call, do = request.pop("call"), str(request.pop("do"))
    try:
        say({"call": call, "value": getattr(worker, do)(**request)})
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer
        kinds = [kind.__name__ for kind in type(error).__mro__]
        say({"call": call, "error": traceback.format_exc(), "kinds": kinds})


def main() -> None:
    worker, lock = Worker(), threading.Lock()
    out = sys.stdout
    sys.stdout = sys.stderr

    def say(value: object) -> None:
        with lock:
            out.write(json.dumps(value, default=str) + "\n")
            out.flush()

    warm_up()
    for line in sys.stdin:
        threading.Thread(target=_serve, args=(worker, json.loads(line), say), daemon=True).start()
    worker.close()


if __name__ == "__main__":
    main()
