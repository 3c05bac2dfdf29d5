"""A filter answers as SQL does, or is refused in one sentence that says what to change."""

import datetime as dt
import pickle
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from siltstone.engine.filter.filters import filter_of, parse
from siltstone.errors import RequestError

D = Decimal
NAN = float("nan")
ROWS = pa.table(
    {
        "i8": pa.array([1, None, -128, 127], pa.int8()),
        "u64": pa.array([1, 2**64 - 1, None, 0], pa.uint64()),
        "f": pa.array([NAN, -0.0, None, 1.5]),
        "f32": pa.array([0.1, -0.0, None, 1.5], pa.float32()),
        "f16": pa.array([0.5, -0.0, None, 1.5], pa.float16()),
        "s": ["it's", "B\\%", None, "é"],
        "b": [True, None, False, True],
        "ts": pa.array([-1, 1, None, 86_400_000], pa.timestamp("us")),
        "tz": pa.array([-1, 1, None, 86_400_000], pa.timestamp("ns", "Europe/Berlin")),
        "d": pa.array([0, 1, None, -500_000], pa.date32()),
        "dec": pa.array([D("1.25"), None, D("-3"), D("99999999.99")], pa.decimal128(10, 2)),
        "st": [{"x": 1, "y": {"z": "a"}}, None, {"x": None, "y": None}, {"x": 2, "y": {"z": "b"}}],
        "bin": [b"a", None, b"\xab", b""],
        "t": pa.array([1, 2, None, 3], pa.time64("us")),
        "l": [[1], None, [], [2]],
        "odd name.x": [1, 2, 3, None],
    }
)
NAMES = {name: f"c_{n}" for n, name in enumerate(ROWS.schema.names)}

# Each filter beside the ordinals of the rows that match.
ANSWERS = {
    "i8 > 1000": "",
    "i8 < 1000": "023",
    "NOT i8 > 1000": "023",
    "i8 != 1000": "023",
    "i8 < 2.5": "02",
    "2.5 > i8": "02",
    "i8 = 1.0": "0",
    "i8 = 1e0": "0",
    "u64 = 18446744073709551615": "1",
    "u64 > -1": "013",
    "u64 > i8": "",
    "u64 = i8": "0",
    "f = 0": "1",
    "f = -0.0": "1",
    "f != f": "0",
    "f IN (0.0, 1.5)": "13",
    "f32 = 0.1": "0",
    "f32 < 1e300": "013",
    "f16 = 0.5": "0",
    "s = 'it''s'": "0",
    "'it''s' = s": "0",
    "s > 'B'": "013",
    "b": "03",
    "NOT b": "2",
    "b = TRUE": "03",
    "b IS TRUE": "03",
    "b IS NOT TRUE": "12",
    "b IS FALSE": "2",
    "(i8 = 1) IS NULL": "1",
    "i8 IS NULL": "1",
    "i8 IS NOT NULL": "023",
    "l IS NULL": "1",
    "st IS NULL": "1",
    "i8 = NULL": "",
    "NOT (i8 = NULL)": "",
    "i8 = 1 OR NULL": "0",
    "TRUE": "0123",
    "NULL": "",
    "1 = 1 AND 'a' < 'b'": "0123",
    "ts < '1970-01-01'": "0",
    "ts >= TIMESTAMP '1970-01-01 00:00:00.000001'": "13",
    "ts < TIMESTAMP '1970-01-01T00:00:00.0000015'": "01",
    "tz >= TIMESTAMP '1970-01-01 01:00:00+01:00'": "13",
    "tz < '1970-01-01'": "0",
    "ts > d": "3",
    "d > DATE '1970-01-01'": "1",
    "d <= '1970-01-01 12:00'": "03",
    "d = '1970-01-01 12:00'": "",
    "d < '1970-01-02' AND d >= '1000-01-01'": "0",
    "t > '00:00:00.000001'": "13",
    "t = TIME '00:00:00.000002'": "1",
    "dec = 1.25": "0",
    "dec > 1.255": "3",
    "dec = 12345678901234567890": "",
    "dec < 12345678901234567890": "023",
    "dec >= 1": "03",
    "dec > i8": "023",
    "st.x = 1": "0",
    "st.y.z IN ('a', 'b')": "03",
    '"odd name.x" = 2': "1",
    "bin = X'ab'": "2",
    "i8 IN (1, 1000, NULL)": "0",
    "i8 NOT IN (1)": "23",
    "i8 NOT IN (1, NULL)": "",
    "i8 NOT IN (1000)": "023",
    "i8 IN (u64, 127)": "03",
    "d IN ('1970-01-02')": "1",
    "tz IN ('1970-01-01 00:00:00.0864')": "3",
    "dec IN (1.25, 3.333)": "0",
    "i8 BETWEEN -128 AND 1": "02",
    "i8 NOT BETWEEN 1 AND 2": "23",
    "s LIKE 'B%'": "1",
    "s LIKE 'B\\\\\\%'": "1",
    "s LIKE 'B_!%' ESCAPE '!'": "1",
    "s NOT LIKE '%!%' ESCAPE '!'": "03",
    "s NOT LIKE '_'": "01",
    "s ILIKE 'É'": "3",
    "s NOT ILIKE 'IT%'": "13",
    "i8 + 1 > 1": "03",
    "i8 * 1000 > 100000": "3",
    "-i8 = 128": "2",
    "i8 / 2 = 63": "3",
    "i8 / 0 IS NULL": "0123",
    "i8 % 5 = -3": "2",
    "i8 % -1 = 0": "023",
    "f / 0 IS NULL": "0123",
    "dec * 1.5 > i8": "023",
    "dec + 0.005 = 1.255": "0",
    "f32::INT = 1": "3",
    "CAST(i8 AS DECIMAL(5, 2)) = 1": "0",
    "CAST(d AS TEXT) = '1970-01-02'": "1",
    "CAST(ts AS DATE) = '1969-12-31'": "0",
    "lower(s) LIKE 'b%'": "1",
    "upper(s) = 'É'": "3",
    "length(s) = 1": "3",
    "length(bin) = 0": "3",
    "abs(i8) = 128": "2",
    "coalesce(i8, 7) = 7": "1",
    "coalesce(i8, 700) = 700": "1",
    "coalesce(d, '2000-01-01') > '1999-01-01'": "2",
    "starts_with(s, 'it')": "0",
}


