"""What a Python function is that Spark runs on executors: an identity so exact that equal ones mean equal behaviour.

What changes nothing keeps it: comments, whitespace, where the code stands, names of local variables, docstrings and
annotations that nothing looks at, the order of a set. Which files a module reads while it runs is not looked at.
"""

from __future__ import annotations

from airflow_provider.spark.identity.functions.reader import FunctionIdentity, FunctionReader

__all__ = ["FunctionIdentity", "FunctionReader"]
