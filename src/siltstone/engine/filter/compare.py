"""Comparisons of filters: =, <, IN, LIKE and others, with the SQL that Lance may evaluate."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.filter import literals as filter_literals
from siltstone.engine.filter import pushed, typed
from siltstone.engine.filter.literals import Literal, Operator
from siltstone.engine.filter.typed import Value, boolean, null, of_scalar
from siltstone.errors import RequestError
from siltstone.formats.rows import storage_values
from siltstone.text.spelled import is_binary

Term = Value | Literal
VALUES_MAX = 1_024
"""Of longer lists it is not remembered which values a column may have."""

FLIPPED: dict[Operator, Operator] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
KERNELS: dict[Operator, Callable[[pc.Expression, pc.Expression], pc.Expression]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def balanced(
    join: Callable[[pc.Expression, pc.Expression], pc.Expression], parts: Sequence[pc.Expression]
) -> pc.Expression:
    """Join expressions as a balanced tree, because Arrow evaluates a tree recursively."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return join(balanced(join, parts[:middle]), balanced(join, parts[middle:]))


def push_truth(type_: pa.DataType, column: str | None) -> pushed.Push | None:
    """Return the push of a boolean column that stands alone."""
    is_truth = column is not None and pa.types.is_boolean(type_)
    return pushed.Atom(str(column), "", frozenset([True])) if is_truth else None


def is_null(value: Value) -> Value:
    return boolean(value.expression.is_null(), _atom(value, " IS NULL"))


def _atom(
    value: Value,
    rest: str | None,
    values: Sequence[pa.Scalar[Any]] | None = None,
    bounds: pushed.KeySpan | None = None,
) -> pushed.Push | None:
    """Return the push of a column and what follows it; None if there is nothing to say.

    Args:
        value: What stands there, maybe a column.
        rest: SQL; None, or of a type that Lance does not compare alike: not for Lance.
        values: What the column must be one of.
        bounds: Between what it is.
    """
    if value.column is None:
        return None
    text = rest if pushed.is_pushable(value.type) else None
    known = None
    if values is not None and len(values) <= VALUES_MAX and not pa.types.is_floating(value.type):
        known = frozenset(storage_values(pa.array(values, values[0].type)) if values else ())
    if text is None and known is None and bounds is None:
        return None
    return pushed.Atom(value.column, text, known, bounds)


def compare(sign: Operator, left: Term, right: Term) -> Value:
    """Compare two terms; a literal takes the type of the other side.

    Raises:
        RequestError: The two cannot be compared.
    """
    if _is_null_literal(left) or _is_null_literal(right):
        return boolean(null())
    if isinstance(left, Literal) and isinstance(right, Literal):
        left = of_scalar(filter_literals.own_scalar(left))
    if isinstance(left, Literal):
        left, right, sign = right, left, FLIPPED.get(sign, sign)
    left, right = typed.of_uuid(left, right), typed.of_uuid(right, left)
    value = cast("Value", left)
    if isinstance(right, Literal):
        return _with_literal(sign, value, right)
    type_ = typed.common_type(value.type, right.type)
    if type_ is None:
        raise RequestError(f"a filter cannot compare {value.type} with {right.type}")
    return boolean(KERNELS[sign](typed.widen(value, type_), typed.widen(right, type_)))


def _with_literal(sign: Operator, value: Value, literal: Literal) -> Value:
    placed = _placed(sign, value, literal)
    if isinstance(placed, bool):
        push = None if placed else _atom(value, None, ())
        return boolean(typed.constant_where_valid(value, placed), push)
    sign, scalar, text = placed
    left = value.expression
    if pa.types.is_floating(value.type) and scalar.type != value.type:
        left = left.cast(scalar.type)
    rest = None if text is None else f" {sign} {text}"
    bounds = _bounds(sign, scalar, value.type)
    push = _atom(value, rest, [scalar] if sign == "=" else None, bounds)
    return boolean(KERNELS[sign](left, typed.constant(scalar)), push)


