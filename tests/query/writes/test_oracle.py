"""Generated statements do what DuckDB does: the same rows, counts and refusals, at every level.

Where they do not, the difference is one of `KNOWN`, and `test_differences.py` has a test of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import siltstone as st
from tests.nightly import by_day
from tests.query.writes.generated import COLUMNS, KEYS, Generator

pytestmark = pytest.mark.filterwarnings("ignore:Arrow output on a DB-API result")  # DuckDB 2
STATEMENTS = by_day(25, 500)
KNOWN = re.compile(
    "matches the row with the key .* twice"  # DuckDB takes one of both
    "|is twice among the rows"  # ON CONFLICT DO UPDATE: DuckDB takes the last one, or the first
    "|would change the key"  # DuckDB deletes the row and inserts it
)
DEFAULTS = {
    "n": "DEFAULT 7",
    "x": "DEFAULT -0.5",
    "d": "DEFAULT 1.25",
    "day": "DEFAULT DATE '2020-02-02'",
    "at_": "DEFAULT TIMESTAMPTZ '2020-02-02 20:20:20Z'",
}
ROWS = [
    "(1, 'a', 1, 1.5, 2.5, 'abc', '2026-01-01', '2026-01-01 00:00:00Z', row(1, 'x'), [2, 3])",
    "(2, 'a', NULL, 'nan', NULL, 'it''s', '2026-02-28', '2026-01-15 12:30:00Z', NULL, [])",
    "(2, 'b', 5, 'inf', 1, NULL, NULL, NULL, {'a': NULL, 'b': NULL}, NULL)",
    "(3, 'zz', -4, NULL, -7.25, '', '2024-02-29', '1999-12-31 23:59:59.999999Z', NULL, [NULL])",
    "(7, 'a', 4, -0.0, 0.01, 'ä', '2026-01-02', NULL, {'a': 1, 'b': 'y'}, [2])",
]


class Twins:
    """The same tables in DuckDB and here."""

    def __init__(self, db: st.Store) -> None:
        self.db, self.peer = db, duckdb.connect()
        (zone,) = db.sql("select current_setting('TimeZone')").fetchall()[0]
        self.peer.execute(f"SET TimeZone = '{zone}'")
        columns = ", ".join(
            f'"{name.replace(chr(34), chr(34) * 2)}" {kind} {DEFAULTS.get(name, "")}'
            for name, kind in COLUMNS.items()
        )
        for table in ("t", "u"):
            made = f"CREATE TABLE {table} ({columns}, PRIMARY KEY ({', '.join(KEYS)}))"
            rows = f"INSERT INTO {table} VALUES {', '.join(ROWS if table == 't' else ROWS[1:4])}"
            for text in (made, rows):
                self.peer.execute(text)
                db.sql(text)

    def refusal(self, text: str, door: Any, given: list[object]) -> str | None:
        """Run a statement in both; return why both refuse it, or that a known difference does.

        Raises:
            AssertionError: One of both does another thing.
        """
        ours, why = self._ours(text, door, given)
        self.peer.execute("BEGIN")
        try:
            theirs = self.peer.execute(text, given or None).to_arrow_table()
        except duckdb.Error as error:
            self.peer.execute("ROLLBACK")
            if why is None and is_of_duckdb(text, error):
                self._copy(door)
            elif why is None:
                pytest.fail(f"DuckDB refuses {text}: {error}")
            return why
        if why is not None and KNOWN.search(why):
            self.peer.execute("ROLLBACK")
            return why
        self.peer.execute("COMMIT")
        assert why is None, f"{text} is refused: {why}"
        assert shown(ours) == shown(theirs), text
        return None

    def _copy(self, door: Any) -> None:
        """Let DuckDB have the rows of a statement that it refused."""
        rows = door.sql("FROM t").to_arrow()
        assert rows.num_columns == len(COLUMNS)
        self.peer.execute("DELETE FROM t; INSERT INTO t FROM rows")

    def _ours(self, text: str, door: Any, given: list[object]) -> tuple[Any, str | None]:
        try:
            return door.sql(text, given or None).to_arrow(), None
        except st.RequestError as error:
            return None, f"{type(error).__name__}: {error}"

    def check(self, text: str, door: Any) -> None:
        for table in ("t", "u"):
            theirs = self.peer.execute(f"FROM {table}").to_arrow_table()
            assert shown(door.sql(f"FROM {table}").to_arrow()) == shown(theirs), text


def is_of_duckdb(text: str, error: duckdb.Error) -> bool:
    """Say whether DuckDB has an error of its own, or refuses a value that no row gets."""
    is_clause = text.startswith("MERGE") or " DO UPDATE " in text
    is_conversion = isinstance(error, duckdb.ConversionException)
    has_query = "DO UPDATE SET clause cannot contain a subquery" in str(error)
    is_1_5_1 = duckdb.__version__ == "1.5.1"  # there each clause sees the columns of both sides
    is_unclear = is_1_5_1 and text.find("MERGE") >= 0 and "Ambiguous reference" in str(error)
    of_its_own = isinstance(error, duckdb.InternalException) or has_query or is_unclear
    return of_its_own or (is_clause and is_conversion)


def shown(table: Any) -> list[str]:
    return sorted(repr([*row.values()]) for row in table.to_pylist())


@pytest.fixture
def twins(own: st.Store) -> Iterator[Twins]:
    found = Twins(own)
    yield found
    found.peer.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_statement_does_what_duckdb_does(twins: Twins, seed: int) -> None:
    chance, done, left = Generator(seed), 0, STATEMENTS
    while left:
        if chance.chance(0.3):
            with twins.db.transaction() as tx:
                for _ in range(min(left, 4)):
                    (text, given), left = chance.statement(), left - 1
                    done += twins.refusal(text, tx, given) is None
                    twins.check(text, tx)
        else:
            (text, given), left = chance.statement(), left - 1
            done += twins.refusal(text, twins.db, given) is None
        twins.check("the statements before", twins.db)
        _move(twins.db, chance)
    assert done > STATEMENTS / 4


def _move(db: st.Store, chance: Generator) -> None:
    """Move rows to another level now and then."""
    if chance.chance(0.2):
        db.checkpoint()
        if chance.chance(0.5):
            db.merge()
