"""Curves: siltstone alone, with more and more of one thing; one module for each."""

from bench.curves.curve import Curve
from bench.curves.publishes import Publishes
from bench.curves.rows import Rows
from bench.curves.snapshots import Snapshots
from bench.curves.tables import Tables
from bench.curves.threads import Threads

ALL: tuple[type[Curve], ...] = (Threads, Rows, Tables, Publishes, Snapshots)