def _bounds(sign: Operator, scalar: pa.Scalar[Any], column: pa.DataType) -> pushed.KeySpan | None:
    """Return between which storage values a column is, of types that keys have."""
    kind: Any = scalar.type
    is_bytes = typed.is_text(kind) or is_binary(kind)
    if sign not in ("<", "<=", ">", ">=") or not (is_bytes or _is_whole(kind)):
        return None
    end: Any = storage_values(pa.array([scalar], kind))[0]
    if pa.types.is_fixed_size_binary(column) and len(end) != column.byte_width:
        return None  # no key of the column is so long
    is_in, is_high = sign in ("<=", ">="), sign in ("<", "<=")
    if not is_bytes and not is_in:  # whole numbers: the next one is in it
        end, is_in = end + (-1 if is_high else 1), True
    if is_high:
        return pushed.KeySpan(None, end, is_all=True, has_high=is_in)
    return pushed.KeySpan(end, None, is_all=True, has_low=is_in)


def _is_whole(kind: pa.DataType) -> bool:
    is_number = pa.types.is_integer(kind) or pa.types.is_decimal128(kind)
    return is_number or pa.types.is_date32(kind) or pa.types.is_timestamp(kind)


def _placed(
    sign: Operator, value: Value, literal: Literal
) -> tuple[Operator, pa.Scalar[Any], str | None] | bool:
    """Return an equal comparison with a constant of the other type, and its pushed text.

    A bool if the result is the same for all values of the type.
    """
    grid = filter_literals.grid(value.type)
    if grid is None:
        return sign, *_exact_scalar(value, literal)
    at = filter_literals.position(literal, value.type)
    if at is None:
        raise _mismatch(value, literal)
    placed = filter_literals.place(sign, at, grid)
    if isinstance(placed, bool):
        return placed
    sign, n = placed
    return sign, filter_literals.scalar(n, value.type), pushed.grid_literal(n, value.type)


def _exact_scalar(value: Value, literal: Literal) -> tuple[pa.Scalar[Any], str | None]:
    """Return a literal in a type that is no grid, and its pushed text if there is one."""
    type_, held = value.type, literal.value
    if isinstance(held, Decimal) and pa.types.is_floating(type_):
        return _float_scalar(held, type_), None
    if isinstance(held, bool) and pa.types.is_boolean(type_):
        return pa.scalar(held), "TRUE" if held else "FALSE"
    if isinstance(held, str) and typed.is_text(type_):
        return pa.scalar(held, type_), pushed.text_literal(held)
    if isinstance(held, bytes) and is_binary(type_):
        if pa.types.is_fixed_size_binary(type_):  # a literal may be of another size
            return pa.scalar(held, pa.binary()), None
        return pa.scalar(held, type_), pushed.bytes_literal(held, type_)
    raise _mismatch(value, literal)


def _float_scalar(held: Decimal, type_: pa.DataType) -> pa.Scalar[Any]:
    wide = float(held)
    if math.isinf(wide):
        raise RequestError(f"the number {held} in the filter is outside the range of a double")
    with np.errstate(over="ignore"):
        narrow = float(np.float32(wide))
    # `f32 = 0.1` means the float nearest to 0.1; what only a double can hold is compared as one.
    is_narrow = pa.types.is_float32(type_) and math.isfinite(narrow)
    return pa.scalar(narrow, type_) if is_narrow else pa.scalar(wide, pa.float64())


def _mismatch(value: Value, literal: Literal) -> RequestError:
    what = value.column or "an expression"
    return RequestError(
        f"a filter cannot compare {what} ({value.type}) with the {literal.kind} literal"
        f" {str(literal.value)[:60]!r}"
    )


def membership(term: Term, choices: Sequence[Term]) -> Value:
    """Return `term IN choices`."""
    literals = [choice for choice in choices if isinstance(choice, Literal)]
    if isinstance(term, Value) and len(literals) == len(choices) and _is_set_type(term.type):
        return _in_set(term, literals)
    found = [compare("=", term, choice) for choice in choices]
    expression = balanced(pc.or_kleene, [value.expression for value in found])
    return boolean(expression, pushed.AnyOf(tuple(value.push for value in found)))


