"""Generated statements that write: over joins, nulls, NaN, decimals, zoned times, nested types.

The tables are `t` and `u` of `COLUMNS`; a column has a name with a blank and a quote in it. Some
statements have comments, a WITH, parameters, and names in quotes or capitals.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Mapping
from decimal import Decimal

KEYS = ("k", "k2")
COLUMNS: Mapping[str, str] = {
    "k": "BIGINT",
    "k2": "VARCHAR",
    "n": "TINYINT",
    "x": "DOUBLE",
    "d": "DECIMAL(8, 2)",
    'the "text"': "VARCHAR",
    "day": "DATE",
    "at_": "TIMESTAMP WITH TIME ZONE",
    "who": "STRUCT(a INTEGER, b VARCHAR)",
    "more": "INTEGER[]",
}
TEXT = '"the ""text"""'

_INTS = ("{t}.n", "{t}.k", "{t}.n + 1", "-{t}.n", "abs({t}.n)", "{t}.k % 5", "7", "NULL", "'3'",
         "length({t}." + TEXT + ")", "coalesce({t}.n, 0)", "{t}.d", "2.5", "len({t}.more)", "100",
         "CASE WHEN {t}.n > 3 THEN 1 END")  # fmt: skip
_DOUBLES = ("{t}.x", "{t}.x / 2", "'nan'", "'-inf'::double", "{t}.n * 1.5", "0", "1e300", "NULL",
            "sqrt(abs({t}.n))", "{t}.d", "-0.0", "'1.25'", "{t}.n")  # fmt: skip
_DECIMALS = ("{t}.d", "{t}.d + 1.25", "{t}.n", "1.239", "NULL", "'0.005'", "{t}.d * 2", "-7")
_TEXTS = ("{t}." + TEXT, "upper({t}." + TEXT + ")", "{t}." + TEXT + " || 'ß''x'", "{t}.n", "NULL",
          "''", "'a\"b'", "{t}.k2", "{t}.day", "E'a\\nb'", "$$it's$$")  # fmt: skip
_DAYS = ("{t}.day", "{t}.day + 1", "'2026-02-28'", "DATE '2024-02-29'", "NULL", "{t}.at_::date")
_TIMES = ("{t}.at_", "{t}.at_ + INTERVAL 90 MINUTE", "'2026-03-29 01:30:00+01'", "NULL",
          "TIMESTAMPTZ '1999-12-31 23:59:59.999999Z'")  # fmt: skip
_STRUCTS = ("{t}.who", "{{'a': {t}.n, 'b': {t}.k2}}", "NULL", "{{'a': 1, 'b': NULL}}",
            "row(2, 'q')")  # fmt: skip
_LISTS = ("{t}.more", "[{t}.n, {t}.k]", "[]", "NULL", "list_append({t}.more, 1)", "[NULL, 3]")
_MISFITS = ("'abc'", "1000", "{t}.k * 1000000", "'2026-13-01'")
_OF_TYPE = dict(
    zip(
        COLUMNS,
        (_INTS, _TEXTS, _INTS, _DOUBLES, _DECIMALS, _TEXTS, _DAYS, _TIMES, _STRUCTS, _LISTS),
        strict=True,
    )
)
_CONDITIONS = (
    "{t}.n > 3", "{t}.x > 1", "{t}.x = 'nan'", "{t}.x <= 0", "{t}." + TEXT + " LIKE 'a%'",
    "{t}.day < DATE '2026-02-01'", "{t}.k IN (1, 2, 5)", "{t}.k2 = 'a'", "{t}.n IS NULL",
    "{t}.who.a = 1", "{t}.more[1] = 2", "{t}.at_ >= '2026-01-15 00:00:00Z'", "{t}.d <> 2.5",
    "EXISTS (SELECT 1 FROM u AS z WHERE z.k = {t}.k)", "{t}.k < (SELECT avg(k) FROM u)",
    "{t}.day IS DISTINCT FROM '2026-01-01'", "true", "{t}." + TEXT + " >= 'b'", "{t}.k = 3",
    "{t}.n BETWEEN 0 AND 4", "{t}.d IN (1, 2.5, NULL)", "NULL", "{t}.k2 <> 'zz'",
)  # fmt: skip


