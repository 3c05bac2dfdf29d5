"""Matches: which rows of a MERGE are partners, and what the first clause that acts makes of each.

    JOIN        rows of both: their clauses see both, and tell which rows of the source matched
    the rest    of the source: clauses of NOT MATCHED see no column of the table
    ANTI JOIN   the rest of the table: clauses of NOT MATCHED BY SOURCE see none of the source

The join is read once: a condition that draws lots says of each row one thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.local.statements.names import columns_of
from siltstone.local.statements.running import Running
from siltstone.query.sql.shielded import quoted
from siltstone.query.sql.writes.queries import (
    EXISTING,
    ROWS,
    Chosen,
    TypedColumn,
    Values,
    as_written,
    cast,
)
from siltstone.query.sql.writes.statements import Clause, MergeStatement, When

_ROW = "siltstone row"
_ACTS = TypedColumn("siltstone clause", "INTEGER")


@dataclass(frozen=True, slots=True)
class Matches:
    """The clauses of a MERGE over a table with a key, and what they find."""

    run: Running
    statement: MergeStatement
    key: tuple[str, ...]
    fields: pa.Schema
    clauses: list[Clause]

    def found(self, source: pa.Table) -> list[pa.Table]:
        """Return for each clause its rows: the key of what exists, then what it assigns."""
        whens = {each.when for each in self.clauses}
        source = source.append_column(_ROW, pa.array(range(source.num_rows), pa.int64()))
        joined = self._joined(source, whens)
        of = {When.MATCHED: joined}
        if When.NOT_MATCHED in whens:
            matched: Any = pc.is_in(source.column(_ROW), value_set=joined.column(_ROW))
            left = source.filter(pc.invert(matched))
            behind = f"FROM {self._source}"
            of[When.NOT_MATCHED] = self._asked(When.NOT_MATCHED, behind, {ROWS: left})
        if When.NOT_MATCHED_BY_SOURCE in whens:
            of[When.NOT_MATCHED_BY_SOURCE] = self._left(joined)
        return [self._own(of[each.when], place) for place, each in enumerate(self.clauses)]

    def assigned(self, clause: Clause) -> list[str]:
        """Return the columns that a clause assigns."""
        return columns_of([each.column for each in clause.sets], self.fields)

    # where the rows are

    @property
    def _source(self) -> str:
        return f"{quoted(ROWS)} AS {quoted(self.statement.alias)}"

    @property
    def _target(self) -> str:
        return as_written(self.statement.target.text, self.statement.target.alias)

    def _joined(self, source: pa.Table, whens: set[When]) -> pa.Table:
        """Return what is made of the rows of both, and which of either have a partner."""
        also = list[str]()
        if When.NOT_MATCHED in whens:
            also.append(f"{quoted(self.statement.alias)}.{quoted(_ROW)}")
        if When.NOT_MATCHED_BY_SOURCE in whens:
            also += [f"{each} AS {quoted(_key(place))}" for place, each in enumerate(self._keys())]
        using = ", ".join(map(quoted, self.statement.using))
        on = f"ON ({self.statement.on})" if self.statement.on else f"USING ({using})"
        behind = f"FROM {self._target} JOIN {self._source} {on}"
        return self._asked(When.MATCHED, behind, {ROWS: source}, tuple(also))

    def _left(self, joined: pa.Table) -> pa.Table:
        """Return what is made of the rows of the table that have no partner."""
        target, matched = quoted(self.statement.target.name), quoted(EXISTING)
        names = [_key(place) for place in range(len(self.key))]
        on = " AND ".join(
            f"{target}.{quoted(own)} = {matched}.{quoted(name)}"
            for own, name in zip(self.key, names, strict=True)
        )
        behind = f"FROM {self._target} ANTI JOIN {matched} ON ({on})"
        rows = {EXISTING: joined.select(names)}
        return self._asked(When.NOT_MATCHED_BY_SOURCE, behind, rows)

    # what their clauses make of them

    def _asked(
        self, when: When, behind: str, rows: Mapping[str, pa.Table], also: tuple[str, ...] = ()
    ) -> pa.Table:
        query = self._query(when, behind, also)
        return self.run.rows_of(query, self.fields, rows)

    def _query(self, when: When, behind: str, also: tuple[str, ...]) -> Chosen:
        places = [place for place, each in enumerate(self.clauses) if each.when is when]
        tests = {place: f"({self.clauses[place].condition or 'true'})" for place in places}
        cases = " ".join(f"WHEN {test} THEN {place}" for place, test in tests.items())
        types, keys = self.run.columns(self.fields), self._keys(when)
        columns = [_ACTS, *(types[name] for name in self.key[: len(keys)])]
        values = [f"CASE {cases} END", *keys]
        chosen = list[tuple[str, dict[int, str]]]()
        for place, test in tests.items():
            made = {0: str(place), **dict(enumerate(keys, 1))}
            chosen.append((test, made))
            clause = self.clauses[place]
            for name, each in zip(self.assigned(clause), clause.sets, strict=True):
                value = made[len(columns)] = each.value.text
                columns.append(types[name])
                values.append(f"CASE WHEN (CASE {cases} END) = {place} THEN {value} END")
        plain = Values(tuple(columns), tuple(values), behind, self.statement.given)
        return Chosen(plain, tuple(chosen), also)

    def _keys(self, when: When = When.MATCHED) -> list[str]:
        """Return the expressions for the key of a row that exists."""
        if when is When.NOT_MATCHED:
            return []
        types, target = self.run.columns(self.fields), quoted(self.statement.target.name)
        return [cast(f"{target}.{quoted(name)}", types[name].type) for name in self.key]

    def _own(self, found: pa.Table, place: int) -> pa.Table:
        """Return the rows of one clause."""
        clause = self.clauses[place]
        before = [each for each in self.clauses[:place] if each.when is clause.when]
        keys = list(self.key[: len(self._keys(clause.when))])
        flat = found.select(["chosen"]).flatten()
        begin = 1 + len(keys) + sum(len(each.sets) for each in before)
        is_own: Any = pc.equal(flat.column(0), pa.scalar(place, pa.int32()))  # null: of none
        own = flat.filter(is_own)
        return own.select([*range(1, 1 + len(keys)), *range(begin, begin + len(clause.sets))])


def _key(place: int) -> str:
    return f"siltstone key {place}"