def _is_set_type(type_: pa.DataType) -> bool:
    # Not floats: Arrow's set holds NaN and tells -0.0 from 0.0, its `=` does neither.
    is_grid = filter_literals.grid(type_) is not None and not pa.types.is_decimal256(type_)
    is_bytes = is_binary(type_) and not pa.types.is_fixed_size_binary(type_)
    return is_grid or typed.is_text(type_) or is_bytes


def _in_set(value: Value, literals: Sequence[Literal]) -> Value:
    known = [literal for literal in literals if literal.kind != "null"]
    has_null = len(known) < len(literals)
    members = [m for literal in known if not isinstance(m := _placed("=", value, literal), bool)]
    scalars = [scalar for _, scalar, _ in members]
    found = value.expression.isin(pa.array(scalars, value.type))
    otherwise = null() if has_null else pc.scalar(False)
    answer = pc.if_else(found, pc.scalar(True), otherwise)
    answer = pc.if_else(value.expression.is_valid(), answer, null())  # Arrow finds null not in it
    texts = [text for _, _, text in members if text is not None]
    is_whole = texts and len(texts) == len(members)
    push = _atom(value, f" IN ({', '.join(texts)})" if is_whole else None, scalars)
    return boolean(answer, pushed.Implied(push) if has_null else push)


def like(subject: Value, pattern: str, escape: str, *, is_blind: bool) -> Value:
    """Return `subject LIKE pattern`; `is_blind`: to upper and lower case."""
    if not typed.is_text(subject.type):
        raise RequestError(f"LIKE needs a string, not {subject.type}")
    marks = _marks(pattern, escape)
    arrow = "".join(
        "\\" + mark if is_plain and mark in "%_\\" else mark for mark, is_plain in marks
    )
    if "\\\\" not in arrow:
        return boolean(pc.match_like(subject.expression, arrow, ignore_case=is_blind))
    # Arrow 26 looks for the suffix of '%a\\\\' as it stands, both backslashes, and misses it.
    regex = "".join(
        re.escape(mark) if is_plain else {"%": ".*", "_": "."}[mark] for mark, is_plain in marks
    )
    regex = rf"(?s)\A{regex}\z"
    return boolean(pc.match_substring_regex(subject.expression, regex, ignore_case=is_blind))


def _marks(pattern: str, escape: str) -> list[tuple[str, bool]]:
    """Return the characters of a LIKE pattern; False: one that stands for others, % or _."""
    found: list[tuple[str, bool]] = []
    marks = iter(pattern)
    for mark in marks:
        if mark != escape:
            found.append((mark, mark not in "%_"))
            continue
        escaped = next(marks, None)
        if escaped is None:
            raise RequestError(f"the LIKE pattern {pattern[:60]!r} ends in its escape {escape!r}")
        found.append((escaped, True))
    return found


def starts_with(subject: Value, prefix: str) -> Value:
    if not typed.is_text(subject.type):
        raise RequestError(f"starts_with needs a string, not {subject.type}")
    return boolean(pc.starts_with(subject.expression, prefix))


def coalesce(terms: Sequence[Term]) -> Value:
    """Return the first of `terms` that is not null, in their common type."""
    anchor = next((term for term in terms if isinstance(term, Value)), None)
    values = [_typed(term, anchor) for term in terms if not _is_null_literal(term)]
    if not values:
        return boolean(null())
    type_ = values[0].type
    for value in values[1:]:
        common = typed.common_type(type_, value.type)
        if common is None:
            raise RequestError(f"coalesce cannot choose between {type_} and {value.type}")
        type_ = common
    return Value(type_, typed.first_valid([typed.widen(value, type_) for value in values]))


def _is_null_literal(term: Term) -> bool:
    return isinstance(term, Literal) and term.kind == "null"


def _typed(term: Term, anchor: Value | None) -> Value:
    if isinstance(term, Value):
        return term
    if anchor is not None and filter_literals.is_on_line(term, anchor.type):
        placed = _placed("=", anchor, term)
        if not isinstance(placed, bool):
            return of_scalar(placed[1])
    return of_scalar(filter_literals.own_scalar(term))
