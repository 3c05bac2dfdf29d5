"""A table of a snapshot is a pyarrow dataset: what readers ask of it reaches its scan."""

import gc
import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from siltstone.errors import RequestError
from siltstone.query.sql.dataset import SnapshotDataset
from tests.query.scannable import Recording

TABLE = pa.table(
    {
        "name": ["ada", "bob", "cyd", "dan", None],
        "id": pa.array([1, 2, 3, 4, 5], pa.int16()),
        "total": [1.5, float("nan"), None, -0.0, 2.5],
        "odd.name": [10, 20, 30, 40, 50],
    },
    metadata={"owner": "tests"},
)
ID = pc.field("id")


@pytest.fixture
def source() -> Recording:
    return Recording(TABLE)


@pytest.fixture
def dataset(source: Recording) -> SnapshotDataset:
    return SnapshotDataset(source)


def test_it_is_a_dataset_with_the_table_s_schema_and_rows(dataset):
    assert isinstance(dataset, ds.Dataset)
    assert dataset.schema.equals(TABLE.schema, check_metadata=True)
    assert dataset.to_table().drop_columns("total").equals(TABLE.drop_columns("total"))


def test_columns_come_in_the_order_asked_for_and_no_others_are_scanned(source, dataset):
    assert dataset.to_table(["odd.name", "id"]).column_names == ["odd.name", "id"]
    assert source.calls == [(["odd.name", "id"], "None", None)]


def test_a_column_asked_for_twice_is_scanned_once(source, dataset):
    scanner = dataset.scanner(["id", "id"])
    assert scanner.projected_schema.names == ["id", "id"]
    assert scanner.to_table().column(1).to_pylist() == [1, 2, 3, 4, 5]
    assert source.calls[0][0] == ["id"]


def test_expressions_are_computed_over_the_columns_they_read(source, dataset):
    found = dataset.to_table({"twice": ID * 2, "id": ID, "one": pc.scalar(1)})
    assert found.to_pydict() == {
        "twice": [2, 4, 6, 8, 10],
        "id": [1, 2, 3, 4, 5],
        "one": [1] * 5,
    }
    assert source.calls[0][0] == ["id"]


def test_constants_alone_give_one_row_each(dataset):
    assert dataset.to_table({"one": pc.scalar(1)}).to_pydict() == {"one": [1] * 5}


def test_no_columns_give_the_number_of_rows(dataset):
    assert dataset.to_table(columns=[]).num_rows == 5


@pytest.mark.parametrize("wanted", [ID > 3, "id > 3"], ids=["arrow", "sql"])
def test_a_filter_reaches_the_scan_and_may_read_other_columns(source, dataset, wanted):
    assert dataset.to_table(["name"], wanted).to_pydict() == {"name": ["dan", None]}
    assert source.calls == [(["name"], str(wanted), None)]


def test_filters_add_up(source, dataset):
    narrow = dataset.filter("id > 1").filter(ID < 5)
    assert narrow.to_table(["id"], "id != 3").to_pydict() == {"id": [2, 4]}
    assert narrow.count_rows() == 3
    assert dataset.count_rows() == 5


def test_head_tells_the_scan_how_many(source, dataset):
    assert dataset.head(2, ["id"]).to_pydict() == {"id": [1, 2]}
    assert source.calls == [(["id"], "None", 2)]
    assert dataset.head(9, ["id"], ID > 3).num_rows == 2


def test_counting_reads_the_narrowest_column(source, dataset):
    assert dataset.count_rows(filter=ID > 2) == 3
    assert source.calls[0][0] == ["id"]


def test_take_counts_from_the_first_row_of_the_scan(dataset):
    assert dataset.take([4, 0], ["id"]).to_pydict() == {"id": [5, 1]}
    assert dataset.take([1], ["id"], ID > 2).to_pydict() == {"id": [4]}


