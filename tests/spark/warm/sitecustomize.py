"""Let the daemons of Spark import what each of their children needs, once.

Python runs this in each process that has this folder on its path: those of the tests' own session.
Spark ends a process for every error that it reports, or after a minute without work, and the next
one, a fork of its daemon, would import pandas, Arrow and ours again. Lance is left to the children:
it may not be forked.
"""

import sys

if "pyspark.daemon" in sys.orig_argv:
    import pandas as pd  # noqa: F401

    import siltstone.spark.sessions.source  # noqa: F401
