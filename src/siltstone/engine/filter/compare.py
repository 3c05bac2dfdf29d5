"""Comparisons of filters: =, <, IN, LIKE and others, with the SQL that Lance may evaluate."""

from __future__ import annotations

import math
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

Term = Value | Literal

_FLIPPED: dict[Operator, Operator] = {
    "=": "=",
    "!=": "!=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}
_KERNELS: dict[Operator, Callable[[pc.Expression, pc.Expression], pc.Expression]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
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
    return pushed.Atom(str(column), "") if is_truth else None


def is_null(value: Value) -> Value:
    found = value.expression.is_null()
    if value.column is None or not pushed.is_pushable(value.type):
        return boolean(found)
    return boolean(found, pushed.Atom(value.column, " IS NULL"))


def compare(operator: Operator, left: Term, right: Term) -> Value:
    """Compare two terms; a literal takes the type of the other side.

    Raises:
        RequestError: The two cannot be compared.
    """
    for term in (left, right):
        if isinstance(term, Literal) and term.kind == "null":
            return boolean(null())
    if isinstance(left, Literal):
        if isinstance(right, Literal):
            left = of_scalar(filter_literals.own_scalar(left))
        else:
            return _with_literal(_FLIPPED[operator], right, left)
    if isinstance(right, Literal):
        return _with_literal(operator, left, right)
    return _of_values(operator, left, right)


def _of_values(operator: Operator, left: Value, right: Value) -> Value:
    type_ = typed.common_type(left.type, right.type)
    if type_ is None:
        raise RequestError(f"a filter cannot compare {left.type} with {right.type}")
    widened = (typed.widen(left, type_), typed.widen(right, type_))
    return boolean(_KERNELS[operator](*widened))


def _with_literal(operator: Operator, value: Value, literal: Literal) -> Value:
    grid = filter_literals.grid(value.type)
    if grid is not None:
        at = filter_literals.position(literal, value.type)
        if at is None:
            raise _mismatch(value, literal)
        placed = filter_literals.place(operator, at, grid)
        if isinstance(placed, bool):
            return boolean(typed.constant_where_valid(value, placed))
        operator, n = placed
        scalar = filter_literals.scalar(n, value.type)
        text = pushed.grid_literal(n, value.type)
        return _kernel(operator, value, scalar, text)
    scalar, text = _exact_scalar(value, literal)
    if pa.types.is_floating(value.type) and scalar.type != value.type:
        value = Value(scalar.type, value.expression.cast(scalar.type))
    return _kernel(operator, value, scalar, text)


def _kernel(operator: Operator, value: Value, scalar: pa.Scalar[Any], text: str | None) -> Value:
    found = _KERNELS[operator](value.expression, typed.constant(scalar))
    if value.column is None or text is None or not pushed.is_pushable(value.type):
        return boolean(found)
    return boolean(found, pushed.Atom(value.column, f" {operator} {text}"))


def _exact_scalar(value: Value, literal: Literal) -> tuple[pa.Scalar[Any], str | None]:
    """Return a literal beside a type that is no grid, and its pushed text if there is one."""
    type_, held = value.type, literal.value
    if isinstance(held, Decimal) and pa.types.is_floating(type_):
        return _float_scalar(held, type_), None
    if isinstance(held, bool) and pa.types.is_boolean(type_):
        return pa.scalar(held), "TRUE" if held else "FALSE"
    if isinstance(held, str) and typed.is_text(type_):
        return pa.scalar(held, type_), pushed.text_literal(held)
    if isinstance(held, bytes) and typed.is_bytes(type_):
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
    is_bytes = typed.is_bytes(type_) and not pa.types.is_fixed_size_binary(type_)
    return is_grid or typed.is_text(type_) or is_bytes


def _in_set(value: Value, literals: Sequence[Literal]) -> Value:
    has_null = any(literal.kind == "null" for literal in literals)
    known = [literal for literal in literals if literal.kind != "null"]
    members = [member for member in (_member(value, literal) for literal in known) if member]
    found = value.expression.isin(_array([scalar for scalar, _ in members], value.type))
    otherwise = null() if has_null else pc.scalar(False)
    answer = pc.if_else(found, pc.scalar(True), otherwise)
    answer = pc.if_else(value.expression.is_valid(), answer, null())  # Arrow finds null not in it
    push = _push_set(value, [text for _, text in members])
    return boolean(answer, pushed.Implied(push) if has_null else push)


def _array(scalars: Sequence[pa.Scalar[Any]], type_: pa.DataType) -> pa.Array[Any]:
    if not pa.types.is_temporal(type_):
        return pa.array([scalar.as_py() for scalar in scalars], type_)
    # By their integers: nanoseconds do not survive Python's own types.
    numbers = pa.array([cast("Any", scalar).value for scalar in scalars], pa.int64())
    return numbers.cast(pa.int32()).cast(type_) if type_.bit_width == 32 else numbers.cast(type_)


def _member(value: Value, literal: Literal) -> tuple[pa.Scalar[Any], str | None] | None:
    grid = filter_literals.grid(value.type)
    if grid is None:
        return _exact_scalar(value, literal)
    at = filter_literals.position(literal, value.type)
    if at is None:
        raise _mismatch(value, literal)
    placed = filter_literals.place("=", at, grid)
    if isinstance(placed, bool):
        return None
    n = placed[1]
    return filter_literals.scalar(n, value.type), pushed.grid_literal(n, value.type)


def _push_set(value: Value, texts: Sequence[str | None]) -> pushed.Push | None:
    known = [text for text in texts if text is not None]
    if value.column is None or not known or len(known) < len(texts):
        return None
    if not pushed.is_pushable(value.type):
        return None
    return pushed.Atom(value.column, f" IN ({', '.join(known)})")


def like(subject: Value, pattern: str, escape: str, *, is_blind: bool) -> Value:
    """Return `subject LIKE pattern`; `is_blind`: to upper and lower case."""
    if not typed.is_text(subject.type):
        raise RequestError(f"LIKE needs a string, not {subject.type}")
    arrow = _arrow_pattern(pattern, escape)
    if "\\\\" in arrow:
        # Arrow 26 looks for the suffix of '%a\\\\' as it stands, both backslashes, and misses it.
        regex = _regex(arrow)
        found = pc.match_substring_regex(subject.expression, regex, ignore_case=is_blind)
        return boolean(found)
    return boolean(pc.match_like(subject.expression, arrow, ignore_case=is_blind))


def _regex(pattern: str) -> str:
    """Write a LIKE pattern with Arrow's escape as a regular expression of the whole text."""
    found: list[str] = []
    marks = iter(pattern)
    for mark in marks:
        if mark == "\\":
            found.append(re.escape(next(marks)))
        else:
            found.append({"%": ".*", "_": "."}.get(mark) or re.escape(mark))
    return rf"(?s)\A{''.join(found)}\z"


def _arrow_pattern(pattern: str, escape: str) -> str:
    """Write a pattern with Arrow's escape, the backslash."""
    found: list[str] = []
    marks = iter(pattern)
    for mark in marks:
        if mark == escape:
            escaped = next(marks, None)
            if escaped is None:
                raise RequestError(
                    f"the LIKE pattern {pattern[:60]!r} ends in its escape {escape!r}"
                )
            found.append("\\" + escaped if escaped in "%_\\" else escaped)
        else:
            found.append("\\\\" if mark == "\\" else mark)
    return "".join(found)


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
        member = _member(anchor, term)
        if member is not None:
            return of_scalar(member[0])
    return of_scalar(filter_literals.own_scalar(term))
