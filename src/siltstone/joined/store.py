"""Store: a store that another process owns, joined through the owner's socket.

It answers like `Store`, with the same errors. What it reads is durable; what it writes is committed
by the owner. The owner may go away: then calls raise UnavailableError (commits that were on their
way InDoubtError), and who connects with `join=True` next may become the owner.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import pyarrow as pa

from siltstone.engine.commit.write_set import Receipt
from siltstone.engine.read.moment import as_utc
from siltstone.engine.read.past import LogEntry
from siltstone.engine.write.stage_task import StageTask
from siltstone.engine.write.transaction import run
from siltstone.errors import RequestError
from siltstone.formats.manifest import Record
from siltstone.joined.link import Link
from siltstone.joined.places import Place
from siltstone.joined.snapshot import JoinedSnapshot
from siltstone.joined.tables import JoinedTable
from siltstone.joined.transaction import JoinedTransaction
from siltstone.maintenance.backup.backup import BackedUp, Backuper, Progress
from siltstone.maintenance.compaction.compaction import TARGET_ROWS
from siltstone.maintenance.compaction.compaction_job import Optimized
from siltstone.maintenance.compaction.optimize import WORKERS
from siltstone.maintenance.gc.vacuum import GRACE_S, Vacuumed
from siltstone.maintenance.merge.merge import ATTEMPTS, Deferred, Merged
from siltstone.maintenance.repair.external_appends import Adopted, Adopter
from siltstone.maintenance.repair.quarantine import Quarantine
from siltstone.maintenance.repair.repair_plan import Repaired
from siltstone.maintenance.repair.verify import Verified
from siltstone.maintenance.schedule.status import JobStatus, Status
from siltstone.query.changes.change_task import ChangeTask
from siltstone.query.lance_catalog import WRITES, Answer, Request
from siltstone.query.scan.scan_plan import ROWS_MAX
from siltstone.storage.manifest.manifest_store import ATTEMPTS_MAX, random_token, system_time_us
from siltstone.storage.site import site_of

if TYPE_CHECKING:
    from siltstone.query.sql import sql as queries

T = TypeVar("T")


class JoinedStore:
    """See the module. Any thread; a context manager."""

    def __init__(self, root: Path | None, address: str | Place) -> None:
        """Use `connect(path, join=True)`, or `connect("http://host:port")`: there is no root."""
        self.link = Link(address, root)
        self.path = Path(self.link.hello["path"]) if root is None else root
        self._is_remote = root is None

    def __repr__(self) -> str:
        if self.link.refusal is not None:
            return f"<JoinedStore {self.link.root}, closed>"
        owner = self.link.hello["pid"]
        return (
            f"<JoinedStore {self.link.root}, owned by process {owner}, {len(self.tables())} tables>"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        """Pickle as the path: what comes back is read-only, as of any store."""
        self._require_near("to be pickled")
        return _reopen, (str(self.path),)

    @property
    def is_read_only(self) -> bool:
        """Whether this handle only reads: never."""
        return False

    def _require_near(self, purpose: str) -> None:
        """Refuse what is done with the store's files where they are not.

        Raises:
            RequestError: The directory of the store is not on this machine, under its own name.
        """
        if self._is_remote and not self.link.is_near(self.path):
            raise RequestError(
                f"{purpose} the store's files must be on this machine, at {self.path}; it is"
                f" reached by {self.link.root}"
            )

    def _read(self, verb: str, *arguments: object) -> Any:
        return self.link.read(verb, *arguments)

    def _write(self, verb: str, *arguments: object) -> Any:
        return self.link.write(verb, arguments, {})

    # tables

    def tables(self) -> list[str]:
        """Return the names of all tables, sorted."""
        return self._read("tables")

    def __getitem__(self, name: str) -> JoinedTable:
        """Return the table called `name`.

        Raises:
            TableNotFoundError: There is none.
        """
        return JoinedTable(self, self._read("id_of", name))

    def create_table(
        self, name: str, schema: object, primary_key: str | Sequence[str] = ()
    ) -> JoinedTable:
        """Create a table; without `primary_key` a plain one."""
        return JoinedTable(self, self._write("create_table", name, schema, primary_key))

    def drop_table(self, name: str) -> Receipt:
        """Drop a table; older snapshots still see it."""
        return self._write("drop_table", name)

    def rename_table(self, name: str, new_name: str) -> Receipt:
        """Rename a table; handles of it go on."""
        return self._write("rename_table", name, new_name)

    # transactions

    def transaction(
        self,
        *,
        isolation: str = "snapshot",
        durability: str = "sync",
        token: tuple[str, int] | None = None,
        claim: int | None = None,
    ) -> JoinedTransaction:
        """Begin a transaction over all tables, at the owner."""
        named: dict[str, object] = {"isolation": isolation, "durability": durability}
        named |= {"token": token, "claim": claim}
        return JoinedTransaction(self.link, named)

    def stage(self, table: str, op: str | None = None, *, order_by: str | None = None) -> StageTask:
        """Begin a bulk commit: `run` writes pieces in any process, `attach` commits them."""
        self._require_near("to be staged for,")
        return self.link.ask("stage", table, op, order_by=order_by)

    def run(self, work: Callable[[JoinedTransaction], T], attempts: int = 10) -> T:
        """Run `work(tx)` in a transaction and commit; again after a ConflictError."""
        return cast("T", run(cast("Any", self.transaction), cast("Any", work), attempts))

    def claim(self, app: str, holder: str | None = None, at: int | None = None) -> int:
        """Claim a token app: older users of it are fenced from now on; return the claim."""
        return self._write("claim", app, holder, at)

    def claimed(self, app: str) -> tuple[int, str]:
        """Return the last claim of a token app, and its holder; 0 and "": none."""
        claim, holder = self._read("claimed", app)
        return claim, holder

    def outcome(self, transaction_id: str) -> str:
        """Return "committed", "not committed" or "in doubt" for a transaction's id.

        "not committed" is a promise: a transaction of a joined process that is still open ends,
        and a commit of it that is still on its way is refused.
        """
        return self._read("outcome", transaction_id)

    # snapshots and queries

    def snapshot(
        self, *, seq: int | None = None, at: object = None, tag: str | None = None
    ) -> JoinedSnapshot:
        """Return all tables at one seq: at `seq`, at a moment, at a tag, or now.

        A moment says its zone, as for `Store.snapshot`.
        """
        return JoinedSnapshot(self.link, {"seq": seq, "at": as_utc(at), "tag": tag})

    def lance_catalog(self, operation: str, request: Request, keyed: str) -> Answer:
        """Have the owner answer a request of the Lance Namespace spec; see `LanceCatalog`.

        Raises:
            RequestError: The store's files are not here, where a Lance client looks for them.
        """
        self._require_near("for clients of Lance")
        arguments = (operation, dict(request), keyed)
        if operation in WRITES:
            return self.link.write("lance_catalog", arguments, {})
        return self.link.read("lance_catalog", *arguments)

    def sql(self, statement: str, parameters: queries.Parameters = None) -> queries.Result:
        """Run a query over one fresh snapshot, at the owner."""
        from siltstone.query.sql import sql as queries  # noqa: PLC0415 - it brings all of pandas

        return queries.Result(self._read("sql", statement, parameters).read_all())

    def changes(
        self, since: int = 0, until: int | None = None, tables: Sequence[str] | None = None
    ) -> dict[str, pa.RecordBatchReader]:
        """Return the row versions (since, until] per keyed table; ends at the durable seq.

        The rows of a table are asked for when its reader is first read.
        """
        found = self._read("changes", since, until, tables)
        return {
            name: pa.RecordBatchReader.from_batches(
                schema, self._changes_of(name, since, found["until"])
            )
            for name, schema in found["schemas"].items()
        }

    def _changes_of(self, name: str, since: int, until: int) -> Iterator[pa.RecordBatch]:
        yield from self._read("changes_of", name, since, until)

    def change_tasks(
        self,
        table: str,
        since: int,
        until: int | None = None,
        *,
        begins: bool = False,
        rows_max: int = ROWS_MAX,
    ) -> list[ChangeTask]:
        """Cut the changes (since, until] of a table into tasks; planned by the owner."""
        named: dict[str, object] = {"begins": begins, "rows_max": rows_max}
        return self.link.ask("change_tasks", table, since, until, **named)

    def changes_upto(
        self, table: str, since: int, rows_max: int, until: int | None = None
    ) -> tuple[int, int]:
        """Return the highest seq up to `until` with at most `rows_max` changes, and how many."""
        return self._read("changes_upto", table, since, rows_max, until)

    def changes_from(self, table: str) -> int:
        """Return the lowest seq at which the table can be read and since which changes are kept."""
        return self._read("changes_from", table)

    def log(self, limit: int = 20) -> list[LogEntry]:
        """Return the newest commits, newest first, at most `limit`."""
        return self._read("log", limit)

    def tag(self, name: str, seq: int | None = None, *, lasts: object = None) -> Receipt:
        """Name a seq (default: the newest durable one); its past is kept until `untag`.

        Args:
            name: 1 to 128 characters; a tag of that name moves.
            seq: One that can be read.
            lasts: A duration ("7d") after which the tag is forgotten, unless it is set again.
        """
        return self.link.write("tag", (name, seq), {} if lasts is None else {"lasts": lasts})

    def tags(self) -> dict[str, int]:
        """Return the tags and their seqs."""
        return self._read("tags")

    def untag(self, name: str) -> Receipt:
        """Forget a tag."""
        return self._write("untag", name)

    @property
    def seq(self) -> int:
        """The seq that a new snapshot sees."""
        return self._read("seq")

    @property
    def durable_seq(self) -> int:
        """The last seq that survives a power loss."""
        return self._read("durable_seq")

    # maintenance, at the owner

    def checkpoint(self) -> Record:
        """Flush everything committed so far into Lance; blocks nobody."""
        return self._read("checkpoint")

    def merge(
        self,
        table: str | None = None,
        *,
        attempts: int = ATTEMPTS,
        publish_attempts: int = ATTEMPTS_MAX,
    ) -> Merged | Deferred:
        """Fold what is flushed into the base of one table, or of all."""
        return self.link.ask("merge", table, attempts=attempts, publish_attempts=publish_attempts)

    def optimize(
        self,
        table: str | None = None,
        *,
        target_rows: int = TARGET_ROWS,
        attempts: int = ATTEMPTS,
        publish_attempts: int = ATTEMPTS_MAX,
        workers: int = WORKERS,
    ) -> Optimized | Deferred:
        """Make few large files of many small ones in one table, or in all; no answer changes."""
        return self.link.ask(
            "optimize",
            table,
            target_rows=target_rows,
            attempts=attempts,
            publish_attempts=publish_attempts,
            workers=workers,
        )

    def jobs(self) -> list[JobStatus]:
        """Return the jobs of maintenance: running, dead, and the last that ended."""
        return self._read("jobs")

    def vacuum(self, dry_run: bool = True, *, grace_s: float = GRACE_S) -> Vacuumed:
        """Delete what no kept record, tag or reader needs; by default only say what would go."""
        return self.link.ask("vacuum", dry_run, grace_s=grace_s)

    def verify(self, *, deep: bool = False, on_progress: Progress | None = None) -> Verified:
        """Read what the store is made of and name what is damaged; changes nothing.

        Raises:
            RequestError: `on_progress` is given: open the store with read_only=True to hear it.
        """
        if on_progress is not None:
            raise RequestError("progress is heard in the owner, or with read_only=True")
        return self.link.ask("verify", deep=deep)

    def repair(
        self,
        dry_run: bool = True,
        *,
        deep: bool = False,
        on_progress: Progress | None = None,
    ) -> Repaired:
        """Say what is damaged and what could be done; nobody may have the store open to do it."""
        self._require_near("for this call")
        # By name: it is above this module.
        above = cast("Any", importlib.import_module("siltstone"))
        return above.repair(self.path, dry_run=dry_run, deep=deep, on_progress=on_progress)

    def adopt(self, table: str, dry_run: bool = True) -> Adopted:
        """Commit the rows that strangers appended to a plain table past siltstone."""
        self._require_near("for this call")
        found = self[table].id
        self.checkpoint()
        site = site_of(str(self.path), "scrub")
        aside = Quarantine(site.files, site.root, now_us=system_time_us, new_token=random_token)
        adopter = Adopter(files=site.files, root=site.root, tables=site.tables, quarantine=aside)
        return adopter.run(found, site.manifests.newest(), self.transaction, dry_run=dry_run)

    def backup(
        self,
        directory: str | os.PathLike[str],
        incremental: bool = False,
        *,
        link: bool = False,
        on_progress: Progress | None = None,
    ) -> BackedUp:
        """Copy one consistent snapshot, by this process, after a checkpoint of the owner."""
        self._require_near("for this call")
        self.checkpoint()
        site = site_of(str(self.path), "scrub")
        backuper = Backuper(
            files=site.files,
            root=site.root,
            manifests=site.manifests,
            tables=site.tables.reader,
            now_us=system_time_us,
        )
        target = Path(directory).absolute()
        return backuper.run(target, incremental=incremental, link=link, on_progress=on_progress)

    def status(self) -> Status:
        """Return what the store holds and owes now: seqs, log, memory, tables, the last failure."""
        return self._read("status")

    def close(self) -> None:
        """Leave; a second time does nothing. Open transactions are rolled back."""
        self.link.close()


def _reopen(path: str) -> object:
    # By name: `connect` is above this module.
    return cast("Any", importlib.import_module("siltstone")).connect(path, read_only=True)
