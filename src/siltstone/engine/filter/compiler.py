"""Compiler of filters: SQL text -> an Arrow expression and the SQL that Lance may evaluate.

One walk over the tree of sqlglot (Postgres dialect: double quotes around names, backslash as the
escape of LIKE, whole numbers divide to whole numbers). Logic is Kleene's. Where Arrow and SQL
differ, SQL holds: `x IN (...)` is null for a null x, division by zero is null.

`_BUILDERS` lists what is supported: a node of any other kind, or one with an argument that its
entry does not name, is refused, never ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.expressions.core import Expression

from siltstone.engine.filter import arithmetic, compare, literals, pushed, typed
from siltstone.engine.filter.compare import Term
from siltstone.engine.filter.literals import Literal, Operator
from siltstone.engine.filter.typed import Value, boolean, null, of_scalar
from siltstone.errors import RequestError, no_such

TEXT_BYTES_MAX = 64 * 1024
DEPTH_MAX = 64
_DIALECT = "postgres"


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """A boolean expression for Arrow, what Lance may see of it, and the columns that it reads."""

    expression: pc.Expression
    push: pushed.Push | None
    columns: frozenset[str]


def compile_filter(text: str, schema: pa.Schema) -> Compiled:
    """Compile a SQL boolean expression over the columns of `schema`.

    Raises:
        RequestError: The text does not parse, is not supported, or does not fit the columns' types.
    """
    with _bounded(text, "the filter", "; use a join instead"):
        return _compiled(_tree(text), schema)


@contextmanager
def _bounded(text: str, what: str, instead: str = "") -> Generator[None]:
    if len(text.encode("utf-8", "surrogatepass")) > TEXT_BYTES_MAX:
        raise RequestError(f"{what} is longer than {TEXT_BYTES_MAX} bytes{instead}")
    try:
        yield
    except RecursionError as error:
        raise RequestError(f"{what} is nested too deeply") from error


def compile_parts(text: str, schema: pa.Schema) -> list[Compiled]:
    """Compile a valid filter in parts: the operands of its outermost ANDs.

    The filter is true where all parts are true.
    """
    return [_compiled(node, schema) for node in _conjuncts(_tree(text))]


def _compiled(node: Expression, schema: pa.Schema) -> Compiled:
    compiler = _Compiler(schema)
    found = compiler.truth(node)
    return Compiled(found.expression, found.push, frozenset(compiler.columns))


def _conjuncts(node: Expression) -> list[Expression]:
    found: list[Expression] = []
    left = [node]
    while left:  # no recursion: a chain leans to the left, as deep as it is long
        node = left.pop()
        if isinstance(node, exp.Paren):
            left.append(node.this)
        elif isinstance(node, exp.And):
            left += [node.expression, node.this]
        else:
            found.append(node)
    return found


def compile_value(text: str, schema: pa.Schema) -> tuple[Value | None, frozenset[str]]:
    """Compile a SQL expression of any type over the columns of `schema`; None is a bare NULL.

    Return also the top-level columns that it reads.

    Raises:
        RequestError: The text does not parse, is not supported, or its types do not fit.
    """
    with _bounded(text, "the expression"):
        compiler = _Compiler(schema)
        found = compiler.term(_tree(text))
    if not isinstance(found, Literal):
        return found, frozenset(compiler.columns)
    return (None if found.value is None else of_scalar(literals.own_scalar(found))), frozenset()


def is_comparison(text: str, names: Sequence[str]) -> bool:
    """Say whether a text parses as a comparison of columns with some of these names.

    Comparisons may be joined by AND, OR and NOT.
    """
    try:
        with _bounded(text, "the filter"):
            found = _tree(text)
            while isinstance(found, exp.Paren | exp.Not):
                found = found.this
            return isinstance(found, exp.Predicate | exp.Connector) and any(
                part.name in names
                for each in found.find_all(exp.Predicate)
                for column in each.find_all(exp.Column)
                for part in column.parts
            )
    except RequestError:
        return False


def _tree(text: str) -> Expression:
    try:
        return cast("Expression", sqlglot.parse_one(text, into=exp.Condition, dialect=_DIALECT))
    except SqlglotError as error:
        details = getattr(error, "errors", None)
        reason = str(details[0]["description"] if details else error).split(" for <class")[0]
        raise RequestError(f"the filter {text[:200]!r} does not parse: {reason}") from error


def _shown(node: Expression) -> str:
    return node.sql(dialect=_DIALECT)[:120]


class _Compiler:
    """One walk; `columns` collects the top-level columns it meets."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.columns: set[str] = set()
        self._depth = 0

    def term(self, node: Expression) -> Term:
        """Compile any supported node."""
        builder, arguments = _BUILDERS.get(type(node), (None, frozenset[str]()))
        given = {name for name, value in node.args.items() if value} - _HARMLESS
        if builder is None or given - arguments:
            raise RequestError(f"{_shown(node)} is not supported in a filter")
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise RequestError(f"the filter is nested deeper than {DEPTH_MAX}")
        found = builder(self, node)
        self._depth -= 1
        return _negated(cast("Value", found)) if node.args.get("negate") else found

    def value(self, node: Expression) -> Value:
        """Compile a node; a literal takes its own type."""
        found = self.term(node)
        return of_scalar(literals.own_scalar(found)) if isinstance(found, Literal) else found

    def truth(self, node: Expression) -> Value:
        """Compile a node that must be boolean."""
        found = self.value(node)
        if not pa.types.is_boolean(found.type):
            raise RequestError(f"{_shown(node)} is {found.type}, where a boolean is needed")
        return found

    def text(self, node: Expression) -> str:
        """Compile a node that must be a string literal."""
        found = self.term(node)
        if not isinstance(found, Literal) or found.kind != "string":
            raise RequestError(f"{_shown(node)} must be a string literal here")
        return str(found.value)


