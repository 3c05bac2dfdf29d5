"""Application: the reads and commits of one Spark application, from all of its processes.

    plan, tasks of a read   ─▶ the oldest seq at which each table was read ┐
    commit                  ─▶ the seqs of its own commits                 ├─ one small file
    commit of an overwrite  ◀─ the seq after which no other may have written ┘

Spark plans, runs and commits in Python processes that share no memory. They do share the driver's
local directory: it has a new name for each application, is deleted when the application ends, and
every Python process that the driver's JVM starts knows it. The file lies there (mode 0600); changes
replace it as a whole, under a lock.

Each table has two seqs. `read` is the oldest seq of a read since the application's last overwrite
of the table, or the seq of that overwrite if there was no read. `ever` is the oldest seq of all
reads: Spark keeps the plan of a frame, and an executor on another machine cannot report here that
it reads with an old plan. Tables are found by id and by name: dropping a table and creating one
with its name is a change of the table with that name.

If a read is forgotten (there are bounds) or lost in a kill, an overwrite conflicts; it never
passes.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from siltstone.bucket_url import is_bucket_url
from siltstone.errors import BusyError, SiltstoneError, UnavailableError

# Where the blocks of this Spark application lie: a folder of a fresh name for each, known to all
# Python processes that its driver starts.
APPLICATION = "SPARK_LOCAL_DIRS"
_BLOCKS = "blockmgr-"  # how Spark names the folder; somebody's own setting is shared by many
_FILE = "siltstone-reads.json"
_LOCK = "siltstone-reads.lock"
_LOCK_S_MAX = 60.0
_FAR = 4_102_444_800  # 2100: who cleans /tmp goes by age, and a forgotten read loses an update
ASK = "application"
_ASKED_MAX = 256
_log = logging.getLogger(__name__)
_asked: dict[str, Application | None] = {}
STORES_MAX = 256
TABLES_MAX = 4096
SPANS_MAX = 1024
NAMES_MAX = 16
FORGOTTEN = f"of which this Spark application knows nothing after {STORES_MAX} stores"

Spans = Sequence[tuple[int, int]]


class _Table(msgspec.Struct, omit_defaults=True):
    names: list[str] = []
    read: int | None = None
    written: int | None = None  # the last overwrite, of a table that was read before
    ever: int | None = None


class _Store(msgspec.Struct, omit_defaults=True):
    tables: dict[int, _Table] = {}
    own: list[tuple[int, int]] = []
    others: int | None = None  # the oldest read of the tables that were forgotten


class _Known(msgspec.Struct, omit_defaults=True):
    stores: dict[str, _Store] = {}
    is_whole: bool = True  # else stores were forgotten


_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(_Known).decode


@dataclass(frozen=True, slots=True)
class Read:
    """A read of one table of one store (see `store_of`) at a seq."""

    store: str
    table: int
    name: str
    seq: int


@dataclass(frozen=True, slots=True)
class Seen:
    """The seq since which a table counts as read (None: never), and the application's commits."""

    since: int | None
    own: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Application:
    """See the module. Any process on the driver's machine, any thread; pickles."""

    folder: str

    @property
    def is_here(self) -> bool:
        """Whether this process sees the file that the driver's processes share."""
        return Path(self.folder).is_dir()

    def tell_read(self, read: Read) -> None:
        """Record that rows of a table are read at a seq.

        Raises:
            UnavailableError, BusyError: It cannot be recorded, so the rows must not be read.
        """
        if _is_news(self._load(), read):
            self._change(lambda known: _note_read(_store(known, read.store), read))

    def tell_commit(self, store: str, seq: int, overwritten: Sequence[tuple[int, str]]) -> None:
        """Record an own commit, and the tables (id and name) whose rows it replaced."""

        def note(known: _Known) -> None:
            mine = _store(known, store)
            mine.own = _with_seq(mine.own, seq)
            for table, name in overwritten:
                _note_overwrite(mine, table, name, seq)

        self._change(note)

    def seen(self, store: str, table: int, name: str, *, ever: bool = False) -> Seen:
        """Return the seq after which a table must not have changed for an overwrite.

        `ever`: reads before the application's last overwrite count, too.

        Raises:
            UnavailableError: The reads of the application are not known.
        """
        known = self._load()
        mine = known.stores.get(store)
        if mine is None:
            return Seen(None if known.is_whole else 0, ())
        found = _of(mine, table, name)
        seqs = [_since(each, ever=ever) for each in found]
        if table not in mine.tables and mine.others is not None:
            seqs.append(mine.others)
        return Seen(min((seq for seq in seqs if seq is not None), default=None), tuple(mine.own))

    def _load(self) -> _Known:
        path = Path(self.folder, _FILE)
        try:
            return _DECODE(path.read_bytes())
        except FileNotFoundError as error:
            if self.is_here:
                return _Known()  # nothing was read or written yet
            raise self._lost(error) from error
        except (OSError, msgspec.DecodeError) as error:
            raise self._lost(error) from error

    def _lost(self, error: Exception) -> UnavailableError:
        return UnavailableError(
            f"the reads of this Spark application are not known ({self.folder}: {error}); give"
            ' overwrites .option("expectSeq", seq), or start the application again'
        )

    def _change(self, change: Callable[[_Known], None]) -> None:
        with self._locked():
            known = self._load()
            change(known)
            fresh = Path(self.folder, f"{_FILE}.{os.getpid()}")
            try:
                fresh.unlink(missing_ok=True)  # of a killed process of the same number
                fresh.touch(mode=0o600, exist_ok=False)
                fresh.write_bytes(_ENCODE(known))
                os.utime(fresh, (_FAR, _FAR))
                fresh.replace(Path(self.folder, _FILE))
            except OSError as error:
                raise self._lost(error) from error

    @contextmanager
    def _locked(self) -> Generator[None]:
        try:
            lock = os.open(Path(self.folder, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._lost(error) from error
        try:
            _acquire(lock, self.folder)
            yield
        finally:
            os.close(lock)


def _acquire(lock: int, folder: str) -> None:
    end = time.monotonic() + _LOCK_S_MAX
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise BusyError(f"{folder}/{_LOCK} is locked for {_LOCK_S_MAX:g} s") from None
            time.sleep(0.005)
        else:
            return


def tell_own(
    application: Application, store: str, seq: int, overwritten: Sequence[tuple[int, str]] = ()
) -> None:
    """Tell an application of its commit (see `tell_commit`), which stands, even if that fails."""
    try:
        application.tell_commit(store, seq, overwritten)
    except SiltstoneError as error:
        _log.warning("it is committed; an overwrite may find the commit foreign: %s", error)


def of_process(environment: Mapping[str, str]) -> Application | None:
    """Return the application whose driver started this process; None: Spark does not tell."""
    first = environment.get(APPLICATION, "").split(",")[0]
    return Application(first) if Path(first).name.startswith(_BLOCKS) else None


def answer(environment: Mapping[str, str]) -> StructType:
    """Return the columns of the frame of `of_session`: the name of one is the driver's folder."""
    return StructType([StructField(environment.get(APPLICATION) or "unknown", StringType())])


def of_session(spark: SparkSession) -> Application | None:
    """Return the application of a session; None: Spark does not tell.

    Only processes that the driver's JVM starts know it, so one of them is asked, once, through the
    columns of a frame whose rows are never read.
    """
    key = _key(spark)
    if key not in _asked:
        frame = spark.read.format("siltstone").option(ASK, "?").load()
        if len(_asked) >= _ASKED_MAX:
            _asked.clear()
        _asked[key] = of_process({APPLICATION: frame.schema.names[0]})
    return _asked[key]


def _key(spark: SparkSession) -> str:
    context = context_of(spark)  # a client has none: its server is an application
    return cast("Any", spark).session_id if context is None else context.applicationId


def context_of(spark: SparkSession) -> SparkContext | None:
    """Return the context of a session; None: it is a client of Spark Connect, which has none."""
    try:
        return spark.sparkContext
    except (PySparkException, AttributeError):
        return None


def store_of(root: str | os.PathLike[str], store_id: str) -> str:
    """Return the identity of a store: id and path, or URL; a copy has the same id."""
    place = str(root)
    return f"{store_id} {place if is_bucket_url(place) else os.path.realpath(place)}"


def _store(known: _Known, key: str) -> _Store:
    if key not in known.stores and len(known.stores) >= STORES_MAX:
        known.stores.pop(next(iter(known.stores)))
        known.is_whole = False
    return known.stores.setdefault(key, _Store(others=None if known.is_whole else 0))


def _of(store: _Store, table: int, name: str) -> list[_Table]:
    return [each for key, each in store.tables.items() if key == table or name in each.names]


def _since(table: _Table, *, ever: bool) -> int | None:
    """Return since when no other application may have written to a table."""
    if ever and table.ever is not None:
        return table.ever
    return table.written if table.read is None else table.read


def _is_news(known: _Known, read: Read) -> bool:
    """Return whether a read would change anything: most are like one before."""
    store = known.stores.get(read.store, _Store())
    table = store.tables.get(read.table, _Table())
    return table.read is None or read.seq < table.read or read.name not in table.names


def _note_read(store: _Store, read: Read) -> None:
    table = _table(store, read.table)
    table.read = _lower(table.read, read.seq)
    table.ever = _lower(table.ever, read.seq)
    if read.name not in table.names:
        table.names = [*table.names, read.name]
    if len(table.names) > NAMES_MAX:
        table.names = table.names[1:]
        store.others = _lower(store.others, table.ever)


def _table(store: _Store, table: int) -> _Table:
    if table not in store.tables and len(store.tables) >= TABLES_MAX:
        gone = store.tables.pop(next(iter(store.tables)))
        if gone.ever is not None:
            store.others = _lower(store.others, gone.ever)
    return store.tables.setdefault(table, _Table())


def _lower(a: int | None, b: int) -> int:
    return b if a is None else min(a, b)


def _note_overwrite(store: _Store, table: int, name: str, seq: int) -> None:
    """Note an overwrite; a table that was never read stays so, and may be overwritten blindly."""
    found = _of(store, table, name)
    if not found and store.others is None:
        return
    evers = [each.ever for each in found if each.ever is not None]
    for key in [key for key, each in store.tables.items() if key != table and name in each.names]:
        del store.tables[key]  # what the name meant before
    mine = _table(store, table)
    mine.names = mine.names or [name]
    mine.read, mine.written = None, seq
    mine.ever = min(evers, default=seq)


def _with_seq(spans: Spans, seq: int) -> list[tuple[int, int]]:
    """Return spans with a seq more; two that touch are one. Over the bound the first ones go."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted([*spans, (seq, seq)]):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged[-SPANS_MAX:]
