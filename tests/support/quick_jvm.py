"""JVMs that start quickly: most drivers of the tests live for seconds, and spend them on loading classes.

``python -m tests.support.quick_jvm`` writes an archive of the classes that a driver loads (Java's application
class-data sharing) into ``.tools``, and further ones for the versions of Spark that it is given; ``tools/setup.sh
quick`` does so once. Without it, or with another Java, all works as well, more slowly.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.sparks import OWN, ROOT, spark_python

WITHOUT_COMPILER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=200m"
"""For any JVM that lives a few seconds: compiling well costs more than it saves, a third of the time on two cores.

In one of many tests code that is compiled so fills the cache of 48 MiB that Java has by itself.
"""


def archive(spark: str) -> Path:
    """Where the archive of a version of Spark is, or would be."""
    return ROOT / ".tools" / f"spark-{spark}.jsa"


def quick_jvm(spark: str = OWN) -> str:
    """For drivers, executors and daemons, which have Spark's class path. A file that is not there is ignored."""
    path = str(archive(spark))
    return WITHOUT_COMPILER + ("" if " " in path else f" -XX:SharedArchiveFile={path}")


QUICK_JVM = quick_jvm()


def quick_jvms(*options: str) -> dict[str, str]:
    """For the environment of processes that start Spark as users do. ``SPARK_CONF_DIR`` would change the class path,
    and then the archive is not used; JVMs with a class path of their own do not mention it.

    :param options: further ones of Java's
    """
    return {"JDK_JAVA_OPTIONS": " ".join(["-Dlog4j2.level=warn", QUICK_JVM, "-Xlog:disable", *options])}


def write_archive(spark: str = OWN) -> None:
    """Run a small driver that leaves the archive, unless it is there."""
    written, python = archive(spark), spark_python(spark)
    if written.exists():
        return
    import pyarrow as pa  # not for whoever only wants the options above
    import pyarrow.parquet as pq

    written.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=written.parent) as name:
        folder = Path(name)
        pq.write_table(pa.table({"customer": [1, 2], "amount": [3, 4]}), folder / "orders.parquet")
        options = f"-Dlog4j2.level=error {WITHOUT_COMPILER} -XX:ArchiveClassesAtExit={folder / 'archive'}"
        settings = {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.driver.extraJavaOptions": options}
        flags = " ".join(f'--conf "{name}={value}"' for name, value in settings.items())
        runner = ["-m", "airflow_provider.cli", "run", "--event-store", f"file://{folder}/store", "--job-id", "archive"]
        script = ROOT / "tests" / "spark" / "jobs" / "two_vertices.py"
        subprocess.run(
            [python, *runner, str(script), str(folder / "orders.parquet"), str(folder / "out")],
            env={**os.environ, "PYSPARK_SUBMIT_ARGS": f"{flags} pyspark-shell", "PYSPARK_PYTHON": python},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,  # until the JVM has closed its end, too: it writes the archive after Python has ended
            check=False,
            timeout=600,
        )
        if (folder / "archive").exists():
            (folder / "archive").replace(written)  # whole, or not at all


if __name__ == "__main__":
    for version in (OWN, *sys.argv[1:]):
        write_archive(version)
