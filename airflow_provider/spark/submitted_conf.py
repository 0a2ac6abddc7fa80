"""Spark's configuration as the driver was submitted with it, before there is a session."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


def submitted_conf() -> dict[str, str]:
    """Return Spark's properties as they were submitted.

    Under ``spark-submit`` the JVM that started this process has them, so ``--conf``, ``--properties-file`` and
    ``spark-defaults.conf`` count. Without it (``spark-recovery run``) the JVM starts later, with the arguments in
    ``PYSPARK_SUBMIT_ARGS``: only their ``--conf`` values are read, and no JVM is started for that.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()  # connects to that JVM; without it a conf is empty
        return dict(SparkConf().getAll())
    return conf_arguments(os.environ)


def with_py_file(environment: Mapping[str, str], make: Callable[[], Path]) -> dict[str, str]:
    """Return the changes to *environment* that make the JVM started from it ship a Python file to executors.

    Empty under ``spark-submit``, where the JVM already runs, and for a local master or one that only the script will
    name. Python functions know only the files that were there when they were made, so this must come before the
    session.

    :param make: called only if the file is needed; returns its path
    """
    if "PYSPARK_GATEWAY_PORT" in environment:
        return {}
    conf, words = conf_arguments(environment), _words(environment)
    master = "".join(_values(words, "--master")[-1:]) or conf.get("spark.master", "")
    if not master or master.partition("[")[0] == "local":
        return {}
    # The flag replaces the property, and the last flag wins: our list must contain its files.
    files = "".join(_values(words, "--py-files")[-1:]) or conf.get("spark.submit.pyFiles", "")
    end = words.index("pyspark-shell") if "pyspark-shell" in words else len(words)
    flag = ["--py-files", ",".join([*([files] if files else []), str(make())])]
    return {"PYSPARK_SUBMIT_ARGS": shlex.join([*words[:end], *flag, *(words[end:] or ["pyspark-shell"])])}


def conf_arguments(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the ``--conf`` arguments of ``PYSPARK_SUBMIT_ARGS``."""
    pairs = (pair.partition("=") for pair in _values(_words(environment), "--conf", "-c"))
    return {name.strip(): value for name, separator, value in pairs if separator}


def _words(environment: Mapping[str, str]) -> list[str]:
    """Return the words of ``PYSPARK_SUBMIT_ARGS``; leave it to Spark to refuse what cannot be read."""
    try:
        return shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", ""))
    except ValueError:
        return []


def _values(words: Sequence[str], name: str, *short: str) -> list[str]:
    """Return a flag's values in order, whether separate words or joined to it by ``=``."""
    found = []
    for word, following in itertools.zip_longest(words, words[1:], fillvalue=""):
        if word in (name, *short):
            found.append(following)
        elif word.startswith(f"{name}="):
            found.append(word.removeprefix(f"{name}="))
    return found
