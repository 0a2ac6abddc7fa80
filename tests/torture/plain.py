"""Run scripts of several seeds one after another in one driver without us: a driver takes longer to start than they do.

Usage: plain.py FOLDER SEED…
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from pyspark.sql import SparkSession

SCRIPT = Path(__file__).with_name("script.py")


def main() -> None:
    """Run each; its outputs and witness are in ``FOLDER/plain-SEED``."""
    folder = Path(sys.argv[1])
    for seed in sys.argv[2:]:
        place = folder / f"plain-{seed}"
        place.mkdir()
        sys.argv = [str(SCRIPT), seed, str(place / "out"), str(place / "witness")]
        runpy.run_path(str(SCRIPT), run_name="__main__")
        SparkSession.builder.getOrCreate().stop()


if __name__ == "__main__":
    main()