_COMPARED: Mapping[str, tuple[str, ...]] = {
    "k": ("3", "-1", "+2", "2.5", "'2'", "1e0", "NULL", "9223372036854775807"),
    "k2": ("'a'", "'zz'", "''", "'A'", "NULL", "E'a'", "$$b$$"),
    "n": ("4", "-4", "0", "127", "128", "4.5", "NULL", "true"),
    "x": ("1.5", "0", "-0.0", "'nan'", "1e308", "NULL"),
    "d": ("2.5", "1", "-7.25", "0.010", "2.505", "'2.5'", "1e0", "NULL"),
    'the "text"': ("'abc'", "'it''s'", "''", "'ä'", "'Ä'", "NULL", "'it' || chr(39) || 's'"),
    "day": ("'2026-01-01'", "DATE '2026-02-28'", "'2024-2-29'", "NULL"),
    "at_": ("'2026-01-15 12:30:00Z'", "TIMESTAMPTZ '2026-01-01 01:00:00+01'", "NULL"),
}
"""Constants with which columns are compared: a filter of the store's understands most of them."""
_PARAMETERS: Mapping[str, tuple[object, ...]] = {
    "k": (3, 7, 2.0, Decimal(2), None, "2"),
    "k2": ("a", "zz", "it's", None),
    "n": (4, 5, -4, 1000, None, Decimal("4.5")),
    "x": (1.5, 0, float("nan"), float("inf"), Decimal("2.5"), None, 7),
    "d": (Decimal("2.5"), Decimal("0.010"), 1, 2.5, Decimal("1.239"), None),
    'the "text"': ("abc", "it's", "", "a\\", "--", None),
    "day": (dt.date(2026, 1, 1), dt.datetime(2026, 2, 28), "2024-02-29", None),  # noqa: DTZ001
    "at_": (
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        dt.datetime(2026, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))),
        None,
    ),
}


