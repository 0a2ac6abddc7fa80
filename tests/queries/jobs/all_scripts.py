"""The scripts beside this folder one after another in one driver, each as ``__main__``, as if it were alone.

Usage: all_scripts.py TABLES TARGET [NAME ...]
"""

import runpy
import sys
from pathlib import Path

scripts, (tables, target, *names) = Path(__file__).parents[1] / "scripts", sys.argv[1:]
for script in [scripts / f"{name}.py" for name in names] or sorted(scripts.glob("*.py")):
    sys.argv = [str(script), tables, str(Path(target) / script.stem)]
    runpy.run_path(str(script), run_name="__main__")
