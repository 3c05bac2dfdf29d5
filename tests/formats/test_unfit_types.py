"""What a column cannot be, Lance does not keep: each reason that is given was met.

If a case here fails with a newer Lance, the type may be allowed.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from siltstone.formats.types.unfit_types import why_unfit


def written(path: Path, column: Any, mode: str = "create") -> lance.LanceDataset:
    rows = pa.Table.from_arrays([column], ["x"])
    return lance.write_dataset(rows, str(path), mode=mode)


UNWRITTEN: dict[str, pa.Array[Any]] = {
    "interval": pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    "union": pa.UnionArray.from_dense(
        pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]
    ),
    "decimal32": pa.array([1], pa.decimal32(5, 1)),
    "decimal64": pa.array([1], pa.decimal64(12, 1)),
    "run-end encoded": pa.RunEndEncodedArray.from_arrays([1], ["a"]),
    "list_view": pa.array([[1]], pa.list_view(pa.int32())),
    "vector of texts": pa.array([["a"]], pa.list_(pa.string(), 1)),
}


@pytest.mark.parametrize("name", UNWRITTEN)
def test_lance_does_not_keep_the_type(tmp_path: Path, name: str) -> None:
    column = UNWRITTEN[name]
    assert why_unfit(column.type) is not None
    found = None
    with suppress(BaseException):  # some panic, and a panic is no Exception
        found = written(tmp_path / "t", column).to_table()["x"]
    assert found is None or found.type != column.type


def small(first: int) -> pa.Array[Any]:
    texts = pa.array([f"v{first + n}" for n in range(100)])
    return pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), texts)


def test_lance_writes_dictionaries_that_it_cannot_read_when_it_compacts_them(
    tmp_path: Path,
) -> None:
    written(tmp_path / "t", small(0))
    dataset = written(tmp_path / "t", small(100), "append")
    assert len(set(dataset.to_table()["x"].to_pylist())) == 200
    dataset.optimize.compact_files()  # it says nothing
    with pytest.raises(pa.ArrowInvalid, match="corrupt file dictionary"):
        dataset.to_table()


def test_lance_forgets_that_a_dictionary_is_ordered(tmp_path: Path) -> None:
    kind = pa.dictionary(pa.int32(), pa.string(), ordered=True)
    assert not written(tmp_path / "t", pa.array(["a"], kind)).schema.field("x").type.ordered
