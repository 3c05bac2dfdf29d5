"""Arrow's answer to a filter is SQL's, and what Lance answers of it loses no row.

Filters are drawn together with a plain Python function that answers them: three-valued logic over
exact fractions, written without Arrow. Whole numbers, decimals and times are fractions there (a
time: seconds since 1970), floats are Python's.
"""

import datetime as dt
import math
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import lance
import pyarrow as pa
from hypothesis import event, given, settings
from hypothesis import strategies as st

from siltstone.engine.filter.filters import parse
from tests.nightly import by_day

Row = dict[str, object]
Truth = bool | None

SCHEMA = pa.schema(
    {
        "i8": pa.int8(),
        "i64": pa.int64(),
        "u64": pa.uint64(),
        "dec": pa.decimal128(10, 2),
        "day": pa.date32(),
        "ts": pa.timestamp("ms"),
        "tz": pa.timestamp("ns", "America/New_York"),
        "f": pa.float64(),
        "s": pa.string(),
        "ls": pa.large_string(),
        "b": pa.bool_(),
        "st": pa.struct({"n": pa.int32()}),
    }
)
PHYSICAL = {name: f"Col_{n}" for n, name in enumerate(SCHEMA.names)}
# Steps of the columns whose values are whole multiples of one, and the bounds of the integers.
STEPS = {
    "i8": (Fraction(1), -128, 127),
    "i64": (Fraction(1), -(2**63), 2**63 - 1),
    "u64": (Fraction(1), 0, 2**64 - 1),
    "dec": (Fraction(1, 100), -(10**10) + 1, 10**10 - 1),
    "day": (Fraction(86_400), -700_000, 2_900_000),
    "ts": (Fraction(1, 1000), -60_000_000_000_000, 250_000_000_000_000),
    "tz": (Fraction(1, 10**9), -(2**62), 2**62),
}
NUMBERS, TIMES = ("i8", "i64", "u64", "dec"), ("day", "ts", "tz")
TEXTS = (
    "",
    "a",
    "A",
    "ab",
    "b%",
    "a_b",
    "é",
    "É",
    "it's",
    "back\\slash",
    "\x00",
    "a\nb",
    "z\U0001f600",
)
FLOATS = (0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, 5e-324, 1e308, 127.0)
OPERATORS: dict[str, Callable[[object, object], bool]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


@dataclass(frozen=True)
class Drawn:
    text: str
    answer: Callable[[Row], Truth]

    def __repr__(self) -> str:
        return self.text


# Rows: the integers of the grid columns, the plain values of the others.


def integers(name: str) -> st.SearchStrategy[int]:
    _, low, high = STEPS[name]
    near = [low, low + 1, high - 1, high, *range(max(low, -3), 4)]
    return st.sampled_from(near) | st.integers(low, high)


VALUES: dict[str, st.SearchStrategy[object]] = {
    **{name: integers(name) for name in STEPS},
    "f": st.sampled_from(FLOATS) | st.floats(),
    "s": st.sampled_from(TEXTS),
    "ls": st.sampled_from(TEXTS),
    "b": st.booleans(),
    "st": st.fixed_dictionaries({"n": st.none() | st.integers(-3, 3)}),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | value for name, value in VALUES.items()}),
    min_size=1,
    max_size=12,
)


def table(rows: list[Row]) -> pa.Table:
    return pa.table({f.name: column([row[f.name] for row in rows], f.type) for f in SCHEMA})


def column(values: list[object], type_: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(type_):
        values = [None if value is None else Decimal(value).scaleb(-2) for value in values]
    if pa.types.is_timestamp(type_):
        return pa.array(values, pa.int64()).cast(type_)
    if pa.types.is_date32(type_):
        return pa.array(values, pa.int32()).cast(type_)
    return pa.array(values, type_)


def value_of(row: Row, name: str) -> object:
    found = row[name]
    return found * STEPS[name][0] if name in STEPS and found is not None else found


# Literals: as text and as the value that the text means


@st.composite
def literals(draw: st.DrawFn, name: str) -> tuple[str, object]:
    if name in TIMES:
        return draw(moments(name))
    if name in NUMBERS:
        return draw(numbers(name))
    if name == "f":
        value = draw(st.sampled_from([0.0, 1.5, 1e308, 5e-324, 127.0, 3.0]))
        sign = draw(st.sampled_from(["", "-"]))
        return f"{sign}{value!r}", -value if sign else value
    text = draw(st.sampled_from(TEXTS))
    return quoted(text), text


@st.composite
def numbers(draw: st.DrawFn, name: str) -> tuple[str, Fraction]:
    other = draw(st.sampled_from(NUMBERS))  # often outside of the column's range
    n = draw(integers(name) | integers(other))
    scale = draw(st.sampled_from([0, 0, 1, 2, 3]))
    value = Decimal(n).scaleb(-scale)
    return format(value, "f"), Fraction(value)


@st.composite
def moments(draw: st.DrawFn, name: str) -> tuple[str, Fraction]:
    step = STEPS[name][0]
    nanoseconds = int(draw(integers(name)) * step * 10**9) + draw(st.sampled_from([0, 0, 1, -1]))
    second, rest = divmod(nanoseconds, 10**9)
    offset = draw(st.sampled_from([None, 0, 3600, -19_800])) if name == "tz" else None
    at = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=second + (offset or 0))
    text = at.strftime("%m-%d %H:%M:%S") + (f".{rest:09d}" if rest else "")
    text = f"{at.year:04d}-{text}" + zone(offset)
    is_midnight = offset is None and not rest and second % 86_400 == 0
    if is_midnight and draw(st.booleans()):
        text = text[:10]
    prefix = draw(st.sampled_from(["", "", "TIMESTAMP "]))
    return f"{prefix}{quoted(text)}", Fraction(nanoseconds, 10**9)