# Names and literals


def _column(walk: _Compiler, node: Expression) -> Value:
    path = [part.name for part in cast("exp.Column", node).parts]
    if isinstance(node.this, exp.Star):
        raise RequestError("* is not supported in a filter")
    return _path(walk, path)


def _dot(walk: _Compiler, node: Expression) -> Value:
    parts = cast("exp.Dot", node).parts
    if not all(isinstance(part, exp.Identifier) for part in parts):
        raise RequestError(f"{_shown(node)} is not supported in a filter")
    return _path(walk, [part.name for part in parts])


def _path(walk: _Compiler, path: Sequence[str]) -> Value:
    name = path[0]
    index = walk.schema.get_field_index(name)
    if index < 0:
        raise RequestError(no_such("column", name, walk.schema.names))
    type_ = walk.schema.field(index).type
    for part in path[1:]:
        if not pa.types.is_struct(type_) or type_.get_field_index(part) < 0:
            raise RequestError(f"no field {part!r} in {'.'.join(path)} ({type_})")
        type_ = type_.field(part).type
    walk.columns.add(name)
    found = pc.field(*path) if len(path) > 1 else pc.field(name)
    if pa.types.is_float16(type_):  # Arrow does not compare half floats
        return Value(pa.float32(), found.cast(pa.float32()))
    column = name if len(path) == 1 else None
    return Value(type_, found, compare.push_truth(type_, column), column)


def _literal(_walk: _Compiler, node: Expression) -> Literal:
    if cast("exp.Literal", node).is_string:
        return Literal("string", node.this)
    return literals.number(node.this)


def _hex_string(_walk: _Compiler, node: Expression) -> Literal:
    try:
        return Literal("bytes", bytes.fromhex(node.this))
    except ValueError as error:
        raise RequestError(f"X'{node.this[:40]}' is not made of pairs of hex digits") from error


# Logic


def _connective(walk: _Compiler, node: Expression) -> Value:
    kind = type(node)
    parts: list[Expression] = []
    while type(node) is kind:  # a chain leans to the left, as deep as it is long
        parts.append(node.expression)
        node = node.this
    parts.append(node)
    values = [walk.truth(part) for part in reversed(parts)]
    join, push = (pc.and_kleene, pushed.All) if kind is exp.And else (pc.or_kleene, pushed.AnyOf)
    found = compare.balanced(join, [value.expression for value in values])
    return boolean(found, push(tuple(value.push for value in values)))


def _is(walk: _Compiler, node: Expression) -> Value:
    if isinstance(node.expression, exp.Null):
        return compare.is_null(walk.value(node.this))
    if not isinstance(node.expression, exp.Boolean):
        raise RequestError(f"{_shown(node)} is not supported in a filter")
    found = walk.truth(node.this)
    if not node.expression.this:
        found = _negated(found)
    answer = typed.first_valid([found.expression, pc.scalar(False)])
    return boolean(answer, pushed.Implied(found.push))


# Comparisons


def _comparison(walk: _Compiler, node: Expression) -> Value:
    operator = _OPERATORS[type(node)]
    return compare.compare(operator, walk.term(node.this), walk.term(node.expression))


