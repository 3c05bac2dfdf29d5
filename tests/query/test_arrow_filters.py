"""An Arrow expression filters a table whatever types its other columns have.

Lance takes such a filter as Substrait, with the schema, and does not know all types of Arrow there.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import siltstone as st

FLAT = [
    *(pa.bool_(), pa.int8(), pa.uint8(), pa.uint16(), pa.uint32(), pa.int64(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.decimal128(38, 10)),
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary()),
    *(pa.date32(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")),
]
NESTED = [kind for flat in FLAT for kind in (pa.list_(flat), pa.struct({"x": flat}))]
TYPES = [*FLAT, *NESTED, pa.list_(pa.float32(), 3), pa.list_(pa.list_(pa.uint8()))]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Store]:
    with st.connect(tmp_path_factory.mktemp("filters") / "db", background=False) as store:
        with store.transaction() as tx:
            for number, kind in enumerate(TYPES):
                schema = pa.schema({"id": pa.int64(), "other": kind})
                tx.create_table(f"t{number}", schema, primary_key="id")
                tx[f"t{number}"].upsert(pa.table({"id": [1, 2, 3]}), missing="null")
        store.checkpoint()
        store.merge()
        yield store


@pytest.mark.parametrize("number", range(len(TYPES)), ids=[str(kind) for kind in TYPES])
def test_a_filter_of_arrow_is_answered(db: st.Store, number: int) -> None:
    table = db[f"t{number}"]
    assert table.to_arrow(["id"], pc.field("id").isin([2, 3, 7])).num_rows == 2
    assert table.count(pc.field("id") == 1) == 1


def test_keys_are_found_and_indexes_checked_beside_a_column_of_times(tmp_path: Path) -> None:
    rows = pa.table({"id": range(50_000), "v": range(50_000)})
    schema = pa.schema({"id": pa.int64(), "v": pa.int64(), "time": pa.time64("us")})
    with st.connect(tmp_path / "db", background=False, memory_bytes_max=1 << 20) as db:
        table = db.create_table("t", schema, primary_key="id")
        table.upsert(rows, missing="null")
        db.checkpoint()
        db.merge()
        table.create_index("v")
        db.optimize()
    with st.connect(tmp_path / "db", background=False, memory_bytes_max=1 << 20) as db:
        assert db["t"].get(49_999) == {"id": 49_999, "v": 49_999, "time": None}
        assert db["t"].get(50_000) is None
        assert db["t"].to_arrow(filter="v = 7")["id"].to_pylist() == [7]
        assert db.verify(deep=True).is_sound


COLUMNS = {
    "u8": pa.array([n % 250 for n in range(20_000)], pa.uint8()),
    "u64": pa.array([2**64 - 1 - n for n in range(20_000)], pa.uint64()),
    "ls": pa.array([f"text {n}" for n in range(20_000)], pa.large_string()),
    "bin": pa.array([b"%d" % n for n in range(20_000)], pa.binary()),
    "at": pa.array(range(20_000), pa.int32()).cast(pa.time32("ms")),
    "none": pa.nulls(20_000, pa.uint16()),
}


def test_indexes_are_checked_and_asked_whatever_the_type_of_their_column(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array(range(20_000), pa.int64()), **COLUMNS})
    with st.connect(tmp_path / "db", background=False) as db:
        table = db.create_table("t", rows.schema, primary_key="id")
        table.upsert(rows)
        db.checkpoint()
        db.merge()
        for name in COLUMNS:
            table.create_index(name, build=False)
        db.optimize("t")
        assert db.verify(deep=True).is_sound
        for name in ("u64", "ls", "bin", "at"):
            assert table.to_arrow(["id"], pc.field(name) == COLUMNS[name][77])[
                "id"
            ].to_pylist() == [77]


@pytest.mark.parametrize("name", ["u8", "u64", "bin", "id"])
def test_a_key_of_any_type_is_found_where_its_index_does_not_fit_in_memory(
    tmp_path: Path, name: str
) -> None:
    rows = pa.table({"id": pa.array(range(20_000), pa.int64()), **COLUMNS})
    key = ["u8", "id"] if name == "u8" else name
    with st.connect(tmp_path / "db", background=False) as db:
        db.create_table("t", rows.schema, primary_key=key).upsert(rows)
        db.checkpoint()
        db.merge()
    with st.connect(tmp_path / "db", background=False, memory_bytes_max=1 << 20) as db:
        for n in (0, 7, 19_999):
            wanted = [COLUMNS["u8"][n].as_py(), n] if name == "u8" else rows[name][n].as_py()
            found = db["t"].get(tuple(wanted) if isinstance(wanted, list) else wanted)
            assert found is not None
            assert found["id"] == n
