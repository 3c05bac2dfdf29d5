"""Demo: the main job on real input, checked all the way.

The flights of 2013 as transactions; with `--spark` TPC-H as a pipeline on Spark, which is in
`examples/tpch` of the source, not in the package. With `--mirror` the flights again, with a bucket.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from siltstone.cli.arguments import Ndjson, form_of
from siltstone.cli.exits import UsageError
from siltstone.errors import UnavailableError

SCALE = 0.1
SOURCE = Path(__file__).parents[4]
"""Where the source is, if this is not an installed package."""

Spark = Annotated[bool, typer.Option("--spark", help="Run TPC-H as a pipeline on Spark instead.")]
Mirror = Annotated[
    bool,
    typer.Option("--mirror", help="Delete the store, and restore it from a bucket, instead."),
]
Scale = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        max=10.0,
        help="With --spark: the scale factor, by default 0.1.",
        show_default=False,
    ),
]
Seconds = Annotated[float, typer.Option(min=1.0, help="How long the workload runs.")]
Threads = Annotated[int, typer.Option(min=1, max=64, help="Threads that write.")]
Kills = Annotated[
    int,
    typer.Option(
        min=0,
        max=20,
        help="How often to kill a writer; with --spark: to stop the stream; with --mirror: to"
        " delete the store.",
    ),
]
Keep = Annotated[
    Path | None, typer.Option(help="Keep the store in this new directory.", show_default=False)
]


def demo(
    spark: Spark = False,
    mirror: Mirror = False,
    scale: Scale = None,
    seconds: Seconds = 40.0,
    threads: Threads = 4,
    kills: Kills = 2,
    keep: Keep = None,
    ndjson: Ndjson = False,
) -> None:
    """Replay the flights of 2013 as transactions. Check every snapshot; kill it; ask it."""
    _require_possible(spark=spark, mirror=mirror, kills=kills, scale=scale)
    how: dict[str, Any] = {"seconds": seconds, "threads": threads, "keep": keep}
    how["form"] = form_of(ndjson=ndjson)
    if spark:
        sys.path.insert(0, str(SOURCE))
        from examples.tpch.run import run as run_on_spark

        run_on_spark(scale=SCALE if scale is None else scale, restarts=kills, **how)
    elif mirror:
        from siltstone.cli.demo import bucket_server, lost_machine

        lost_machine.run(bucket_server.serving(), losses=kills, **how)
    else:
        from siltstone.cli.demo.run import run

        run(kills=kills, **how)


def _require_possible(*, spark: bool, mirror: bool, kills: int, scale: float | None) -> None:
    """Refuse what no demo is, and one whose packages are missing."""
    if spark and mirror:
        raise UsageError("--spark and --mirror are two demos: run one after the other")
    if mirror and not kills:
        raise UsageError("--mirror needs --kills of 1 at least: it deletes a store to restore it")
    if scale is not None and not spark:
        raise UsageError("--scale needs --spark: only the demo on Spark has it")
    if spark and not (SOURCE / "examples" / "tpch").is_dir():
        raise UnavailableError(
            "the demo on Spark is in the source of siltstone (examples/tpch), not in the package:"
            " run `make demo-spark` in a checkout, or in the unpacked source distribution"
            " `pip install -e '.[demo,spark]'` and then this command"
        )
    for package in ("duckdb", *(["pyspark"] if spark else []), *(["obstore"] if mirror else [])):
        if find_spec(package) is None:
            extras = "demo,spark" if spark else "demo"
            raise UnavailableError(f"this needs {package}: pip install 'siltstone[{extras}]'")
