"""What the driver makes for its executors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import zipfile
from airflow_provider.spark.environment import package_zip
assert package_zip() == package_zip()
print("airflow_provider/spark/partition_io.py" in zipfile.ZipFile(package_zip()).namelist())
"""


def test_the_package_for_the_executors_goes_with_the_driver(tmp_path: Path) -> None:
    """It is made once, holds what executors run, and leaves nothing in the folder for temporary files."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert list(tmp_path.iterdir()) == []
