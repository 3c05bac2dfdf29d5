"""Choices: the words that public calls choose from, as types: editors complete them."""

from __future__ import annotations

from enum import Enum
from typing import Literal, TypeAlias, TypedDict, get_args

Isolation: TypeAlias = Literal["snapshot", "serializable"]
Durability: TypeAlias = Literal["sync", "async", "shipped"]
Outcome: TypeAlias = Literal["committed", "not committed", "in doubt"]
StagedOp: TypeAlias = Literal["upsert", "insert", "delete", "append"]
Missing: TypeAlias = Literal["refuse", "keep", "null"]
MISSINGS: tuple[Missing, ...] = get_args(Missing)
IndexKind: TypeAlias = Literal["btree", "bitmap", "fts", "vector"]
Metric: TypeAlias = Literal["l2", "cosine", "dot"]
SearchMetric: TypeAlias = Literal["l2", "cosine", "dot", "hamming"]
TextOperator: TypeAlias = Literal["or", "and"]
Encoding: TypeAlias = Literal["flat", "sq", "pq", "rq", "hnsw_sq", "hnsw_flat"]
JobState: TypeAlias = Literal["running", "dead", "finished"]


class IndexOptions(TypedDict, total=False):
    """The options of an index, of its kind; `Table.create_index` explains them."""

    language: str
    base_tokenizer: str
    stem: bool
    lower_case: bool
    remove_stop_words: bool
    ascii_folding: bool
    with_position: bool
    metric: Metric
    encoding: Encoding
    partitions: int
    sub_vectors: int


class DefaultOf(Enum):
    """The default of a column where a caller gives none: it stays as it is, and None removes it."""

    UNCHANGED = "unchanged"


UNCHANGED = DefaultOf.UNCHANGED