def _between(walk: _Compiler, node: Expression) -> Value:
    term = walk.term(node.this)
    low = compare.compare(">=", term, walk.term(node.args["low"]))
    high = compare.compare("<=", term, walk.term(node.args["high"]))
    found = pc.and_kleene(low.expression, high.expression)
    return boolean(found, pushed.All((low.push, high.push)))


def _membership(walk: _Compiler, node: Expression) -> Value:
    choices = [walk.term(choice) for choice in node.expressions]
    if not choices:
        raise RequestError(f"{_shown(node)} has nothing to choose from")
    return compare.membership(walk.term(node.this), choices)


def _like(walk: _Compiler, node: Expression, escape: str = "\\") -> Value:
    pattern = walk.term(node.expression)
    subject = walk.value(node.this)
    if isinstance(pattern, Literal) and pattern.kind == "null":
        return boolean(null())
    is_blind = isinstance(node, exp.ILike)
    return compare.like(subject, walk.text(node.expression), escape, is_blind=is_blind)


def _escape(walk: _Compiler, node: Expression) -> Value:
    escape = walk.text(node.expression)
    inside = node.this
    if not isinstance(inside, exp.Like | exp.ILike) or len(escape) > 1:
        raise RequestError(f"ESCAPE needs a LIKE and one character, not {escape!r}")
    found = _like(walk, inside, escape)
    return _negated(found) if inside.args.get("negate") else found


# Arithmetic, casts, functions


def _arithmetic(walk: _Compiler, node: Expression) -> Value:
    operator = _ARITHMETIC[type(node)]
    return arithmetic.binary(operator, walk.value(node.this), walk.value(node.expression))


def _function(walk: _Compiler, node: Expression) -> Value:
    return arithmetic.function(type(node).__name__, walk.value(node.this))


def _negated(value: Value) -> Value:
    return boolean(pc.invert(value.expression), pushed.Negated(value.push))


_OPERATORS: dict[type[Expression], Operator] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_ARITHMETIC: dict[type[Expression], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}
# `typed` and `safe` say how the dialect divides; `filter_arithmetic` does it the same way.
_HARMLESS = frozenset({"negate", "_type", "typed", "safe"})
_Builder = Callable[[_Compiler, Expression], Term]
_ONE = frozenset({"this"})
_TWO = frozenset({"this", "expression"})

_BUILDERS: dict[type[Expression], tuple[_Builder, frozenset[str]]] = {
    exp.Column: (_column, frozenset({"this", "table", "db", "catalog"})),
    exp.Dot: (_dot, _TWO),
    exp.Literal: (_literal, frozenset({"this", "is_string"})),
    exp.RawString: (lambda _, node: Literal("string", node.this), _ONE),
    exp.HexString: (_hex_string, _ONE),
    exp.Boolean: (lambda _, node: Literal("bool", bool(node.this)), _ONE),
    exp.Null: (lambda _, __: Literal("null", None), frozenset()),
    exp.And: (_connective, _TWO),
    exp.Or: (_connective, _TWO),
    exp.Not: (lambda walk, node: _negated(walk.truth(node.this)), _ONE),
    exp.Paren: (lambda walk, node: walk.term(node.this), _ONE),
    exp.Is: (_is, _TWO),
    exp.Between: (_between, frozenset({"this", "low", "high"})),
    exp.In: (_membership, frozenset({"this", "expressions"})),
    exp.Like: (_like, _TWO),
    exp.ILike: (_like, _TWO),
    exp.Escape: (_escape, _TWO),
    exp.Neg: (lambda walk, node: arithmetic.negative(walk.term(node.this)), _ONE),
    exp.Cast: (
        lambda walk, node: arithmetic.cast(walk.term(node.this), node.args["to"]),
        frozenset({"this", "to"}),
    ),
    exp.Coalesce: (
        lambda walk, node: compare.coalesce(list(map(walk.term, [node.this, *node.expressions]))),
        frozenset({"this", "expressions"}),
    ),
    exp.StartsWith: (
        lambda walk, node: compare.starts_with(walk.value(node.this), walk.text(node.expression)),
        _TWO,
    ),
    **dict.fromkeys((exp.Lower, exp.Upper, exp.Length, exp.Abs), (_function, _ONE)),
    **dict.fromkeys(_OPERATORS, (_comparison, _TWO)),
    **dict.fromkeys(_ARITHMETIC, (_arithmetic, _TWO)),
}
