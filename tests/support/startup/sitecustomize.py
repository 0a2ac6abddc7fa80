"""Let Kubernetes' client be imported when it is used: it is a third of what an Airflow with a Spark operator imports.

Python imports this module first of all where its folder is in ``PYTHONPATH``; see ``tests/support/quick_python.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

LATE = "airflow.providers.cncf.kubernetes.kube_client"


class Late(MetaPathFinder):
    """Finds one module, which is executed when something in it is asked for."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how the module is loaded late; ``None`` for all others."""
        spec = PathFinder.find_spec(fullname, path, target) if fullname == LATE else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


sys.meta_path.insert(0, Late())
