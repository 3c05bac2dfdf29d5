"""Members of one group are admitted against each other, in the order in which they queued up."""

from __future__ import annotations

import pyarrow as pa
import pytest

from siltstone.api.store import Store
from siltstone.errors import (
    ConflictError,
    SchemaMismatchError,
    TableExistsError,
    UnavailableError,
)
from tests.isolation.groups import in_one_group
from tests.isolation.stores import opened, with_two_rows
from tests.support.simulated_files import Fault, Kind, SimFiles


def writing(db: Store, value: int, **options):
    tx = db.transaction(**options)
    tx["t"].upsert({"id": 1, "v": value})
    return tx


def test_of_two_conflicting_members_the_first_in_line_wins() -> None:
    db = with_two_rows()
    first, second = in_one_group(db, [writing(db, 11).commit, writing(db, 12).commit])
    assert isinstance(second, ConflictError)
    assert db["t"].get(1) == {"id": 1, "v": 11}
    assert first.seq == db.seq


def test_members_that_do_not_conflict_share_one_frame_and_get_seqs_in_order() -> None:
    db = with_two_rows()
    other = db.transaction()
    other["t"].upsert({"id": 2, "v": 22})
    seq = db.seq
    receipts = in_one_group(db, [writing(db, 11).commit, other.commit])
    assert [receipt.seq for receipt in receipts] == [seq + 1, seq + 2]
    assert db["t"].to_arrow().sort_by("id")["v"].to_pylist() == [11, 22]


def test_a_token_applies_once_though_both_attempts_stand_in_one_group() -> None:
    db = with_two_rows()
    attempts = [db.transaction(token=("app", 1)) for _ in range(2)]
    for key, attempt in enumerate(attempts, 3):
        attempt["t"].upsert({"id": key, "v": key})  # no conflict of rows: the token alone decides
    first, second = in_one_group(db, [attempt.commit for attempt in attempts])
    assert (first.seq, first.rows) == (second.seq, second.rows)
    assert [db["t"].get(key) is not None for key in (3, 4)] == [True, False]


def test_a_lower_batch_behind_a_higher_one_in_its_group_is_refused() -> None:
    db = with_two_rows()
    txs = [db.transaction(token=("app", batch)) for batch in (2, 1)]
    for key, tx in enumerate(txs, 3):
        tx["t"].upsert({"id": key, "v": key})
    _, second = in_one_group(db, [tx.commit for tx in txs])
    assert "strictly increase" in str(second)
    assert db["t"].get(4) is None


def test_two_members_cannot_create_one_name() -> None:
    db = with_two_rows()
    txs = [db.transaction() for _ in range(2)]
    for tx in txs:
        tx.create_table("new", {"id": "int64"}, "id")
        tx["new"].insert({"id": 1})
    _, second = in_one_group(db, [tx.commit for tx in txs])
    assert isinstance(second, TableExistsError)
    assert db["new"].count() == 1


def test_rows_behind_a_truncate_of_their_group_conflict_with_it() -> None:
    db = with_two_rows()
    truncating = db.transaction()
    truncating["t"].truncate()
    _, second = in_one_group(db, [truncating.commit, writing(db, 11).commit])
    assert isinstance(second, ConflictError)
    assert db["t"].count() == 0


def test_rows_behind_a_new_column_of_their_group_are_widened() -> None:
    db = with_two_rows()
    altering = db.transaction()
    altering["t"].add_column("w", "string")
    results = in_one_group(db, [altering.commit, writing(db, 11).commit])
    assert not any(isinstance(result, Exception) for result in results)
    assert db["t"].get(1) == {"id": 1, "v": 11, "w": None}


def test_a_serializable_scan_sees_the_members_before_it() -> None:
    db = with_two_rows()
    scanning = db.transaction(isolation="serializable")
    assert scanning["t"].count("v = 11") == 0
    scanning["t"].upsert({"id": 9, "v": 0})
    _, second = in_one_group(db, [writing(db, 11).commit, scanning.commit])
    assert isinstance(second, ConflictError)


def test_a_refused_write_of_the_log_leaves_no_conflict_behind() -> None:
    files = SimFiles()
    db = with_two_rows(files)
    big = "x" * 70_000
    db.create_table("wide", {"id": "int64", "text": "string"}, "id")
    files.faults = [Fault(files.operations + 1, Kind.ENOSPC, is_sticky=True)]
    try:
        db["wide"].upsert({"id": 1, "text": big})
    except UnavailableError:
        files.faults = []
    assert not files.faults, "the log had room all the same"
    with db.transaction() as tx:
        tx["wide"].upsert({"id": 1, "text": "small"})
    assert db["wide"].get(1) == {"id": 1, "text": "small"}
    db.close()
    assert opened(files)["wide"].count() == 1


def dropping(db: Store):
    tx = db.transaction()
    tx.drop_table("t")
    return tx


