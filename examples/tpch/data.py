"""Data: the eight tables of TPC-H, made by `tpchgen-cli` as Parquet, and what is known of them.

Money is decimal(15, 2), as in the specification. A price is worked out in whole cents, cut off
after the discount and once more after the tax, as TPC's own generator does: so `o_totalprice` is
exactly the sum over its lineitems, and not only within a cent.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from siltstone.errors import UnavailableError

# in the order in which a foreign key finds what it refers to
KEYS: dict[str, tuple[str, ...]] = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "customer": ("c_custkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}
ORDERS_PER_SET_AND_SCALE = 1_500


def generate(folder: Path, scale: float) -> dict[str, Path]:
    """Make the tables at a scale factor, in a new directory; return the file of each.

    Raises:
        UnavailableError: The generator is not installed, or it failed.
    """
    folder.mkdir(parents=True)
    command = [generator(), "parquet", "-s", f"{scale:g}", "-o", str(folder), "--no-progress"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:]
        raise UnavailableError(f"tpchgen-cli ended with {done.returncode}: {' '.join(last)}")
    return {name: folder / f"{name}.parquet" for name in KEYS}


def generator(places: str | None = None) -> str:
    """Return where the generator is: beside this Python, or on the PATH.

    Raises:
        UnavailableError: It is in none of these places.
    """
    beside = [sysconfig.get_path("scripts"), os.environ.get("PATH", "")]
    found = shutil.which("tpchgen-cli", path=os.pathsep.join(beside) if places is None else places)
    if found is None:
        raise UnavailableError("the demo needs tpchgen-cli: pip install 'siltstone[demo]'")
    return found


def schema(file: Path) -> pa.Schema:
    """Return the columns of a generated table, with the types that a store has for them."""
    return pa.schema([
        (each.name, pa.string() if pa.types.is_string_view(each.type) else each.type)
        for each in pq.read_schema(file)
    ])  # fmt: skip


@dataclass(frozen=True)
class BaseTables:
    """What never changes about the generated tables, and the orders to take away.

    At scale 1 it holds 12 MB.
    """

    scale: float
    customers: int
    order_keys: npt.NDArray[np.int64]  # ascending
    balance: Decimal  # of all customers

    @property
    def orders_per_set(self) -> int:
        """How many orders a refresh set inserts, and how many it deletes."""
        return max(1, round(ORDERS_PER_SET_AND_SCALE * self.scale))

    @classmethod
    def read(cls, files: Mapping[str, Path], scale: float) -> BaseTables:
        """Read it from the files that `generate` made."""
        keys = pq.read_table(files["orders"], columns=["o_orderkey"])["o_orderkey"]
        balances = pq.read_table(files["customer"], columns=["c_acctbal"])["c_acctbal"]
        return cls(scale, len(balances), np.sort(keys.to_numpy()), pc.sum(balances).as_py())
