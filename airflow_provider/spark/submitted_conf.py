"""The configuration that a driver was submitted with, before there is a session."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Callable, Mapping


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


def with_py_file(environment: Mapping[str, str], make: Callable[[], str]) -> dict[str, str]:
    """Return what to change in *environment* so that the JVM that is started from it hands a Python file to executors.

    Nothing under ``spark-submit``, where the JVM is there already, and nothing for a local master, or one that only the
    script will name. Python functions know only those files that were there when they were made, so it has to come
    before the session.

    :param make: called if it is needed; returns the path
    """
    if "PYSPARK_GATEWAY_PORT" in environment:
        return {}
    conf = conf_arguments(environment)
    try:
        words = shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", ""))
    except ValueError:
        return {}
    master = _flag(words, "--master") or conf.get("spark.master", "")
    if not master or master.startswith("local"):
        return {}
    # The flag replaces the property, and of two flags the last one counts: its files must be in ours.
    files = _flag(words, "--py-files") or conf.get("spark.submit.pyFiles", "")
    end = words.index("pyspark-shell") if "pyspark-shell" in words else len(words)
    flag = ["--py-files", ",".join([*([files] if files else []), make()])]
    return {"PYSPARK_SUBMIT_ARGS": shlex.join([*words[:end], *flag, *(words[end:] or ["pyspark-shell"])])}


def _flag(words: list[str], name: str) -> str:
    """Return the value of a flag, the last one's if it is there more than once."""
    values = [value for flag, value in itertools.pairwise(words) if flag == name]
    values += [word.removeprefix(f"{name}=") for word in words if word.startswith(f"{name}=")]
    return values[-1] if values else ""


def conf_arguments(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the ``--conf`` arguments of ``PYSPARK_SUBMIT_ARGS``; what cannot be read there is Spark's to refuse."""
    try:
        words = shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", ""))
    except ValueError:
        return {}
    pairs = [value for flag, value in itertools.pairwise(words) if flag in ("--conf", "-c")]
    pairs += [word.removeprefix("--conf=") for word in words if word.startswith("--conf=")]
    return {name.strip(): value for name, separator, value in (pair.partition("=") for pair in pairs) if separator}
