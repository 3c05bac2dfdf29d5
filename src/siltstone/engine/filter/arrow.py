"""Arrow filters: the parts of another engine's expression, and the parts that Lance may see.

This module rebuilds the expression from its pickled form and compares it with the original. If they
differ, Lance gets no filter, which costs time but changes no result.

Lance gets SQL text and no Substrait, though it takes that too: Substrait comes with the types of
all columns, many of which Lance refuses (unsigned, large_string, times, all in lists and structs),
and it does not define `x IN (..)` for a null x: false in Arrow, null in DataFusion.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.filter import compare as filter_compare
from siltstone.engine.filter import literals, pickled, pushed
from siltstone.engine.filter.literals import Operator
from siltstone.engine.filter.pickled import UnreadError
from siltstone.engine.filter.typed import Value, is_text

LIST_MAX = 4_096
_BY_NUMBER = "FieldPath"
_MATCH = 0  # of is_in: a null finds a null in the list, and is false without


@dataclass(frozen=True, slots=True)
class FilterPiece:
    """A part of an expression: the columns that it reads, and the SQL that Lance may evaluate.

    `column` is set if it is only a top-level column, `scalar` if it is a constant. `conjuncts` are
    the operands of its outermost ANDs; none: it is no AND.
    """

    expression: pc.Expression
    columns: frozenset[str] = frozenset()
    push: pushed.Push | None = None
    column: Value | None = None
    scalar: pa.Scalar[Any] | None = None
    conjuncts: tuple[FilterPiece, ...] = ()


Calls: TypeAlias = Mapping[tuple[str, int, int], Callable[..., FilterPiece]]
"""What builds a call, by its name, and its numbers of arguments and of options."""


def read(expression: pc.Expression, schema: pa.Schema) -> FilterPiece:
    """Return the parts of an expression over `schema`; only the whole, if a part is unknown.

    The caller has found that Arrow can evaluate it over the schema.
    """
    found = rebuilt(expression, schema)
    if found is not None:
        return found
    text = str(expression)
    return FilterPiece(expression, frozenset(n for n in schema.names if mentions(text, n)))


def rebuilt(
    expression: pc.Expression, schema: pa.Schema, calls: Calls | None = None
) -> FilterPiece | None:
    """Return an expression rebuilt, some of its calls by `calls`; None: a part is unknown."""
    try:
        form = pickled.pickled(expression)
        found = _whole(*form, schema, _CALLS)
        # By its text as well, if nothing reaches Lance: one with NaN does not equal itself.
        is_same = cast("Any", found.expression).equals(expression)
        if not is_same and (calls is None or str(found.expression) != str(expression)):
            return None
        return found if calls is None else _whole(*form, schema, {**_CALLS, **calls})
    except (pa.ArrowException, UnreadError, LookupError, ValueError, StopIteration):
        return None  # the last three: of a form that Arrow changed


def counts_columns(expression: pc.Expression) -> bool:
    """Return whether an expression may name a column by its number, as `pc.field(2)` does."""
    return _BY_NUMBER in str(expression)


def mentions(text: str, name: str) -> bool:
    """Return whether `text`, the printed form of an Arrow expression, may read the column `name`.

    A name inside a string constant only causes one column too many; a column by its number may be
    any column.
    """
    if not name or _BY_NUMBER in text:
        return True
    before = r"(?<!\w)" if re.match(r"\w", name) else ""
    after = r"(?!\w)" if re.search(r"\w\Z", name) else ""
    return re.search(before + re.escape(name) + after, text) is not None


def _whole(
    entries: Iterable[tuple[str, str]], constants: pa.RecordBatch, schema: pa.Schema, calls: Calls
) -> FilterPiece:
    """Read the pairs in one pass, with a stack of what is open; no recursion, however deep."""
    opened: list[tuple[str, list[FilterPiece], list[pa.Scalar[Any]]]] = [("", [], [])]
    left = iter(entries)
    for key, value in left:
        arguments, options = opened[-1][1:]
        if key == "call":
            opened.append((value, [], []))
        elif key == "end":
            name, arguments, options = opened.pop()
            opened[-1][1].append(_called(calls, name, arguments, options))
        elif key == "options":
            options.append(constants.column(int(value))[0])
        elif key == "literal":
            scalar = constants.column(int(value))[0]
            arguments.append(FilterPiece(pc.scalar(cast("Any", scalar)), scalar=scalar))
        else:
            arguments.append(_field(key, value, left, schema))
    (found,) = opened[0][1]
    return found


def _field(key: str, value: str, left: Iterator[tuple[str, str]], schema: pa.Schema) -> FilterPiece:
    if key == "nested_field_ref":
        path = [next(left)[1] for _ in range(int(value))]
        return FilterPiece(pc.field(*path), frozenset(path[:1]))
    if key != "field_ref":
        raise UnreadError
    found, type_ = pc.field(value), schema.field(value).type
    push = filter_compare.push_truth(type_, value)
    return FilterPiece(found, frozenset([value]), push, Value(type_, found, column=value))


def _called(
    calls: Calls, name: str, arguments: Sequence[FilterPiece], options: Sequence[pa.Scalar[Any]]
) -> FilterPiece:
    builder = calls.get((name, len(arguments), len(options)))
    if builder is None:
        raise UnreadError
    found = builder(*arguments, *options)
    columns = frozenset[str]().union(*(each.columns for each in arguments))
    return replace(found, columns=columns)


def _both(left: FilterPiece, right: FilterPiece) -> FilterPiece:
    conjuncts = tuple(part for each in (left, right) for part in each.conjuncts or (each,))
    push = pushed.All(tuple(part.push for part in conjuncts))
    return FilterPiece(left.expression & right.expression, push=push, conjuncts=conjuncts)


def _either(left: FilterPiece, right: FilterPiece) -> FilterPiece:
    pushes = [
        part
        for each in (left.push, right.push)
        for part in (each.parts if isinstance(each, pushed.AnyOf) else (each,))
    ]
    return FilterPiece(left.expression | right.expression, push=pushed.AnyOf(tuple(pushes)))


def _negated(piece: FilterPiece) -> FilterPiece:
    found: pc.Expression = cast("Any", pc.invert)(piece.expression)
    return FilterPiece(found, push=pushed.Negated(piece.push))


def _is_valid(piece: FilterPiece) -> FilterPiece:
    found: pc.Expression = cast("Any", piece.expression).is_valid()
    return FilterPiece(found, push=pushed.Negated(_null_test(piece)))


def _is_null(piece: FilterPiece, options: pa.Scalar[Any]) -> FilterPiece:
    if options.as_py()["nan_is_null"]:
        return FilterPiece(piece.expression.is_null(nan_is_null=True))
    return FilterPiece(piece.expression.is_null(), push=_null_test(piece))


def _null_test(piece: FilterPiece) -> pushed.Push | None:
    return None if piece.column is None else filter_compare.is_null(piece.column).push


def _is_in(piece: FilterPiece, options: pa.Scalar[Any]) -> FilterPiece:
    found = cast("pa.StructScalar", options)
    if found["null_matching_behavior"].as_py() != _MATCH:
        raise UnreadError
    values = cast("pa.Array[Any]", cast("Any", found["value_set"]).values)
    push = None if piece.column is None else _push_set(piece.column, values)
    return FilterPiece(piece.expression.isin(values), push=push)


def _push_set(column: Value, values: pa.Array[Any]) -> pushed.Push | None:
    if len(values) > LIST_MAX or not _meets(column.type, values.type, is_set=True):
        return None
    known = [literals.literal_of(scalar) for scalar in values if scalar.is_valid]
    if not known:
        return None
    found = pushed.FalseIfNull(filter_compare.membership(column, known).push, str(column.column))
    if len(known) == len(values):
        return found
    return pushed.AnyOf((filter_compare.is_null(column).push, found))


def _chosen(when: FilterPiece, then: FilterPiece, other: FilterPiece) -> FilterPiece:
    """Rebuild a choice; `x IN (..)` of DuckDB 2 is one: null where x is, else what `is_in` says."""
    found: pc.Expression = cast("Any", pc.if_else)(
        when.expression, then.expression, other.expression
    )
    is_null = other.scalar is not None and not other.scalar.is_valid
    push = pushed.Implied(then.push) if is_null else None
    if push is not None and isinstance(then.push, pushed.FalseIfNull):
        is_known = cast("Any", pc.field(then.push.column)).is_valid()
        if cast("Any", when.expression).equals(is_known):
            return FilterPiece(found, push=then.push.part)
    return FilterPiece(found, push=push)


def _compared(sign: Operator, left: FilterPiece, right: FilterPiece) -> FilterPiece:
    found = filter_compare.KERNELS[sign](left.expression, right.expression)
    return FilterPiece(found, push=_push_of(sign, left, right))


def _push_of(sign: Operator, left: FilterPiece, right: FilterPiece) -> pushed.Push | None:
    column = left.column if left.scalar is None else right.column
    scalar = right.scalar if left.scalar is None else left.scalar
    if column is None or scalar is None or not scalar.is_valid:
        return None
    if not (_meets(column.type, scalar.type) or _is_moment_of(column.type, scalar)):
        return None
    constant = literals.literal_of(scalar)
    terms = (column, constant) if left.scalar is None else (constant, column)
    return filter_compare.compare(sign, *terms).push


def _meets(column: pa.DataType, constant: pa.DataType, *, is_set: bool = False) -> bool:
    """Say whether Arrow compares a column with a constant by their values, whatever these are.

    Where it does not, it casts the column's values, and one that does not fit fails the filter:
    that must not depend on whether Lance leaves the row out.
    """
    if not pushed.is_pushable(column):
        return False
    if column == constant or (is_text(column) and is_text(constant)):
        return True
    if not (pa.types.is_integer(column) and pa.types.is_integer(constant)):
        return False
    if is_set:  # Arrow casts the column to the type of the list
        return constant == pa.int64() and column != pa.uint64()
    is_signed = pa.types.is_signed_integer
    return pa.uint64() not in (column, constant) or is_signed(column) == is_signed(constant)


def _is_moment_of(column: pa.DataType, constant: pa.Scalar[Any]) -> bool:
    """Say whether a column of timestamps can hold a constant of another unit: Arrow casts that."""
    kinds = (column, constant.type)
    if not all(map(pa.types.is_timestamp, kinds)):
        return False
    if len({bool(cast("Any", kind).tz) for kind in kinds}) > 1:
        return False
    try:
        constant.cast(column)
    except pa.ArrowInvalid:
        return False
    return True


SIGNS: Mapping[str, Operator] = {
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
"""The signs of comparisons, by the names of Arrow's functions."""
_CALLS: Calls = {
    ("and_kleene", 2, 0): _both,
    ("or_kleene", 2, 0): _either,
    ("invert", 1, 0): _negated,
    ("is_valid", 1, 0): _is_valid,
    ("is_null", 1, 1): _is_null,
    ("is_in", 1, 1): _is_in,
    ("if_else", 3, 0): _chosen,
    **{(name, 2, 0): partial(_compared, sign) for name, sign in SIGNS.items()},
}