@pytest.mark.parametrize(("text", "expected"), ANSWERS.items(), ids=ANSWERS.keys())
def test_a_filter_answers_as_sql_does(text, expected):
    predicate = parse(text, ROWS.schema)
    matching = [n for n, answer in enumerate(predicate.mask(ROWS).to_pylist()) if answer]
    assert "".join(map(str, matching)) == expected
    assert [n for n, row in enumerate(ROWS.to_pylist()) if predicate.matches(row)] == matching
    taken = ROWS.take(pa.array(matching, pa.int64()))
    assert repr(predicate.keep(ROWS).to_pylist()) == repr(taken.to_pylist())  # NaN is not NaN


# Each filter beside words of the sentence that refuses it.
REFUSALS = {
    "i8 = 'a'": "i8 (int8) with the string literal 'a'",
    "s > 1": "s (string) with the integer literal '1'",
    "foo = 1": "no column 'foo'; the columns are i8, u64",
    "I8 = 1": "no column 'I8'",
    "st.q = 1": "no field 'q' in st.q",
    "i8.x = 1": "no field 'x'",
    "i8 = 1; DROP TABLE x": "does not parse",
    "SELECT 1": "does not parse",
    "i8 = 1 ORDER BY i8": "does not parse",
    "i8 AND": "does not parse",
    "": "does not parse",
    "s = 'open": "does not parse",
    "i8 IN (SELECT 1)": "not supported",
    "EXISTS (SELECT 1)": "not supported",
    "foo(i8)": "not supported",
    "count(*) > 1": "not supported",
    "i8 BETWEEN SYMMETRIC 2 AND 1": "not supported",
    "CASE WHEN b THEN 1 END = 1": "not supported",
    "i8 = ?": "not supported",
    "length(s, 'utf8') = 1": "not supported",
    "i8 IN ()": "nothing to choose from",
    "i8": "where a boolean is needed",
    "b AND i8": "i8 is int8",
    "l = l": "cannot compare",
    "ts > tz": "cannot compare",
    "tz > d": "cannot compare",
    "ts > '2020-01-01 00:00:00Z'": "leave the offset out",
    "ts > 'yesterday'": "not a date or timestamp",
    "d > '2020-02-30'": "not a date or timestamp",
    "t > '25:00'": "not a time",
    "s LIKE 'a\\'": "ends in its escape",
    "s LIKE i8": "must be a string literal",
    "i8 LIKE '1'": "LIKE needs a string",
    "f < 1e400": "outside the range of a double",
    "f < 1e999999999": "out of range",
    "i8 + 9223372036854775808 > 1": "outside the range of int64",
    "s + 1 > 1": "+ needs numbers",
    "f % 2 = 0": "% needs whole numbers",
    "bin = X'abc'": "pairs of hex digits",
    "CAST(l AS INT) = 1": "cannot cast",
    "CAST(i8 AS DECIMAL) = 1": "cannot cast",
    "lower(i8) = 'a'": "lower needs a string",
    "abs(s) = 1": "abs needs a number",
    "coalesce(s, 1) = 's'": "cannot choose between",
    "(" * 300 + "b" + ")" * 300: "nested too deeply",
    "NOT " * 600 + "b": "nested too deeply",
    "b" + " + 1" * 200 + " = 1": "nested deeper than",
    "s = '" + "x" * 70_000 + "'": "longer than 65536 bytes",
}