def zone(offset: int | None) -> str:
    if offset is None:
        return ""
    hours, minutes = divmod(abs(offset) // 60, 60)
    return f"{'-' if offset < 0 else '+'}{hours:02d}:{minutes:02d}" if offset else "Z"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# Filters

FLIPPED = {"=": "=", "!=": "!=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
COMPARED = (*STEPS, "f", "s", "ls")


@st.composite
def comparisons(draw: st.DrawFn) -> Drawn:
    name, operator = draw(st.sampled_from(COMPARED)), draw(st.sampled_from(list(OPERATORS)))
    text, value = draw(literals(name))
    is_flipped = draw(st.booleans())
    shown = f"{text} {FLIPPED[operator]} {name}" if is_flipped else f"{name} {operator} {text}"
    return Drawn(shown, lambda row: compare(operator, value_of(row, name), value))


@st.composite
def comparisons_of_columns(draw: st.DrawFn) -> Drawn:
    pairs = [("i8", "i64"), ("i64", "u64"), ("u64", "i8"), ("dec", "u64"), ("i8", "dec")]
    left, right = draw(
        st.sampled_from([*pairs, ("s", "ls"), ("f", "i8"), ("f", "f"), ("ts", "ts")])
    )
    operator = draw(st.sampled_from(list(OPERATORS)))
    return Drawn(
        f"{left} {operator} {right}",
        lambda row: compare(operator, value_of(row, left), value_of(row, right)),
    )


def compare(operator: str, left: object, right: object) -> Truth:
    if left is None or right is None:
        return None
    return bool(OPERATORS[operator](left, right))


@st.composite
def memberships(draw: st.DrawFn) -> Drawn:
    name = draw(st.sampled_from(COMPARED))
    choices = draw(st.lists(literals(name) | st.just(("NULL", None)), min_size=1, max_size=4))
    text = f"{name} IN ({', '.join(choice for choice, _ in choices)})"
    return Drawn(
        text, lambda row: either([compare("=", value_of(row, name), value) for _, value in choices])
    )


@st.composite
def ranges(draw: st.DrawFn) -> Drawn:
    name = draw(st.sampled_from(COMPARED))
    (low_text, low), (high_text, high) = draw(literals(name)), draw(literals(name))

    def answer(row: Row) -> Truth:
        value = value_of(row, name)
        return both([compare(">=", value, low), compare("<=", value, high)])

    return Drawn(f"{name} BETWEEN {low_text} AND {high_text}", answer)


@st.composite
def patterns(draw: st.DrawFn) -> Drawn:
    name = draw(st.sampled_from(["s", "ls"]))
    parts = draw(st.lists(st.sampled_from(["%", "_", "a", "b", "É", "\\%", "\\_", "\\\\", "\n"])))
    word = draw(st.sampled_from(["LIKE", "ILIKE"]))
    meanings = {"%": ".*", "_": "."}
    regex = "".join(meanings.get(part) or re.escape(part[-1]) for part in parts)
    flags = re.DOTALL | (re.IGNORECASE if word == "ILIKE" else 0)

    def answer(row: Row) -> Truth:
        return None if row[name] is None else bool(re.fullmatch(regex, row[name], flags))

    return Drawn(f"{name} {word} {quoted(''.join(parts))}", answer)


@st.composite
def sums(draw: st.DrawFn) -> Drawn:
    operator, n = draw(st.sampled_from("+-*/%")), draw(st.integers(-3, 3))
    limit = draw(st.integers(-400, 400))

    def answer(row: Row) -> Truth:
        value = row["i8"]
        return None if value is None else compare(">", calculate(value, operator, n), limit)

    return Drawn(f"i8 {operator} {n} > {limit}", answer)


def calculate(value: int, operator: str, n: int) -> int | None:
    if operator in "/%" and n == 0:
        return None
    plain = {"+": value + n, "-": value - n, "*": value * n}
    return (
        plain[operator]
        if operator in plain
        else int(Fraction(value, n) if operator == "/" else math.fmod(value, n))
    )


NULL_TESTS = st.sampled_from(SCHEMA.names).map(
    lambda name: Drawn(f"{name} IS NULL", lambda row: row[name] is None)
)
TRUTHS = st.sampled_from(
    [
        Drawn("b", lambda row: row["b"]),
        Drawn("b = FALSE", lambda row: None if row["b"] is None else not row["b"]),
        Drawn("st.n > 0", lambda row: compare(">", (row["st"] or {"n": None})["n"], 0)),
        Drawn("coalesce(i8, 7) = 7", lambda row: row["i8"] in (None, 7)),
        Drawn("i8::BIGINT = i64", lambda row: compare("=", row["i8"], row["i64"])),
        Drawn(
            "starts_with(s, 'a')",
            lambda row: None if row["s"] is None else row["s"].startswith("a"),
        ),
        Drawn("length(s) < 2", lambda row: None if row["s"] is None else len(row["s"]) < 2),
        Drawn("NULL", lambda _: None),
        Drawn("TRUE", lambda _: True),
    ]
)
LEAVES = (
    comparisons()
    | comparisons()
    | memberships()
    | ranges()
    | NULL_TESTS
    | TRUTHS
    | comparisons_of_columns()
    | patterns()
    | sums()
)


def both(answers: list[Truth]) -> Truth:
    return False if False in answers else None if None in answers else True


def either(answers: list[Truth]) -> Truth:
    return True if True in answers else None if None in answers else False


def negated(part: Drawn) -> Drawn:
    def answer(row: Row) -> Truth:
        found = part.answer(row)
        return None if found is None else not found

    return Drawn(f"NOT ({part.text})", answer)


def joined(word: str, parts: list[Drawn]) -> Drawn:
    join = both if word == "AND" else either
    text = f" {word} ".join(f"({part.text})" for part in parts)
    return Drawn(text, lambda row: join([part.answer(row) for part in parts]))


def claimed(part: Drawn, claim: str) -> Drawn:
    meant = {"TRUE": True, "FALSE": False, "NULL": None}[claim.removeprefix("NOT ")]
    is_denied = claim.startswith("NOT ")
    return Drawn(f"({part.text}) IS {claim}", lambda row: (part.answer(row) is meant) != is_denied)


CLAIMS = st.sampled_from(["TRUE", "NOT TRUE", "FALSE", "NOT FALSE", "NULL", "NOT NULL"])
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(negated),
        st.builds(joined, st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3)),
        st.builds(claimed, inner, CLAIMS),
    ),
    max_leaves=6,
)


