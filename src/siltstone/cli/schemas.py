"""Schemas: the columns of a new table, from the command line, a JSON file or a file of rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from siltstone.api.schemas import arrow_schema_of, plain_schema
from siltstone.cli.arguments import CsvForm
from siltstone.cli.exits import UsageError
from siltstone.cli.files import ending_of, input_rows, read_bytes, unknown_ending

_WITH_COLUMNS = {"parquet", "csv", "tsv", "arrow", "feather", "ipc"}


def columns_of(given: Sequence[str]) -> pa.Schema:
    """Return the columns of NAME:TYPE arguments.

    Raises:
        RequestError: One is no column, or there is no such type.
    """
    pairs = [text.partition(":") for text in given]
    if any(not (name and kind) for name, _, kind in pairs):
        raise UsageError(f"a column must be NAME:TYPE, like id:int64; got {list(given)}")
    if len({name for name, _, _ in pairs}) < len(pairs):
        raise UsageError(f"a column appears twice in {list(given)}")
    return arrow_schema_of({name: kind for name, _, kind in pairs})


def schema_of(path: Path) -> pa.Schema:
    """Return the columns of a schema file, or of a file of rows.

    Raises:
        NotFoundError: The file does not exist.
        UsageError: The file contains no schema.
        RequestError: There is no such type.
    """
    if path.suffix not in {".json", ""} and str(path) != "-":
        if ending_of(path) not in _WITH_COLUMNS:
            raise unknown_ending(path)
        rows: Any = input_rows(path, None, CsvForm())
        return plain_schema(rows.schema.remove_metadata())
    try:
        found = msgspec.json.decode(read_bytes(path))
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if isinstance(found, dict):
        return arrow_schema_of(found)
    raise UsageError(f'{path} contains no schema; a schema is like {{"id": "int64", ...}}')