@pytest.mark.parametrize(("text", "words"), REFUSALS.items(), ids=[key[:40] for key in REFUSALS])
def test_what_a_filter_cannot_mean_is_refused_in_one_sentence(text, words):
    with pytest.raises(RequestError) as caught:
        parse(text, ROWS.schema)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["i64 + 1 > 0", "CAST(s AS INT) = 1", "CAST(f AS INT) = 1"])
def test_a_row_that_makes_arithmetic_fail_refuses_the_request(text):
    rows = pa.table({"i64": [2**63 - 1], "s": ["one"], "f": [NAN]})
    with pytest.raises(RequestError, match="cannot be evaluated"):
        parse(text, rows.schema).mask(rows)


def test_a_predicate_names_the_columns_it_reads():
    predicate = parse("st.y.z = 'a' OR NOT (b AND length(s) > i8)", ROWS.schema)
    assert set(predicate.columns) == {"st", "b", "s", "i8"}
    assert parse("1 = 1", ROWS.schema).columns == ()


def test_rows_need_only_the_columns_of_the_filter_and_may_bring_others():
    predicate = parse("i8 > 0", ROWS.schema)
    rows = pa.table({"_seq": [5, 6], "i8": pa.array([1, -1], pa.int8())})
    assert predicate.keep(rows).to_pydict() == {"_seq": [5], "i8": [1]}
    assert predicate.keep(rows.to_batches()[0]).to_pydict() == {"_seq": [5], "i8": [1]}


def test_no_rows_give_an_empty_mask():
    for text in ("i8 > 0", "TRUE"):
        for rows in (ROWS.schema.empty_table(), ROWS.slice(0, 0).combine_chunks()):
            assert parse(text, ROWS.schema).mask(rows).equals(pa.array([], pa.bool_()))


def test_a_mask_spans_all_chunks():
    rows = pa.concat_tables([ROWS, ROWS])
    assert parse("b", ROWS.schema).mask(rows).to_pylist() == [1, 0, 0, 1, 1, 0, 0, 1]


def test_a_row_that_lacks_a_column_has_null_there():
    assert parse("i8 IS NULL", ROWS.schema).matches({"s": "x"})
    assert parse("1 = 1", ROWS.schema).matches({})


def test_a_value_that_does_not_fit_its_column_is_refused():
    with pytest.raises(RequestError, match="does not fit"):
        parse("i8 = 1", ROWS.schema).matches({"i8": 1000})


def test_the_same_text_over_the_same_schema_is_parsed_once():
    text = "i8 = 1 AND s = 'once'"
    assert parse(text, ROWS.schema) is parse(text, pa.schema(list(ROWS.schema)))
    assert parse(text, ROWS.schema) is not parse(
        text, ROWS.schema.append(pa.field("more", pa.int8()))
    )


