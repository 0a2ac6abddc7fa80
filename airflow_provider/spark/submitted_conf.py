"""The configuration that a driver was submitted with, before there is a session."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Mapping


def submitted_conf() -> dict[str, str]:
    """Return Spark's properties as they were submitted.

    Under ``spark-submit`` they are asked of the JVM that started this process, so ``--conf``, ``--properties-file`` and
    ``spark-defaults.conf`` count. Without it (``spark-recovery run``) the JVM comes later, with what is in
    ``PYSPARK_SUBMIT_ARGS``; its ``--conf`` arguments are read, and no JVM is started for that.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()  # connects to that JVM; without it a conf is empty
        return dict(SparkConf().getAll())
    return conf_arguments(os.environ)


def conf_arguments(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the ``--conf`` arguments of ``PYSPARK_SUBMIT_ARGS``; what cannot be read there is Spark's to refuse."""
    try:
        words = shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", ""))
    except ValueError:
        return {}
    pairs = [value for flag, value in itertools.pairwise(words) if flag in ("--conf", "-c")]
    pairs += [word.removeprefix("--conf=") for word in words if word.startswith("--conf=")]
    return {name.strip(): value for name, separator, value in (pair.partition("=") for pair in pairs) if separator}
