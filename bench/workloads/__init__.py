"""Workloads: one module for each question; the order here is the order of a run."""

from bench.processes.workload import Processes
from bench.reach.workload import Reach
from bench.workload import Workload
from bench.workloads.batches import Batches
from bench.workloads.compacted import Compacted
from bench.workloads.folding import Folding
from bench.workloads.indexed import Indexed
from bench.workloads.interference import Interference
from bench.workloads.large_reads import LargeReads
from bench.workloads.loads import Loads
from bench.workloads.looping import Looping
from bench.workloads.memory import Memory
from bench.workloads.mixed import Mixed
from bench.workloads.optimizing import Optimizing
from bench.workloads.point_reads import PointReads
from bench.workloads.processor import Processor
from bench.workloads.publishing import Publishing
from bench.workloads.ranges import Ranges
from bench.workloads.recovery import Recovery
from bench.workloads.scans import Scans
from bench.workloads.serving import Serving
from bench.workloads.starting import Starting
from bench.workloads.statements import Statements
from bench.workloads.transfers import Transfers
from bench.workloads.upserts import Upserts
from bench.workloads.vacuuming import Vacuuming
from bench.workloads.versions import Versions
from bench.workloads.written_many import WrittenMany
from bench.workloads.written_statements import WrittenStatements

ALL: tuple[Workload, ...] = (
    Upserts(),
    Batches(),
    Transfers(),
    Processor(),
    PointReads(),
    Ranges(),
    LargeReads(),
    Scans(),
    Loads(),
    Mixed(),
    Recovery(),
    Interference(),
    Optimizing(),
    Folding(),
    Compacted(),
    Indexed(),
    Statements(),
    WrittenStatements(),
    WrittenMany(),
    Vacuuming(),
    Publishing(),
    Memory(),
    Serving(),
    Processes(),
    Looping(),
    Starting(),
    Versions(),
    Reach(),
)