def test_a_predicate_survives_a_pickle():
    predicate = parse("i8 = 1 AND ts > '1960-01-01'", ROWS.schema)
    again = pickle.loads(pickle.dumps(predicate))
    assert again.mask(ROWS).equals(predicate.mask(ROWS))
    assert again.prefilter(NAMES) == predicate.prefilter(NAMES)


def test_a_long_chain_of_conditions_is_no_deep_one():
    text = " OR ".join(f"i8 = {n % 100 + 2}" for n in range(3_000)) + " OR i8 = 1"
    assert parse(text, ROWS.schema).mask(ROWS).to_pylist() == [True, False, False, False]


def test_a_long_chain_of_conditions_has_as_many_parts():
    found = filter_of(" AND ".join(f"i8 != {n % 100 + 2}" for n in range(2_000)), ROWS.schema)
    assert len(found.parts()) == 2_000


# What Lance may see of a filter: None where Arrow and DataFusion may differ.
PUSHES = {
    "i8 > 5": "`c_0` > 5",
    "5 < i8": "`c_0` > 5",
    "i8 > 5.5": "`c_0` > 5",
    "i8 > 1000": None,
    "s = 'it''s \\'": "`c_5` = 'it''s \\'",
    "f > 1": None,
    "f32 IS NULL": None,
    "st.x = 1": None,
    "bin = X'ab'": "`c_12` = X'ab'",
    "t > '10:00'": "`c_13` > arrow_cast(36000000000, 'Time64(Microsecond)')",
    "i8 = u64": None,
    "i8 + 1 = 2": None,
    "s LIKE 'a%'": None,
    "i8 = 1 AND f > 1": "`c_0` = 1",
    "i8 = 1 OR f > 1": None,
    "NOT (i8 = 1 AND f > 1)": None,
    "NOT (i8 = 1 AND b)": "NOT ((`c_0` = 1) AND (`c_6`))",
    "(i8 = 1 AND f > 1) OR (i8 = 2 AND f > 2)": "(`c_0` = 1) OR (`c_0` = 2)",
    "i8 IN (1, 2, 300)": "`c_0` IN (1, 2)",
    "i8 IN (1, NULL)": "`c_0` IN (1)",
    "i8 NOT IN (1, NULL)": None,
    "b IS TRUE": "`c_6`",
    "b IS NOT TRUE": None,
    "i8 IS NOT NULL": "NOT (`c_0` IS NULL)",
    "ts >= '1970-01-01 00:00:01'": "`c_7` >= arrow_cast(1000000, 'Timestamp(Microsecond, None)')",
    "dec <= 1.5": "`c_10` <= CAST('1.50' AS DECIMAL(10, 2))",
    "TRUE": None,
}


@pytest.mark.parametrize(("text", "expected"), PUSHES.items(), ids=PUSHES.keys())
def test_lance_sees_only_what_it_answers_as_arrow_does(text, expected):
    assert parse(text, ROWS.schema).prefilter(NAMES) == expected


def test_a_column_without_a_physical_name_is_not_pushed():
    predicate = parse("i8 = 1 AND s = 'x'", ROWS.schema)
    assert predicate.prefilter({"i8": "a"}) == "`a` = 1"
    assert predicate.prefilter({}) is None
    assert predicate.prefilter({"i8": "a.b", "s": "a`b"}) is None


def test_the_smallest_int64_is_pushed_as_a_text_because_datafusion_cannot_read_its_digits():
    predicate = parse(f"i > {-(2**63)}", pa.schema({"i": pa.int64()}))
    assert predicate.prefilter({"i": "i"}) == "`i` > arrow_cast('-9223372036854775808', 'Int64')"
    assert predicate.mask(pa.table({"i": [-(2**63), 0]})).to_pylist() == [False, True]


