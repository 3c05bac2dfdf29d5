"""Values: constants and parameters in what is taken out of a statement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from siltstone.errors import RequestError
from siltstone.query.sql.taken.tokens import kind_of

Parameters: TypeAlias = Sequence[object] | Mapping[str, object] | None
_DIGITS_MAX = 300


def constant(node: Any, values: Iterator[object], what: str) -> object:
    """Return a constant, or the value of a parameter. A cast changes nothing: the column decides.

    Raises:
        RequestError: It is something else.
    """
    from sqlglot import exp  # noqa: PLC0415 (0.3 s)

    if isinstance(node, exp.Placeholder | exp.Parameter):
        return _next_of(values, what)
    if isinstance(node, exp.Cast):
        return constant(node.this, values, what)
    if isinstance(node, exp.Array | exp.Struct):
        return _nested(node, values, what)
    if isinstance(node, exp.Boolean | exp.Null):
        return bool(node.this) if isinstance(node, exp.Boolean) else None
    if isinstance(node, exp.Neg):
        return -_number(node.this, what)
    is_text = isinstance(node, exp.Literal) and node.is_string
    return str(node.this) if is_text else _number(node, what)


def _next_of(values: Iterator[object], what: str) -> object:
    for value in values:
        return value
    raise RequestError(f"the parameters of {what} are ?, $1 and $name")


def _nested(node: Any, values: Iterator[object], what: str) -> object:
    """Return a list, or an object like {'title': 2}."""
    from sqlglot import exp  # noqa: PLC0415 (0.3 s)

    if isinstance(node, exp.Array):
        return [constant(each, values, what) for each in node.expressions]
    return {each.this.name: constant(each.expression, values, what) for each in node.expressions}


def _number(node: Any, what: str) -> int | float:
    from sqlglot import exp  # noqa: PLC0415 (0.3 s)

    if isinstance(node, exp.Literal) and not node.is_string:
        is_whole = node.this.isdecimal() and len(node.this) <= _DIGITS_MAX
        return int(node.this) if is_whole else float(node.this)
    raise RequestError(
        f"an argument of {what} is a constant or a parameter; got {node.sql('duckdb')!r:.200}"
    )


class TakenValues:
    """The parameters of a statement: `?` by their place, `$1` and `$name` by what follows."""

    def __init__(self, tokens: list[Any], parameters: Parameters, what: str) -> None:
        self._parameters, self._what = parameters, what
        self._given: Any = parameters
        if isinstance(parameters, Mapping):  # DuckDB takes $Name and $name for one
            self._given = {name.lower(): value for name, value in parameters.items()}
        self._keys = dict[int, int | str]()
        """By the place of the token: which one it is."""
        marks = 0
        for place, token in enumerate(tokens):
            if kind_of(token) == "PLACEHOLDER":
                self._keys[place] = marks
                marks += 1
            elif kind_of(token) == "PARAMETER" and place + 1 < len(tokens):
                text = tokens[place + 1].text
                is_number = text.isdecimal() and not isinstance(parameters, Mapping)
                self._keys[place] = int(text) - 1 if is_number else text.lower()
        self._has_marks = marks > 0

    def within(self, first: int, last: int) -> Iterator[object]:
        """Yield the values of the parameters between two tokens."""
        return (self._of(key) for place, key in self._keys.items() if first < place < last)

    def _of(self, key: int | str) -> object:
        try:
            return self._given[key]
        except (TypeError, KeyError, IndexError):
            shown = f"${key}" if isinstance(key, str) else f"number {key + 1}"
            raise RequestError(f"the parameter {shown} of {self._what} was not given") from None

    def left(self, spans: Sequence[tuple[int, int]]) -> Parameters:
        """Return the parameters without those that only what is taken out has."""
        inside, outside = set[int | str](), set[int | str]()
        for place, key in self._keys.items():
            is_inside = any(first < place < last for first, last in spans)
            (inside if is_inside else outside).add(key)
        taken = inside - outside
        if not taken or self._parameters is None:
            return self._parameters
        if isinstance(self._parameters, Mapping):
            given = self._parameters.items()
            return {name: value for name, value in given if name.lower() not in taken} or None
        kept = [(key, v) for key, v in enumerate(self._parameters) if key not in taken]
        if self._has_marks:
            return [value for _, value in kept] or None
        return {str(key + 1): value for key, value in kept} or None
