"""Hidden rows with real Lance: other clients see what we see, and both manifests agree."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from siltstone.errors import CorruptionError
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.files import deletions
from siltstone.storage.lance.files.manifest import without_deletions
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.lance.write.writer import CROWD_MAX
from siltstone.storage.tables.values import IndexSpec
from tests.storage.test_fold_contract import FOLDER, SCHEMA, batch, fold, ids, three_parts, without


def test_another_client_reads_the_rows_that_we_read_at_every_promoted_version(
    tmp_path: Path,
) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pins = [three_parts(tables)]
    pins.append(fold(tables, pins[-1], [3, 50], [500]))
    pins.append(fold(tables, pins[-1], [3, 50, 51], []))
    pins.append(fold(tables, pins[-1], [3, *range(50, 75)], [501]))
    tables.names.promote(pins, pins[-1])
    for pin in pins:
        shown = lance.dataset(tmp_path / FOLDER, version=pin.version)
        assert shown.to_table().column("id").to_pylist() == ids(tables, pin)
        assert shown.count_rows() == pin.rows
    assert lance.dataset(tmp_path / FOLDER).version == pins[-1].version


def test_other_clients_find_no_hidden_row_by_an_index(tmp_path: Path) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = three_parts(tables)
    spec = IndexSpec("by id", "id", "btree")
    built = tables.indexer.build(pin, spec, tables.reader.open(pin).spans)
    pin = fold(tables, tables.indexer.put(pin, [built]), [3], [3])
    tables.names.promote([pin], pin)
    shown = lance.dataset(tmp_path / FOLDER)
    assert shown.count_rows("id = 3") == 1
    assert shown.to_table(filter="id = 3").num_rows == 1
    assert ids(tables, pin, prefilter="id = 3", indexed=True) == [3]


def test_the_manifest_that_we_open_is_the_pins_without_its_deletion_files(tmp_path: Path) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = fold(tables, three_parts(tables), [3, 50], [500])
    made, hidden = without_deletions((tmp_path / pin.path).read_bytes())
    assert (tmp_path / pin.physical_path).read_bytes() == made
    assert {number: file.rows for number, file in hidden.items()} == {0: 1, 1: 1}
    again, none = without_deletions(made)
    assert (again, none) == (made, {})


def test_deletion_files_of_lance_are_read_in_both_forms(tmp_path: Path) -> None:
    rows = pa.table({"id": range(1000)})
    for share in (3, 900):
        dataset = lance.write_dataset(rows, tmp_path / str(share))
        dataset.delete(f"id < {share}")
        name = str(dataset.get_fragments()[0].deletion_file())
        data = (tmp_path / str(share) / name).read_bytes()
        assert deletions.decode(data, name).tolist() == [*range(share)]
    assert deletions.decode(deletions.encode(np.arange(5, 9)), "x.bin").tolist() == [5, 6, 7, 8]


def test_each_part_has_its_own_threshold_between_a_fifth_and_three_tenths() -> None:
    shares = [deletions.share_of(number) for number in range(1000)]
    assert 0.2 <= min(shares) < 0.21
    assert 0.29 < max(shares) <= 0.3
    assert len(set(shares)) > 900


def test_a_crowd_of_parts_with_hidden_rows_is_joined(tmp_path: Path) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = tables.writer.create(FOLDER, SCHEMA)
    for n in range(CROWD_MAX):
        pin = tables.writer.append(pin, [batch([*range(40 * n, 40 * n + 40)])])
    few = [40 * n for n in range(CROWD_MAX)]
    pin = fold(tables, pin, few[:-1], [])
    assert len(tables.reader.open(pin).spans) == CROWD_MAX
    joined = fold(tables, pin, few, [])
    assert (joined.hidden, len(tables.reader.open(joined).spans)) == (0, 1)
    assert ids(tables, joined) == [n for n in range(40 * CROWD_MAX) if n % 40]


def test_a_damaged_deletion_file_is_named_also_where_data_files_are_not_verified(
    tmp_path: Path,
) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = fold(tables, three_parts(tables), [3], [])
    (path,) = (tmp_path / pin.folder / "_siltstone/_kept/_deletions").iterdir()
    whole = path.read_bytes()
    turned = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
    for data in (*turned, *(whole[:length] for length in range(len(whole)))):
        path.write_bytes(data)
        tables = lance_tables(tmp_path, RealFiles(), verify="scrub")
        with pytest.raises(CorruptionError, match=path.name):
            ids(tables, pin)


def test_a_version_with_more_rows_over_a_fold_writes_no_deletion_file_again(tmp_path: Path) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pin = fold(tables, three_parts(tables), [3, 50], [])

    def over(drop: list[int], version: int) -> tuple[list[str], list[int]]:
        drops = np.array(drop)
        made = tables.clients.overlaid(pin, drop=drops, batches=[batch([500])], version=version)
        tables.names.promote([made.pin], made.pin)
        shown = lance.dataset(tmp_path / FOLDER, version=version)
        own = [file.path for file in made.files if deletions.DELETIONS in file.path]
        return own, shown.to_table().column("id").to_pylist()

    assert over([3, 50], 1000) == ([], [*without(3, 50), 500])
    own, found = over([3, 50, 51], 1001)
    assert (len(own), found) == (1, [*without(3, 50, 51), 500])