def test_batches_are_as_long_as_asked_for(dataset):
    assert [batch.num_rows for batch in dataset.to_batches(["id"], batch_size=1)] == [1] * 5


def test_a_scanner_scans_when_it_is_pulled_and_a_dataset_as_often_as_asked(source, dataset):
    scanner = dataset.scanner(["id"])
    assert source.calls == []
    assert scanner.to_reader().read_all().num_rows == 5
    assert dataset.to_table(["id"]).num_rows == 5
    assert len(source.calls) == 2


def test_a_scan_is_closed_at_its_end_and_when_nobody_wants_the_rest(source, dataset):
    dataset.to_table()
    assert source.has_closed_all()
    batches = dataset.to_batches()
    next(batches)
    del batches
    gc.collect()
    assert source.has_closed_all()  # one of Arrow's threads may still read ahead


def test_an_error_of_the_scan_arrives_as_it_is():
    dataset = SnapshotDataset(Recording(TABLE, RequestError("the snapshot is closed")))
    with pytest.raises(RequestError, match="the snapshot is closed"):
        dataset.to_table()


def test_an_unknown_column_is_refused_with_those_there_are(dataset):
    with pytest.raises(RequestError, match="no column 'x'; the columns are name, id"):
        dataset.scanner(["x"])


def test_an_empty_table_has_its_columns():
    dataset = SnapshotDataset(Recording(TABLE.slice(0, 0)))
    assert dataset.to_table().schema.names == TABLE.schema.names
    assert dataset.count_rows() == 0


def test_every_method_of_a_dataset_answers(dataset, tmp_path):
    assert dataset.sort_by([("id", "descending")]).head(1)["id"].to_pylist() == [5]
    assert dataset.join(dataset, "id", right_suffix="_r").count_rows() == 5
    assert sum(fragment.count_rows() for fragment in dataset.get_fragments(ID > 1)) == 4
    assert dataset.replace_schema(TABLE.schema).count_rows() == 5
    assert dataset.partition_expression.equals(pc.scalar(True))
    keys = SnapshotDataset(Recording(TABLE.select(["id", "odd.name"])))
    assert dataset.join_asof(keys, on="id", by="odd.name", tolerance=0).count_rows() == 5
    inherited = set(vars(ds.Dataset.__mro__[0])) - set(vars(SnapshotDataset))
    assert {name for name in inherited if not name.startswith("_")} == set()


def test_another_schema_shows_some_columns_other_types_and_new_ones(source, dataset):
    wanted = pa.schema([("new", pa.date32()), ("id", pa.int64()), ("name", pa.large_string())])
    found = dataset.filter(ID > 3).replace_schema(wanted)
    assert found.schema.equals(wanted)
    assert found.to_table().to_pydict() == {
        "new": [None, None], "id": [4, 5], "name": ["dan", None],
    }  # fmt: skip
    assert source.calls == [(["id", "name"], "(id > 3)", None)]
    assert dataset.replace_schema(pa.schema([("new", pa.int8())])).count_rows() == 5
    with pytest.raises(RequestError, match="column 'name' is string, which is no int8: "):
        dataset.replace_schema(pa.schema([("name", pa.int8())]))


def test_it_can_be_written_as_parquet(dataset, tmp_path):
    ds.write_dataset(dataset, tmp_path / "copy", format="parquet")
    copy = ds.dataset(tmp_path / "copy").to_table()
    assert sorted(copy["id"].to_pylist()) == [1, 2, 3, 4, 5]  # pyarrow writes in any order


def test_it_pickles_with_its_filter():
    source = PickledSource()
    again = pickle.loads(pickle.dumps(SnapshotDataset(source).filter("id > 3")))
    assert again.to_table(["id"]).to_pydict() == {"id": [4, 5]}


class PickledSource(Recording):
    def __init__(self) -> None:
        super().__init__(TABLE)

    def __reduce__(self):
        return PickledSource, ()
