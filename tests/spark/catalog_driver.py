"""A Spark of `session(stores=..)`, in a process of its own; prints what happened, as JSON.

python -m tests.spark.catalog_driver STORE OTHER_STORE FOLDER

STORE is below the roots that its application allows, OTHER_STORE is not. FOLDER has a long name.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from siltstone.spark import session
from tests.spark.conftest import SETTINGS
from tests.spark.daemons import daemons


def main(store: str, other: str, folder: str) -> dict[str, object]:
    java = f"{SETTINGS['spark.driver.extraJavaOptions']} -Djava.io.tmpdir={folder}"
    given = {
        **SETTINGS,
        "spark.driver.extraJavaOptions": java,
        "spark.siltstone.roots": str(Path(store).parent),
        "spark.siltstone.memory": "64m",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }
    spark = session(given, master="local[2,4]", stores={"shop": store})
    spark.sparkContext.setLogLevel("OFF")
    try:
        return {
            "before a query": _started(),
            "own catalog": _said(spark, "CREATE TABLE n (id BIGINT) USING siltstone"),
            "rows": _count(spark),
            "socket": _socket(),
            "outside": _outside(spark, other),
            "in a task": _killed_in_a_task(spark),
            "session setting": _with_setting_of_the_session(spark),
            **_with_other_pythons(spark, Path(folder)),
            **_with_other_memory(spark),
            "after all": _count(spark),
            "folders": _folders(spark),
        }
    finally:
        spark.stop()


def _started() -> int:
    until = time.monotonic() + 120
    while not daemons() and time.monotonic() < until:
        time.sleep(0.1)
    return len(daemons())


def _count(spark: SparkSession) -> int:
    return len(spark.sql("SELECT id FROM shop.t").collect())


def _socket() -> str:
    (daemon,) = daemons()
    found = _path(daemon)
    return f"{found.parent.parent} {found.parent.stat().st_mode & 0o777:o}"


def _path(daemon: int) -> Path:
    words = Path(f"/proc/{daemon}/cmdline").read_bytes().split(b"\0")
    return Path(words[words.index(b"siltstone.spark.daemon") + 1].decode())


def _said(spark: SparkSession, statement: str) -> str:
    try:
        return repr(spark.sql(statement).collect())
    except Exception as error:  # noqa: BLE001 - what it says is looked at
        return str(error).split("\n", maxsplit=1)[0]


def _outside(spark: SparkSession, other: str) -> str:
    spark.sql("SET spark.sql.catalog.x=org.apache.spark.sql.siltstone.SiltstoneCatalog")
    spark.sql(f"SET spark.sql.catalog.x.uri={other}")
    return _said(spark, "SELECT * FROM x.t")


def _killed_in_a_task(spark: SparkSession) -> int:
    """Kill the process in the middle of a read, once; Spark runs the tasks again."""
    (daemon,) = daemons()
    rows = spark.sql("SELECT id FROM shop.large")

    def kill(batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        is_first = context.attemptNumber() == 0 and context.partitionId() == 0
        for batch in batches:
            if is_first:
                os.kill(daemon, signal.SIGKILL)
                time.sleep(1)
                is_first = False
            yield batch

    found = len(rows.mapInArrow(kill, "id bigint").collect())
    (again,) = daemons()
    return found if again != daemon else -1


def _with_setting_of_the_session(spark: SparkSession) -> int:
    """Whoever may run SQL chooses no program."""
    spark.conf.set("spark.siltstone.python", "/bin/false")
    _kill()
    return _count(spark)


def _with_other_pythons(spark: SparkSession, folder: Path) -> dict[str, object]:
    context: Any = spark.sparkContext
    conf = context._jsc.sc().conf()
    mine = conf.get("spark.siltstone.python")
    impostor = folder / "impostor"
    impostor.write_text("""#!/bin/sh
echo '{"identity": {"siltstone": "0.0.1", "sources": "x"}}'
cat > /dev/null
""")
    impostor.chmod(0o755)
    found: dict[str, object] = {}
    others = {"missing": "/no/python", "without": "/bin/false", "impostor": str(impostor)}
    for name, python in others.items():
        conf.set("spark.siltstone.python", python)
        _kill()
        found[name] = _said(spark, "SELECT id FROM shop.t")
    conf.set("spark.siltstone.python", mine)
    return found


def _with_other_memory(spark: SparkSession) -> dict[str, object]:
    """Without memory to map, columns of all types come as a stream."""
    context: Any = spark.sparkContext
    conf = context._jsc.sc().conf()
    conf.set("spark.siltstone.memory", "much")
    _kill()
    found: dict[str, object] = {"much": _said(spark, "SELECT id FROM shop.t")}
    conf.set("spark.siltstone.memory", "0")
    _kill()
    found["no memory"] = spark.sql("SELECT sum(id) FROM shop.large").collect()[0][0]
    conf.set("spark.siltstone.memory", "64m")
    _kill()
    return found


def _folders(spark: SparkSession) -> list[str]:
    """Return the folders of all sockets, the last one of a process that is killed at last."""
    assert _count(spark)
    _kill()
    return [str(each) for each in USED]


USED: list[Path] = []


def _kill() -> None:
    for each in daemons():
        USED.append(_path(each).parent)
        os.kill(each, signal.SIGKILL)
    time.sleep(0.5)


if __name__ == "__main__":
    sys.stdout.write("RESULT " + json.dumps(main(*sys.argv[1:])) + "\n")