def creating(db: Store):
    tx = db.transaction()
    tx.create_table("new", {"id": "int64"}, "id")
    return tx


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda db: writing(db, 11), lambda db: writing(db, 12)),
        (dropping, lambda db: writing(db, 12)),
        (creating, creating),
        (dropping, dropping),
    ],
    ids=["one key", "a dropped table", "one name", "two drops"],
)
def test_who_lost_to_a_member_that_found_no_space_hears_of_the_space(first, second) -> None:
    files = SimFiles()
    db = with_two_rows(files)
    one, two = first(db), second(db)
    one.create_table("wide", {"id": "int64", "text": "string"}, "id")
    one["wide"].upsert({"id": 1, "text": "x" * 70_000})
    files.faults = [Fault(files.operations + 1, Kind.ENOSPC, is_sticky=True)]
    results = in_one_group(db, [one.commit, two.commit])
    files.faults = []
    assert [type(result) for result in results] == [UnavailableError, UnavailableError]
    assert (db.tables(), db["t"].get(1)) == (["t"], {"id": 1, "v": 10})
    again = second(db).commit()
    assert again.seq == db.seq == db.durable_seq


def scanning(db: Store):
    tx = db.transaction(isolation="serializable")
    assert tx["t"].count("v = 11") == 0
    tx["t"].upsert({"id": 9, "v": 0})
    return tx


@pytest.mark.parametrize("begin", [lambda db: writing(db, 12), scanning], ids=["key", "scan"])
@pytest.mark.parametrize("before", [0, 1, 2])
def test_what_a_member_that_found_no_space_takes_back_is_its_own_writes_alone(
    begin, before
) -> None:
    files = SimFiles()
    db = with_two_rows(files)
    oldest = db.transaction()  # of all that follows, nothing is forgotten for its sake
    for n in range(before):
        db["t"].upsert({"id": 2, "v": n})
    late, wide = begin(db), db.transaction()
    db["t"].upsert({"id": 1, "v": 11})
    wide.create_table("wide", {"id": "int64", "text": "string"}, "id")
    wide["wide"].upsert({"id": 1, "text": "x" * 70_000})
    wide["t"].upsert({"id": 3, "v": 3})
    files.faults = [Fault(files.operations + 1, Kind.ENOSPC, is_sticky=True)]
    with pytest.raises(UnavailableError):
        wide.commit()
    files.faults = []
    with pytest.raises(ConflictError):
        late.commit()
    oldest["t"].upsert({"id": 1, "v": 13})
    with pytest.raises(ConflictError):
        oldest.commit()
    db["t"].insert({"id": 3, "v": 4})
    assert db["t"].get(1) == {"id": 1, "v": 11}


def test_who_lost_to_an_earlier_commit_hears_of_that_though_there_is_no_space() -> None:
    files = SimFiles()
    db = with_two_rows(files)
    late, wide = writing(db, 11), db.transaction()
    wide.create_table("wide", {"id": "int64", "text": "string"}, "id")
    wide["wide"].upsert({"id": 1, "text": "x" * 70_000})
    db["t"].update(1, v=12)
    files.faults = [Fault(files.operations + 1, Kind.ENOSPC, is_sticky=True)]
    results = in_one_group(db, [wide.commit, late.commit])
    assert [type(result) for result in results] == [UnavailableError, ConflictError]


def table_of(row: dict[str, int]) -> pa.Table:
    return pa.Table.from_pylist([row] * 2)


FORMS = {
    "a dict": lambda row: row,
    "dicts": lambda row: [row],
    "an iterator": lambda row: iter([row]),
    "a table": table_of,
    "a stream": lambda row: table_of(row).to_reader(),
    "many": lambda row: pa.Table.from_pylist([{**row, "id": row["id"] + n} for n in range(600)]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("verb", ["rename", "drop"])
def test_a_blind_upsert_behind_a_column_that_goes_fits_the_new_columns_or_is_refused(
    verb: str, form: str
) -> None:
    db = with_two_rows()
    db["t"].add_column("kept", "int64")

    def change(name: str):
        return (
            (lambda: db["t"].drop_column(name))
            if verb == "drop"
            else (lambda: db["t"].rename_column(name, f"{name}{db.seq}"))
        )

    make = FORMS[form]
    _, lost = in_one_group(
        db, [change("v"), lambda: db["t"].upsert(make({"id": 5, "v": 50, "kept": 1}))]
    )
    assert isinstance(lost, SchemaMismatchError)
    assert db["t"].get(5) is None
    db["t"].add_column("v", "int64")
    _, won = in_one_group(
        db, [change("v"), lambda: db["t"].upsert(make({"id": 5, "kept": 1}), missing="null")]
    )
    assert won.seq == db.seq
    row = db["t"].get(5)
    assert row is not None
    assert row["kept"] == 1
    assert "v" not in row


@pytest.mark.parametrize("count", [1, 600])
@pytest.mark.parametrize("column", ["id", "v"])
def test_a_blind_delete_behind_a_renamed_column_conflicts_with_nobody(
    column: str, count: int
) -> None:
    db = with_two_rows()
    keys = list(range(1, 1 + count))
    _, gone = in_one_group(
        db,
        [lambda: db["t"].rename_column(column, "other"), lambda: db["t"].delete(keys)],
    )
    assert gone.rows == min(count, 2)
    assert db["t"].get(1) is None
