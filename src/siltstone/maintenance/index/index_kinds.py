"""Index kinds: the kinds of indexes, with their column types and options. Pure.

btree    equality, ranges and IN; any type but lists, structs and vectors
bitmap   the same, for columns with few values
fts      words of a text, for searches
vector   nearest neighbours, for searches
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast, get_args

import pyarrow as pa

from siltstone.choices import Encoding, IndexKind, Metric
from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.errors import RequestError, no_such, not_one_of
from siltstone.formats.manifest import IndexOption
from siltstone.storage.tables.encodings import RQ_SIZE_UNIT, fits_rq, sub_vectors_of

KINDS: tuple[str, ...] = get_args(IndexKind)
INDEXES_MAX = 32
NAME_CHARACTERS_MAX = 128
_METRICS: tuple[str, ...] = get_args(Metric)
_ENCODINGS: tuple[str, ...] = get_args(Encoding)
_PARTITIONS_MAX = 65_536
_OPTIONS: Mapping[str, Mapping[str, type]] = {
    "btree": {},
    "bitmap": {},
    "fts": {
        "language": str,
        "base_tokenizer": str,
        "stem": bool,
        "lower_case": bool,
        "remove_stop_words": bool,
        "ascii_folding": bool,
        "with_position": bool,
    },
    "vector": {"metric": str, "encoding": str, "partitions": int, "sub_vectors": int},
}


def refuse_taken(table: str, known: Sequence[str], name: str) -> None:
    """Refuse one more index of a table that has those `known`.

    Raises:
        RequestError: It has one of that name, or as many as it may have.
    """
    if name in known:
        raise RequestError(f"{table!r} has an index {name!r} already; drop it, or choose a name")
    if len(known) >= INDEXES_MAX:
        raise RequestError(
            f"{table!r} has {len(known)} indexes, the maximum; drop one to add {name!r}"
        )


def column_of(table: str, table_schema: TableSchema, column: str) -> pa.Field:
    """Return a column of a table by its name.

    Raises:
        RequestError: There is none.
    """
    names = table_schema.arrow.names
    if column not in names:
        raise RequestError(f"{table!r} has {no_such('column', column, names)}")
    return table_schema.arrow.field(column)


def check_kind(kind: object, column: str, type_: pa.DataType) -> IndexKind:
    """Return `kind` if a column of this type may have such an index.

    Raises:
        RequestError: There is no such kind, or it does not fit the type.
    """
    if kind not in KINDS:
        raise RequestError(not_one_of("the kind of an index", kind, KINDS))
    found = cast("IndexKind", kind)
    if not _FITS[found](type_):
        raise RequestError(
            f"column {column!r} is {type_}; a {found} index does not support that type"
        )
    return found


def check_name(name: object) -> str:
    """Return the name of an index.

    Raises:
        RequestError: A user may not give an index this name.
    """
    if isinstance(name, str) and 0 < len(name) <= NAME_CHARACTERS_MAX and name[0] != "_":
        _check_text("name", name)
        return name
    raise RequestError(
        f"the name of an index must have 1 to {NAME_CHARACTERS_MAX} characters, the first not '_',"
        f" unlike {str(name)[:200]!r}"
    )


def check_options(
    kind: IndexKind, options: Mapping[str, object], type_: pa.DataType
) -> tuple[tuple[str, IndexOption], ...]:
    """Return the options of an index, sorted by name.

    Raises:
        RequestError: An option is unknown, or has an invalid value.
    """
    known = _OPTIONS[kind]
    for name, value in options.items():
        if name not in known:
            raise RequestError(f"a {kind} index has {no_such('option', name, known)}")
        if type(value) is not known[name]:
            raise RequestError(f"{name} must be of type {known[name].__name__}; got {value!r}")
        _check_text(name, value)
    if kind == "vector":
        _check_vector(options, cast("pa.FixedSizeListType", type_).list_size)
    return tuple(sorted(cast("Mapping[str, IndexOption]", options).items()))


def _check_text(name: str, value: object) -> None:
    try:
        str(value).encode()
    except UnicodeEncodeError:
        raise RequestError(f"{name}={value!r}: half a surrogate pair is no character") from None


def _check_vector(options: Mapping[str, object], size: int) -> None:
    for name, allowed in (("metric", _METRICS), ("encoding", _ENCODINGS)):
        if options.get(name, allowed[0]) not in allowed:
            raise RequestError(not_one_of(name, options[name], allowed))
    partitions = cast("int", options.get("partitions", 1))
    if not 1 <= partitions <= _PARTITIONS_MAX:
        raise RequestError(f"partitions must be between 1 and {_PARTITIONS_MAX}; got {partitions}")
    encoding = options.get("encoding")
    if encoding == "rq" and not fits_rq(size):
        raise RequestError(
            f"encoding='rq' needs vectors whose size is a multiple of {RQ_SIZE_UNIT}; {size} is not"
        )
    _check_sub_vectors(encoding, cast("int | None", options.get("sub_vectors")), size)


def _check_sub_vectors(encoding: object, parts: int | None, size: int) -> None:
    if parts is not None and encoding != "pq":
        raise RequestError(f"sub_vectors needs encoding='pq'; the encoding is {encoding!r}")
    if encoding == "pq" and parts is None and sub_vectors_of(size) is None:
        raise RequestError(
            f"encoding='pq' needs sub_vectors, a divisor of {size}: no number from 4 to 16 is one"
        )
    if parts is not None and (parts < 1 or size % parts):
        raise RequestError(
            f"sub_vectors must divide {size}, the size of a vector; {parts} does not"
        )


def _is_scalar(type_: pa.DataType) -> bool:
    return not pa.types.is_nested(type_)


def _is_text(type_: pa.DataType) -> bool:
    return pa.types.is_string(type_) or pa.types.is_large_string(type_)


def _is_vector(type_: pa.DataType) -> bool:
    if not pa.types.is_fixed_size_list(type_) or not type_.list_size:
        return False
    return pa.types.is_floating(type_.value_type)


_FITS: Mapping[str, Callable[[pa.DataType], bool]] = {
    "btree": _is_scalar,
    "bitmap": _is_scalar,
    "fts": _is_text,
    "vector": _is_vector,
}
