"""Creation: the operations that create a table with its rows, and say what it takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from siltstone.engine.write.transaction import EngineTransaction
from siltstone.errors import TableNotFoundError
from siltstone.formats.types.layouts import plain_schema
from siltstone.lance_namespace.rows.arrow_input import arrow_rows
from siltstone.lance_namespace.rows.statements import table_in
from siltstone.lance_namespace.rows.version_numbers import version_now
from siltstone.lance_namespace.scope import Scope, location_of, seq_shown, shown
from siltstone.lance_namespace.specification import bodies, ids
from siltstone.lance_versions.errors import invalid, unsupported
from siltstone.lance_versions.version_statements import VersionStatements

PRIMARY_KEY = "primary_key"
LANCE_KEY = b"lance-schema:unenforced-primary-key"
_SMALL_ROWS = 100_000  # what Lance calls a small fragment


def create_table(
    scope: Scope, asked: bodies.CreateTableRequest, rows: bytes
) -> tuple[bodies.CreateTableAnswer, int | None]:
    """Create a table with the rows of an Arrow stream."""
    name = ids.table_of(asked)
    mode = _mode(asked)
    if not rows:
        raise invalid("the body is an Arrow IPC stream: a schema, and rows if there are some")
    given = arrow_rows(rows, scope.limits)
    key = _key(asked, given.schema)

    def work(tx: EngineTransaction) -> str:
        if name in tx.tables():
            if mode == "existok":
                return place_of(scope, tx, name)
            if mode == "overwrite":
                tx.drop_table(name)
        tx.define_table(name, plain_schema(given.schema) if given.num_rows else given.schema, key)
        made = table_in(tx, name)
        if given.num_rows:
            (made.insert if key else made.append)(given)
        elif not key:
            VersionStatements(tx).begin_versions(name)
        return _created(scope, tx, name)

    # The store's folder is for a token that was applied before: the table is unknown.
    location, commit = scope.write(work, str(scope.root))
    version = version_now(scope.db.core, name, commit.seq)
    return bodies.CreateTableAnswer(version, location), commit.seq


def place_of(scope: Scope, tx: EngineTransaction, name: str) -> str:
    """Return the folder that a Lance client opens."""
    return location_of(scope, VersionStatements(tx).folder(name))


def _created(scope: Scope, tx: EngineTransaction, name: str) -> str:
    """Return where a created table lies; if the token was applied before, where it is now."""
    if not tx.is_applied:
        return place_of(scope, tx, name)
    with scope.db.transaction() as now:
        return place_of(scope, now, name) if name in now.tables() else str(scope.root)


def _mode(asked: bodies.CreateTableRequest) -> str:
    text = asked.mode or "create"
    mode = text.replace("_", "").lower()
    if mode not in {"create", "existok", "overwrite"}:
        raise invalid(f"mode is create, exist_ok or overwrite, not {text[:80]!r}")
    return mode


def _key(asked: bodies.CreateTableRequest, schema: pa.Schema) -> list[str]:
    """Return the primary key: of the properties, or the schema's own words for it."""
    properties = asked.properties or {}
    others = sorted(properties.keys() - {PRIMARY_KEY})
    if others:
        raise unsupported(f"of the properties of a table only {PRIMARY_KEY}, not {others!r:.200}")
    text = properties.get(PRIMARY_KEY)
    if text is not None:
        return [name.strip() for name in text.split(",") if name.strip()]
    return [field.name for field in schema if (field.metadata or {}).get(LANCE_KEY) == b"true"]


# statistics


def get_table_stats(
    scope: Scope, asked: bodies.TableRequest
) -> tuple[bodies.TableStatsAnswer, int]:
    """Return how many rows a table has, and the size of the version that clients open."""
    name = ids.table_of(asked)
    with shown(scope) as found:
        rows, newest = found[name].count(), found.lance.versions(name).newest
        lengths, nbytes = list[int](), 0
        if newest is not None:
            reader = scope.db.core.tables.reader
            opened = reader.open(newest.pin)
            lengths = [int(opened.live.bools(*span).sum()) for span in opened.spans]
            nbytes = sum(file.size for file in reader.files(newest.pin))
        indexes, fragments = _indexes(scope, name), _fragments(lengths)
        return bodies.TableStatsAnswer(nbytes, rows, indexes, fragments), seq_shown(found)


def _indexes(scope: Scope, name: str) -> int:
    try:
        table = scope.db[name]
    except TableNotFoundError:  # made, or named so, by the transaction that asks
        return 0
    return len(table.indexes())


def _fragments(lengths: Sequence[int]) -> bodies.FragmentStats:
    """Return how long the fragments of a version are, in rows."""
    known = np.array(lengths or [0])
    parts = {f"p{part}": int(np.percentile(known, part)) for part in (25, 50, 75, 99)}
    least, most, mean = int(known.min()), int(known.max()), int(known.mean())
    small = sum(length < _SMALL_ROWS for length in lengths)
    lengths_shown = bodies.FragmentLengths(min=least, max=most, mean=mean, **parts)
    return bodies.FragmentStats(len(lengths), small, lengths_shown)
