"""Random filters over every type keep after a merge what they kept before it."""

from __future__ import annotations

import pyarrow.compute as pc
from hypothesis import event, given, settings
from hypothesis import strategies as some

import siltstone as st
from siltstone.engine.filter.filters import filter_of
from tests.nightly import by_day
from tests.query.filter_cases import OPERATORS, VALUES, scalars, texts
from tests.query.test_filter_matrix import ROWS, kept

NAMES = [name for name in VALUES if name in ROWS["base"].column_names]
MERGED = ("base", "mixed", "altered", "indexed", "plain", "plain_altered")


@some.composite
def leaves(draw: some.DrawFn) -> pc.Expression:
    name = draw(some.sampled_from(NAMES))
    column, known = pc.field(name), scalars(name)
    kind = draw(some.sampled_from(["compare", "compare", "flipped", "isin", "null", "valid"]))
    if kind in ("compare", "flipped"):
        compare, constant = (
            draw(some.sampled_from([*OPERATORS.values()])),
            draw(some.sampled_from(known)),
        )
        return compare(column, constant) if kind == "compare" else compare(constant, column)
    if kind == "isin":
        places = draw(some.lists(some.integers(0, 9), max_size=4))
        return column.isin(ROWS["base"][name].combine_chunks().take(places or [5]))
    return column.is_null() if kind == "null" else column.is_valid()


EXPRESSIONS = some.recursive(
    leaves(),
    lambda inner: some.one_of(
        inner.map(pc.invert),
        some.builds(lambda a, b: a & b, inner, inner),
        some.builds(lambda a, b: a | b, inner, inner),
    ),
    max_leaves=8,
)
TEXTS = some.recursive(
    some.sampled_from([text for name in NAMES for text in texts(name)]),
    lambda inner: some.one_of(
        inner.map("NOT ({})".format),
        some.builds("({}) AND ({})".format, inner, inner),
        some.builds("({}) OR ({})".format, inner, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=by_day(30, 100))
@given(wanted=EXPRESSIONS | TEXTS)
def test_a_filter_keeps_in_every_level_what_arrow_keeps_in_memory(db: st.Store, wanted) -> None:
    event(
        "pushed" if filter_of(wanted, ROWS["base"].schema).prefilter({n: n for n in NAMES}) else "-"
    )
    for table in ("active", *MERGED):
        found = sorted(db[table].to_arrow(["id"], wanted)["id"].to_pylist())
        assert found == kept(ROWS[table], wanted), table