@settings(max_examples=by_day(100, 500))
@given(rows=ROWS, drawn=FILTERS)
def test_a_filter_answers_each_row_as_three_valued_logic_does(rows, drawn):
    found = parse(drawn.text, SCHEMA).mask(table(rows))
    assert found.null_count == 0
    assert found.to_pylist() == [drawn.answer(row) is True for row in rows]


@settings(max_examples=40)
@given(
    rows=ROWS,
    filters=st.lists(FILTERS, min_size=8, max_size=8),
    indexed=st.none() | st.sampled_from([*STEPS, "s"]),
)
def test_lance_keeps_every_row_that_matches_and_arrow_decides_among_them(rows, filters, indexed):
    stored = table(rows).append_column("row", pa.array(range(len(rows))))
    physical = stored.rename_columns([PHYSICAL.get(name, name) for name in stored.column_names])
    with tempfile.TemporaryDirectory() as folder:
        dataset = lance.write_dataset(physical, f"{folder}/rows")
        if indexed is not None:
            dataset.create_scalar_index(PHYSICAL[indexed], "BTREE")
        for drawn in filters:
            predicate = parse(drawn.text, SCHEMA)
            pushed = predicate.prefilter(PHYSICAL)
            event("pushed" if pushed else "not pushed")
            kept = dataset.to_table(filter=pushed)["row"].to_pylist()
            matching = [n for n, row in enumerate(rows) if drawn.answer(row) is True]
            assert set(matching) <= set(kept), pushed
            assert (
                predicate.keep(stored.take(pa.array(kept, pa.int64())))["row"].to_pylist()
                == matching
            )
