"""JVMs that start quickly: most drivers of the tests live for seconds, and spend them on loading classes.

``python -m tests.support.quick_jvm`` writes an archive of the classes that a driver loads (Java's application
class-data sharing) into ``.tools``; ``make test`` does so once. Without it, or with another Java, all works as well,
more slowly.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
ARCHIVE = ROOT / ".tools" / f"spark-{version('pyspark')}.jsa"

WITHOUT_COMPILER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For any JVM that lives a few seconds: compiling well costs more than it saves, a third of the time on two cores."""

QUICK_JVM = WITHOUT_COMPILER + ("" if " " in str(ARCHIVE) else f" -XX:SharedArchiveFile={ARCHIVE}")
"""For drivers, executors and daemons, which have Spark's class path. A file that is not there is ignored."""


def write_archive() -> None:
    """Run a small driver that leaves the archive, unless it is there."""
    if ARCHIVE.exists():
        return
    import pyarrow as pa  # not for whoever only wants the options above
    import pyarrow.parquet as pq

    ARCHIVE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as name:
        folder = Path(name)
        pq.write_table(pa.table({"customer": [1, 2], "amount": [3, 4]}), folder / "orders.parquet")
        options = f"-Dlog4j2.level=error {WITHOUT_COMPILER} -XX:ArchiveClassesAtExit={folder / 'archive'}"
        settings = {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.driver.extraJavaOptions": options}
        flags = " ".join(f'--conf "{name}={value}"' for name, value in settings.items())
        runner = ["-m", "airflow_provider.cli", "run", "--event-store", f"file://{folder}/store", "--job-id", "archive"]
        script = ROOT / "tests" / "spark" / "jobs" / "two_vertices.py"
        subprocess.run(
            [sys.executable, *runner, str(script), str(folder / "orders.parquet"), str(folder / "out")],
            env={**os.environ, "PYSPARK_SUBMIT_ARGS": f"{flags} pyspark-shell", "PYSPARK_PYTHON": sys.executable},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,  # until the JVM has closed its end, too: it writes the archive after Python has ended
            check=False,
            timeout=600,
        )
        if (folder / "archive").exists():
            (folder / "archive").replace(ARCHIVE)  # whole, or not at all


if __name__ == "__main__":
    write_archive()