class Generator:
    """Statements by chance, the same for one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._given = list[object]()
        self._forms: tuple[Callable[[], str], ...] = (
            self._values, self._values, self._select, self._select, self._conflict, self._conflict,
            self._update, self._update, self._update_from, self._delete, self._delete,
            self._delete_using, self._merge, self._merge, self._delete_plain, self._delete_plain,
            self._update_given, self._values_given, self._with, self._update_self,
        )  # fmt: skip

    def chance(self, part: float) -> bool:
        return self._random.random() < part

    def statement(self) -> tuple[str, list[object]]:
        """Return a statement, and its parameters."""
        self._given = []
        return self._random.choice(self._forms)(), self._given

    # parts

    def _expression(self, column: str, t: str) -> str:
        if self.chance(0.03):
            return self._random.choice(_MISFITS).format(t=t)
        return self._random.choice(_OF_TYPE[column]).format(t=t)

    def _condition(self, t: str) -> str:
        found = self._random.choice(_CONDITIONS).format(t=t)
        if self.chance(0.3):
            found = f"{found} {self._random.choice(('AND', 'OR'))} {self._condition(t)}"
        return f"NOT ({found})" if self.chance(0.15) else found

    def _some(self) -> list[str]:
        names = [name for name in COLUMNS if name not in KEYS]
        return self._random.sample(names, self._random.randint(1, 4))

    def _sets(self, t: str) -> str:
        return ", ".join(f"{_quoted(name)} = {self._expression(name, t)}" for name in self._some())

    def _constant(self, column: str) -> str:
        choices = [each for each in _OF_TYPE[column] if "{t}" not in each]
        if column == "k":
            return str(self._random.randint(0, 12))
        if column == "k2":
            return self._random.choice(("'a'", "'b'", "'zz'"))
        return self._random.choice(choices).replace("{{", "{").replace("}}", "}")

    def _returning(self, t: str) -> str:
        if not self.chance(0.25):
            return ""
        return self._random.choice((f" RETURNING {t}.k, n, d", " RETURNING *", f" RETURNING {t}.x"))

    def _name(self, column: str, t: str) -> str:
        """Return the name of a column as it may be written."""
        name = self._random.choice((column, column.upper(), _quoted(column)))
        name = _quoted(column) if " " in column else name
        return self._random.choice((name, f"{t}.{name}", f'"{t}" . {name}'))

    def _constant_of(self, column: str) -> str:
        if self.chance(0.3):
            self._given.append(self._random.choice(_PARAMETERS[column]))
            return "?"
        return self._random.choice(_COMPARED[column])

    def _plain(self, t: str, depth: int = 0) -> str:
        """Return a condition of comparisons with constants."""
        if depth < 3 and self.chance(0.45):
            word = self._random.choice(("AND", "OR", "and", "or -- x\n"))
            found = f"{self._plain(t, depth + 1)} {word} {self._plain(t, depth + 1)}"
            return self._random.choice(("{}", "({})", "NOT ({})", "not({})")).format(found)
        column = self._random.choice([*_COMPARED])
        name, form = self._name(column, t), self._random.random()
        if form < 0.15:
            return f"{name} IS {self._random.choice(('', 'NOT '))}NULL"
        if form < 0.35:
            values = [self._constant_of(column) for _ in range(self._random.randint(1, 3))]
            word = self._random.choice(("IN", "IN", "NOT IN"))
            return f"{name} {word} ({', '.join(values)})"
        sign = self._random.choice(("=", "=", "==", "<>", "!=", "<", "<=", ">", ">=", "/* = */ ="))
        found = f"{name} {sign} {self._constant_of(column)}"
        return f"NOT {found}" if self.chance(0.2) else found

    # statements

    def _delete_plain(self) -> str:
        t = self._random.choice(("t", "o"))
        head = "delete from t as o where" if t == "o" else "DELETE FROM t WHERE"
        return f"{head} {self._plain(t)}" + self._returning(t)

    def _update_given(self) -> str:
        names = [name for name in self._some() if name in _PARAMETERS] or ["n"]
        sets = ", ".join(f"{_quoted(name)} = {self._constant_of(name)}" for name in names)
        if self.chance(0.5):
            where = f"K2 = {self._constant_of('k2')} AND k = {self._constant_of('k')}"
        else:
            where = self._plain("t")
        return f"UPDATE t SET {sets} WHERE {where}" + self._returning("t")

    def _update_self(self) -> str:
        on = self._random.choice(("o.k = t.k + 1", "o.k = t.k", "o.k2 = t.k2 AND o.k <> t.k"))
        if self.chance(0.4):
            return f"DELETE FROM t USING t AS o WHERE {on} AND ({self._condition('o')})"
        return f"UPDATE t SET {self._sets('o')} FROM t AS o WHERE {on} AND ({self._plain_of('o')})"

    def _plain_of(self, t: str) -> str:
        """Return a condition whose columns are all written with the name of their table."""
        column = self._random.choice([*_COMPARED])
        return f"{t}.{_quoted(column)} >= {self._constant_of(column)}"

    def _values_given(self) -> str:
        names = [*KEYS, *(name for name in self._some() if name in _PARAMETERS)]
        row = f"({', '.join(self._constant_of(name) for name in names)})"
        how = self._random.choice(("", "OR REPLACE ", "OR IGNORE "))
        return f"INSERT {how}INTO t ({', '.join(map(_quoted, names))}) VALUES {row}" + (
            self._returning("t")
        )

    def _with(self) -> str:
        """Return a statement behind a WITH, whose queries may be called as tables are."""
        of = self._random.choice(("u", "t"))
        given = f"WITH c AS (SELECT * FROM {of} AS u WHERE {self._condition('u')}) /* ; */ "
        main = self._random.choice((
            f"DELETE FROM t USING c WHERE c.k = t.k AND c.k2 = t.k2 AND {self._condition('c')}",
            f"UPDATE t SET {self._sets('c')} FROM c WHERE (c.k, c.k2) = (t.k, t.k2)",
            "DELETE FROM t WHERE k IN (WITH t AS (SELECT k FROM c) SELECT k FROM t)",
            "INSERT OR REPLACE INTO t BY NAME SELECT * FROM c",
            (
                f"MERGE INTO t USING c USING (k, k2) WHEN MATCHED AND {self._condition('c')} THEN"
                f" UPDATE SET {self._sets('c')} WHEN NOT MATCHED THEN INSERT (k, k2, n) VALUES"
                " (k, k2, n)"
            ),
        ))  # fmt: skip
        return given + main

    def _values(self) -> str:
        names = [*KEYS, *self._some()]
        self._random.shuffle(names)
        how = self._random.choice(("", "", "OR REPLACE ", "OR IGNORE "))
        count = 1 if how == "OR REPLACE " else self._random.randint(1, 3)  # see KNOWN
        rows = ", ".join(
            f"({', '.join(self._constant(name) for name in names)})" for _ in range(count)
        )
        return f"INSERT {how}INTO t ({', '.join(map(_quoted, names))}) VALUES {rows}" + (
            self._returning("t")
        )

    def _source(self, names: list[str], *, is_cast: bool = False) -> str:
        t = self._random.choice(("t", "u"))
        keys = {"k": f"{t}.k + {self._random.randint(0, 9)}", "k2": f"{t}.k2"}
        made = {n: keys.get(n) or self._expression(n, t) for n in names}
        if is_cast:  # `excluded` has the types of the table here, and those of the source there
            made = {n: f"CAST({value} AS {COLUMNS[n]})" for n, value in made.items()}
        chosen = [f"{value} AS {_quoted(n)}" for n, value in made.items()]
        return f"SELECT {', '.join(chosen)} FROM {t} WHERE {self._condition(t)}"

    def _select(self) -> str:
        names = [*KEYS, *self._some()]
        by_name = self.chance(0.3)
        columns = " BY NAME" if by_name else f" ({', '.join(map(_quoted, names))})"
        how = self._random.choice(("", "", "OR REPLACE "))
        return f"INSERT {how}INTO t{columns} {self._source(names)}" + self._returning("t")

    def _conflict(self) -> str:
        names = [*KEYS, *self._some()]
        columns = ", ".join(map(_quoted, names))
        head = f"INSERT INTO t ({columns}) {self._source(names, is_cast=True)} ON CONFLICT"
        if self.chance(0.4):
            return f"{head} DO NOTHING" + self._returning("t")
        sets = ", ".join(
            f"{_quoted(name)} = {self._expression(name, self._random.choice(('t', 'excluded')))}"
            for name in self._some()
        )
        where = f" WHERE {self._condition('t')}" if self.chance(0.3) else ""
        return f"{head} (k, k2) DO UPDATE SET {sets}{where}" + self._returning("t")

    def _update(self) -> str:
        t = self._random.choice(("t", "o"))
        alias = "" if t == "t" else " AS o"
        where = f" WHERE {self._condition(t)}" if self.chance(0.9) else ""
        return f"UPDATE t{alias} SET {self._sets(t)}{where}" + self._returning(t)

    def _update_from(self) -> str:
        on = self._random.choice(("u.k = t.k AND u.k2 = t.k2", "u.k = t.k"))
        sets = self._sets(self._random.choice(("t", "u")))
        return f"UPDATE t SET {sets} FROM u WHERE {on} AND ({self._condition('u')})"

    def _delete(self) -> str:
        return f"DELETE FROM t WHERE {self._condition('t')}" + self._returning("t")

    def _delete_using(self) -> str:
        return f"DELETE FROM t AS o USING u WHERE o.k = u.k AND {self._condition('o')}"

    def _merge(self) -> str:
        on = self._random.choice(("USING (k, k2)", "ON t.k = s.k AND t.k2 = s.k2", "ON t.k = s.k"))
        names = [*KEYS, *self._some()]
        values = [f"s.{n}" if n in KEYS else self._expression(n, "s") for n in names]
        insert = f"INSERT ({', '.join(map(_quoted, names))}) VALUES ({', '.join(values)})"
        by_s, by_t = f"UPDATE SET {self._sets('s')}", f"UPDATE SET {self._sets('t')}"
        clauses = [
            f"WHEN MATCHED AND {self._condition('t')} THEN {self._random.choice((by_s, 'DELETE'))}",
            f"WHEN MATCHED THEN {self._random.choice((by_s, 'DO NOTHING', by_t))}",
            f"WHEN NOT MATCHED AND {self._condition('s')} THEN {insert}",
            "WHEN NOT MATCHED AND n IS NOT NULL THEN INSERT (k, k2, n) VALUES (k, k2, n)",
            f"WHEN NOT MATCHED THEN {self._random.choice(('DO NOTHING', insert))}",
            f"WHEN NOT MATCHED BY SOURCE AND {self._condition('t')} AND n < 5 THEN "
            + self._random.choice(("DELETE", by_t)),
        ]
        chosen = [each for each in clauses if self.chance(0.5)] or clauses[:1]
        source = self._random.choice(
            ("u AS s", f"(SELECT * FROM u WHERE {self._condition('u')}) s", "t AS s")
        )
        returning = self._random.choice(("", "", " RETURNING merge_action, t.*", " RETURNING *"))
        if "BY SOURCE" in "".join(chosen):
            returning = ""  # DuckDB 1.5 returns what is in its memory
        return f"MERGE INTO t USING {source} {on} {' '.join(chosen)}{returning}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
