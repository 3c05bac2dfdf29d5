"""Instances: the DuckDBs that statements run in, each lent to one statement at a time.

    made ──▶ lent to a statement ──empty and small──▶ kept ──▶ lent to the next one
                     │                                  │
                     └── else ──▶ ended ◀── enough, closed ┘

To make one costs 7 ms, the statement itself often less than one. Memory, threads and temporary
files are those of the instance, so the bounds are those of each statement.

What a statement sees is its own: it has its own connection, and all that the connection has ends
with it (registered tables, settings, prepared statements, variables, the seed of random numbers).
The settings of the instance are locked. A query runs in a transaction that cannot write, so the
catalog keeps what `Statement` put there, which is dropped here: schemas with views. An instance is
kept only if nothing is in its catalog, it holds 32 MiB at most, and nothing is in its folder.

What does not fit in memory goes to a folder that only this user may read. It is there only as long
as a statement is, under the same name each time.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from siltstone.options import SqlBounds
from siltstone.process import extras
from siltstone.process.spares import Spares
from siltstone.query.sql.duckdbs import versions
from siltstone.query.sql.shielded import quoted

if TYPE_CHECKING:
    import duckdb

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_persistent_secrets": "false",  # else each look for one names the home directory
    "home_directory": "nowhere",  # nothing of it is read, and messages would name it
}
_LEFT = """
    PREPARE what_is_left AS
    SELECT 'memory' FROM duckdb_memory() HAVING sum(memory_usage_bytes) > 32 << 20
    UNION ALL SELECT 'schema' FROM duckdb_schemas() WHERE NOT internal
    UNION ALL SELECT 'view' FROM duckdb_views() WHERE NOT internal
    UNION ALL SELECT 'table' FROM duckdb_tables()
    UNION ALL SELECT 'sequence' FROM duckdb_sequences()
"""


class Instance:
    """See the module."""

    def __init__(self, bounds: SqlBounds) -> None:
        """Make one.

        Raises:
            UnavailableError: DuckDB is not installed.
        """
        duckdb = extras.imported("duckdb", "sql()", "DuckDB", "sql")  # half a second
        self._folder = _folder(bounds)
        """Where its temporary files are; "" if there is none."""
        self._has_folder = bool(self._folder)
        self._schemas: list[str] = []
        self._process = os.getpid()
        try:
            self._main = duckdb.connect(":memory:", config=_config(bounds, self._folder))
        except BaseException:
            self._remove_folder()
            raise
        try:
            if self._folder:  # here: DuckDB 1.5 forgets the bound of the configuration
                size = bounds.temp_bytes_max
                self._main.execute(f"SET max_temp_directory_size = '{size}B'")
            self._main.execute("SET enable_external_access = false")
            self._main.execute(_LEFT)
            self._main.execute("SET lock_configuration = true")
        except BaseException:
            self.end()
            raise

    def connection(self) -> duckdb.DuckDBPyConnection:
        """Return a connection for one statement, which closes it."""
        return self._main.cursor()

    def is_lent(self) -> bool:
        """Begin to lend a kept one; say whether its folder could be made again."""
        if self._folder:
            try:
                Path(self._folder).mkdir(mode=0o700)
            except OSError:  # somebody else has the name now, or the disk is full
                return False
            self._has_folder = True
        return True

    def make_schema(self, name: str) -> None:
        """Make a schema for the statement."""
        self._main.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(name)}")
        self._schemas.append(name)

    @property
    def is_of_another_process(self) -> bool:
        """Whether this is the copy of a forked child: its threads, and its files, are not here."""
        return self._process != os.getpid()

    def is_empty(self) -> bool:
        """Take away what the statement was given; say whether the next one will find nothing.

        The connection of the statement is closed.
        """
        try:
            if self._has_folder:
                Path(self._folder).rmdir()
                self._has_folder = False
            while self._schemas:
                self._main.execute(f"DROP SCHEMA IF EXISTS {quoted(self._schemas.pop())} CASCADE")
            return not self._main.execute("EXECUTE what_is_left").fetchall()
        except Exception:  # noqa: BLE001 - files are left, or DuckDB gave up this one: it ends
            return False

    def end(self) -> None:
        """End it, with all that is in its folder; in a forked child nothing."""
        if self.is_of_another_process:
            return
        self._main.close()
        self._remove_folder()

    def _remove_folder(self) -> None:
        if self._has_folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._has_folder = False


def lent(spares: Spares, bounds: SqlBounds) -> Instance:
    """Return an instance for one statement: a kept one, or a new one.

    Raises:
        UnavailableError: DuckDB is not installed.
    """
    while (spare := spares.taken()) is not None:
        assert isinstance(spare, Instance)
        if spare.is_lent():
            return spare
        spare.end()
    return Instance(bounds)


def give_back(instance: Instance, spares: Spares) -> None:
    """Keep an instance whose statement has ended, or end it."""
    if instance.is_of_another_process:
        return
    if instance.is_empty():
        spares.give_back(instance)
    else:
        instance.end()


def _folder(bounds: SqlBounds) -> str:
    """Return a new directory for what does not fit in memory; "" without one."""
    if not bounds.temp_bytes_max:
        return ""
    try:
        return tempfile.mkdtemp(prefix="siltstone-sql-")  # mode 0700: it will hold rows
    except OSError:  # no disk to write to: then there is the memory
        return ""


def _config(bounds: SqlBounds, folder: str) -> dict[str, str | bool | int | float | list[str]]:
    return {
        **_SETTINGS,
        **versions.settings(),
        "memory_limit": f"{bounds.memory_bytes_max}B",
        "temp_directory": folder,
        "threads": bounds.threads_max,
    }
