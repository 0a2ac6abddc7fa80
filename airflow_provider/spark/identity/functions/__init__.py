"""The identity of a Python function that runs on executors: equal identities mean equal behaviour.

What changes no behaviour keeps the identity: comments, whitespace, where the code stands, names of local variables,
docstrings and annotations that nothing looks at, the order of a set. Files that a module reads while it runs are not
covered.
"""

from __future__ import annotations

from airflow_provider.spark.identity.functions.reader import FunctionIdentity, FunctionReader

__all__ = ["FunctionIdentity", "FunctionReader"]