FIELD_I, FIELD_F = pc.field("i8"), pc.field("f")
ARROW_PUSHES = [
    (FIELD_I > 1, "`c_0` > 1"),
    (pc.scalar(1) < FIELD_I, "`c_0` > 1"),
    (FIELD_I > 1000, None),
    ((FIELD_I > 1) & (pc.field("s") == "x"), "(`c_0` > 1) AND (`c_5` = 'x')"),
    ((FIELD_I > 1) & (FIELD_F > 1), "`c_0` > 1"),
    ((FIELD_I > 1) | (FIELD_F > 1), None),
    (FIELD_I.isin([1, 2, 300]), "`c_0` IN (1, 2)"),
    (~FIELD_I.isin([1]), "NOT ((NOT (`c_0` IS NULL)) AND (`c_0` IN (1)))"),
    (FIELD_I.isin([1, None]), "(`c_0` IS NULL) OR (`c_0` IN (1))"),
    (FIELD_I.is_valid(), "NOT (`c_0` IS NULL)"),
    (pc.field("b") & ~(FIELD_I == 1), "(`c_6`) AND (NOT (`c_0` = 1))"),
    (FIELD_F > 1, None),
    (FIELD_F.is_null(nan_is_null=True), None),
    (pc.field("st", "x") > 1, None),
    (pc.field("l").is_null(), None),
    (pc.field(0) > 1, None),
    (FIELD_I + 1 > 1, None),
    (pc.field("u64") > 1, None),  # Arrow casts the column to int64, and what does not fit fails
    (FIELD_I.isin(pa.array([1], pa.int16())), None),
    (
        pc.field("tz") > pa.scalar(5, pa.timestamp("us", "Europe/Berlin")),
        "`c_8` > arrow_cast(5000, 'Timestamp(Nanosecond, Some(\"Europe/Berlin\"))')",
    ),
    (
        pc.field("ts") == pa.scalar(5_000, pa.timestamp("ns")),
        "`c_7` = arrow_cast(5, 'Timestamp(Microsecond, None)')",
    ),
    (pc.field("ts") > pa.scalar(5_001, pa.timestamp("ns")), None),
    (pc.field("s") == "a f b", "`c_5` = 'a f b'"),
]


@pytest.mark.parametrize(("wanted", "expected"), ARROW_PUSHES, ids=str)
def test_lance_sees_of_an_arrow_expression_what_it_answers_as_arrow_does(wanted, expected):
    assert filter_of(wanted, ROWS.schema).prefilter(NAMES) == expected


def test_a_filter_is_pushed_no_deeper_than_lance_can_read():
    deep = shallow = "i8 = 1"
    for _ in range(15):
        deep = f"NOT ({deep} AND b)"
    for _ in range(4):
        shallow = f"NOT ({shallow} AND b)"
    assert parse(deep, ROWS.schema).prefilter(NAMES) is None
    assert parse(f"{deep} AND i8 = 2", ROWS.schema).prefilter(NAMES) == "`c_0` = 2"
    assert parse(shallow, ROWS.schema).prefilter(NAMES) is not None


def test_times_keep_their_nanoseconds():
    at = dt.datetime(2262, 1, 1, tzinfo=dt.UTC)
    schema = pa.schema({"ts": pa.timestamp("ns", "UTC")})
    first = int(at.timestamp()) * 1_000_000_000
    rows = pa.table({"ts": pa.array([first, first + 1], schema.field("ts").type)})
    for text in ("ts > '2262-01-01'", "ts = '2262-01-01 00:00:00.000000001Z'"):
        assert parse(text, schema).mask(rows).to_pylist() == [False, True]
    in_list = parse("ts IN ('2262-01-01 00:00:00.000000001')", schema)
    assert in_list.mask(rows).to_pylist() == [False, True]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("%\\\\", [0, 1]),
        ("\\\\%", [0, 3]),
        ("%\\\\%", [0, 1, 2, 3]),
        ("%b\\\\c", [2]),
        ("_\\\\%c", [2]),
    ],
)
def test_a_backslash_in_a_pattern_is_found_wherever_it_stands(
    pattern: str, found: list[int]
) -> None:
    rows = pa.table({"s": ["\\", "a\\", "b\\c", "\\\nc", "x"]})
    mask = parse(f"s LIKE '{pattern}'", rows.schema).mask(rows)
    assert [n for n, hit in enumerate(mask.to_pylist()) if hit] == found
