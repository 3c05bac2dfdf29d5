"""The statements that a data engineer types, in their order, each with what it says or shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import siltstone as st
from siltstone.spark import register

NAME = "typed"
ORDERS = {"id": "int64", "c": "int32", "total": "decimal128(10,2)", "s": "string", "d": "date32"}


class Refused(str):
    """Part of what a statement says that is refused."""

    __slots__ = ()


def refused(said: str) -> Refused:
    return Refused(said)


CALLS = ["checkpoint", "drop_tag", "merge", "optimize", "rollback_to", "search", "tag", "vacuum"]
PLAN = """siltstone: o at seq 27: 2 files, 404 rows, 1 above base, filter ("s" IS NOT NULL) AND \
("total" IS NOT NULL) AND ("s" LIKE 'x1%') AND (("c" = 1) OR ("c" = 3)) AND ("total" > 3.00)"""
CREATED = f"""CREATE TABLE {NAME}.o (
  id BIGINT NOT NULL,
  c INT,
  total DECIMAL(10,2),
  s STRING COLLATE UTF8_BINARY,
  d DATE)
USING siltstone
TBLPROPERTIES (
  'primaryKey' = 'id',
  'seq' = '29')
"""

# A statement, and its rows as texts; one text: a part of them; of one that is refused, a part of
# what it says.
STATEMENTS: list[tuple[str, list[str] | str | Refused]] = [
    ("INSERT INTO o VALUES (5000, 1, 1.5, 'new', date'2026-01-01'), (5001, 2, 2.5, 'n', null)", []),
    ("INSERT INTO o VALUES (5000, 1, 9.5, 'again', null)", refused("o[5000] exists already")),
    (
        "INSERT INTO o WITH (op='upsert') VALUES (5000, 1, 9.5, 'again', null)",
        refused("missing = 'null'"),
    ),
    ("INSERT INTO o WITH (op='upsert', missing='null') VALUES (5000, 1, 9.5, 'again', null)", []),
    ("INSERT INTO o (id, s) VALUES (6000, 'part')", []),
    (
        "SELECT * FROM o WHERE id >= 5000 ORDER BY id",
        [
            "5000, 1, 9.50, again, None",
            "5001, 2, 2.50, n, None",
            "6000, None, None, part, None",
        ],
    ),
    ("INSERT INTO p SELECT id, s FROM o WHERE id < 5", []),
    ("SELECT count(*) FROM p", ["5"]),
    ("DELETE FROM o WHERE id = 6000", []),
    ("DELETE FROM o WHERE id % 2 = 1", []),
    ("SELECT count(*) FROM o", ["501"]),
    ("UPDATE o SET total = total + 1, s = concat(s, '!') WHERE c = 2", []),
    ("SELECT * FROM o WHERE id = 2", ["2, 2, 3.00, x2!, None"]),
    (
        "UPDATE o SET id = id + 100000 WHERE id = 4",
        refused("the row with the key id = 4 would get the key 100004"),
    ),
    ("SELECT id FROM o WHERE id in (4, 100004)", ["4"]),
    (
        (
            "MERGE INTO o USING (SELECT id, 'm' AS s FROM range(0, 8)) x ON o.id = x.id"
            " WHEN MATCHED AND o.id = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET s = x.s"
            " WHEN NOT MATCHED THEN INSERT (id, s) VALUES (x.id, x.s)"
        ),
        [],
    ),
    (
        "SELECT id, s, c FROM o WHERE id < 9 ORDER BY id",
        [
            "1, m, None",
            "2, m, 2",
            "3, m, None",
            "4, m, 4",
            "5, m, None",
            "6, m, 1",
            "7, m, None",
            "8, x8, 3",
        ],
    ),
    (
        (
            "MERGE INTO o USING (SELECT 2L AS id, 'a' AS s UNION ALL SELECT 2L, 'b') x ON o.id=x.id"
            " WHEN MATCHED THEN UPDATE SET s = x.s"
        ),
        refused("MERGE_CARDINALITY_VIOLATION"),
    ),
    ("CREATE TABLE made AS SELECT id, s FROM o", []),
    ("SELECT count(*) FROM made", ["504"]),
    ("CREATE TABLE keyed TBLPROPERTIES ('primaryKey'='id') AS SELECT id, s FROM o", []),
    ("CREATE TABLE keyed2 (id BIGINT NOT NULL PRIMARY KEY, s STRING)", []),
    ("CREATE TABLE keyed3 (id BIGINT, s STRING, CONSTRAINT k PRIMARY KEY (id))", []),
    ("INSERT OVERWRITE keyed2 SELECT id, s FROM o", []),
    ("SELECT count(*), max(s) FROM keyed2", ["504, x998"]),
    ("ALTER TABLE keyed2 ADD COLUMN z DOUBLE", []),
    ("ALTER TABLE keyed2 RENAME COLUMN s TO t", []),
    ("ALTER TABLE keyed2 DROP COLUMN z", []),
    ("DESCRIBE keyed2", ["id, bigint, None", "t, string, None"]),
    ("ALTER TABLE keyed2 RENAME TO keyed9", []),
    ("DROP TABLE keyed9", []),
    ("DROP TABLE nothere", refused("TABLE_OR_VIEW_NOT_FOUND")),
    ("DROP TABLE IF EXISTS nothere", []),
    ("TRUNCATE TABLE made", []),
    ("SELECT count(*) FROM made", ["0"]),
    ("SHOW TABLES", [f", {name}, False" for name in ("keyed", "keyed3", "made", "o", "p")]),
    ("SHOW NAMESPACES IN {name}", []),
    ("SHOW TBLPROPERTIES o ('primaryKey')", ["primaryKey, id"]),
    ("SELECT count(*) FROM o VERSION AS OF 2", ["1000"]),
    ("SELECT count(*) FROM o TIMESTAMP AS OF current_timestamp()", ["504"]),
    ("CALL {name}.system.tag('release')", ["release, 22, 23"]),
    ("SELECT count(*) FROM o VERSION AS OF 'release'", ["504"]),
    (
        "SELECT a.s, b.s FROM o a JOIN o VERSION AS OF 2 b ON a.id = b.id WHERE a.id = 2",
        ["m, x2"],
    ),
    ("CALL {name}.system.checkpoint()", ", 23"),
    ("CALL {name}.system.merge()", ["23, ['o', 'keyed'], 1008, None"]),
    (
        "SHOW PROCEDURES IN {name}.system",
        [f"{NAME}, ['system'], system, {call}" for call in CALLS],
    ),
    ("INSERT INTO o VERSION AS OF 4 VALUES (1,1,1,'a',null)", refused("PARSE_SYNTAX_ERROR")),
    ("DELETE FROM p WHERE b = 'x1'", []),
    ("DELETE FROM p WHERE a % 2 = 0", refused("DELETE of rows of 'p' goes by their key")),
    ("UPDATE p SET b = 'q' WHERE a = 2", refused("UPDATE of rows of 'p' goes by their key")),
    ("SELECT * FROM p ORDER BY a", ["0, x0", "2, x2", "3, x3", "4, x4"]),
    (
        "INSERT INTO o REPLACE WHERE c = 1 SELECT id, 1, total, 'r', d FROM o WHERE c=1 AND id<9",
        [],
    ),
    ("SELECT id, s FROM o WHERE c = 1", ["6, r"]),
    ("CREATE OR REPLACE TABLE made AS SELECT 1 AS x", []),
    ("SELECT * FROM made", ["1"]),
    ("INSERT OVERWRITE p SELECT 1, 'one'", []),
    ("SELECT * FROM p", ["1, one"]),
    ("SELECT count(*) FROM (SELECT * FROM o LIMIT 2)", ["2"]),
    (
        "SELECT s FROM o WHERE s LIKE 'x1%' AND (c = 1 OR c = 3) AND total > 3 ORDER BY id LIMIT 2",
        ["x18", "x108"],
    ),
    ("EXPLAIN SELECT s FROM o WHERE s LIKE 'x1%' AND (c = 1 OR c = 3) AND total > 3.00", PLAN),
    ("CACHE TABLE o", []),
    ("REFRESH TABLE o", []),
    ("UNCACHE TABLE o", []),
    ("DELETE FROM o WHERE id = 3", []),
    ("UPDATE o SET s = 'u' WHERE id = 8", []),
    ("SELECT count(*) FROM o WHERE id BETWEEN 5 AND 8", ["4"]),
    ("SELECT count(*), count(d) FROM o", ["403, 0"]),
    (
        "SELECT _change_type, count(*) FROM o CHANGES FROM VERSION 2 TO VERSION 2 GROUP BY 1",
        ["update_postimage, 1000"],
    ),
    (
        "SELECT id, s FROM o CHANGES FROM VERSION 4 TO VERSION 5 ORDER BY s",
        ["5000, again", "5001, n", "5000, new"],
    ),
    ("SELECT 1 FROM o LIMIT 3", ["1", "1", "1"]),
    (
        "MERGE INTO p USING (SELECT 1L a) x ON p.a = x.a WHEN MATCHED THEN UPDATE SET b = 'z'",
        refused("MERGE of rows of 'p' goes by their key"),
    ),
    (
        (
            "MERGE WITH SCHEMA EVOLUTION INTO o USING (SELECT 9L id, 'n' s, 1 y) x ON o.id = x.id"
            " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ),
        refused("no WITH SCHEMA EVOLUTION: add the columns that o lacks by ALTER TABLE first"),
    ),
    ("SELECT tables FROM o.history LIMIT 1", ["['o']"]),
    ("DESCRIBE HISTORY o", refused("`HISTORY` cannot be found")),
    ("SHOW CREATE TABLE o", [CREATED]),
    ("ANALYZE TABLE o COMPUTE STATISTICS", refused("ANALYZE")),
    ("CREATE VIEW v AS SELECT * FROM o", refused("VIEW")),
]


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> SparkSession:
    with st.connect(tmp_path / "w", background=False) as db:
        db.create_table("o", ORDERS, "id").upsert(
            [{"id": n, "c": n % 5, "total": n, "s": f"x{n}", "d": None} for n in range(1000)]
        )
        db.create_table("p", {"a": "int64", "b": "string"})
    session = register(spark.newSession(), stores={NAME: tmp_path / "w"})
    session.sql(f"USE {NAME}")
    return session


def test_each_statement_does_what_the_page_says(shop: SparkSession) -> None:
    wrong = list[str]()
    for text, wanted in STATEMENTS:
        found = _run(shop, text.format(name=NAME))
        if isinstance(wanted, Refused):
            is_right = isinstance(found, Refused) and wanted in found
        elif isinstance(wanted, str):
            is_right = not isinstance(found, Refused) and wanted in "\n".join(found)
        else:
            is_right = wanted == found
        if not is_right:
            wrong.append(f"{text}\n  wanted {wanted!r}\n  found  {found!r:.600}")
    assert not wrong, "\n".join(wrong)


def _run(shop: SparkSession, text: str) -> list[str] | Refused:
    try:
        return [", ".join(map(str, row)) for row in shop.sql(text).collect()]
    except Exception as error:  # noqa: BLE001 - Spark raises many kinds
        return Refused(str(error))
