"""The user's application: whether it can run with recovery, and how it reaches the driver."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from airflow_provider.core.errors import ConfigurationError

_PLAIN_OPERATOR = "Submit it with SparkSubmitOperator, or set 'enabled' to false."


@dataclass(frozen=True)
class ShippedApplication:
    """How the runner finds the script: at *argument*, after ``spark-submit`` has carried it to the driver.

    :ivar files: for ``--files``, which land in the working directory of a driver in cluster mode
    :ivar py_files: for ``--py-files``: on this machine, only these are there before the Spark session
    """

    argument: str
    files: tuple[str, ...] = ()
    py_files: tuple[str, ...] = ()


def require_pyspark(application: str, java_class: str | None, master: str, remote: str = "") -> None:
    """Make sure that recovery supports the application: PySpark on a classic Spark session.

    :param remote: URL of a Spark Connect server, if the job is for one
    :raises ConfigurationError: it is a JVM or R application, missing, or for Spark Connect
    """
    if not isinstance(application, str):
        raise ConfigurationError(
            f"The operator's 'application' is {application!r}.", remedy="Give the path of a PySpark script as a text."
        )
    if java_class or application.endswith(".jar"):
        raise ConfigurationError(
            f"The application {application!r} is a JVM application"
            + (f" (java_class {java_class!r})." if java_class else "."),
            remedy=f"Recovery works for PySpark scripts. {_PLAIN_OPERATOR}",
        )
    if application.lower().endswith(".r"):
        raise ConfigurationError(
            f"The application {application!r} is an R script.",
            remedy=f"Recovery works for PySpark scripts. {_PLAIN_OPERATOR}",
        )
    if not application.strip():
        raise ConfigurationError(
            "The operator has no application.", remedy="Give 'application' the path of a PySpark script."
        )
    if master.startswith(("sc://", "spark_connect://")) or remote:
        raise ConfigurationError(
            f"The job is for Spark Connect ({remote or master}).",
            remedy="Recovery needs a driver of its own: use a connection to a Spark cluster "
            f"(local, spark://, yarn, k8s://). {_PLAIN_OPERATOR}",
        )


def ship(application: str, *, cluster_mode: bool) -> ShippedApplication:
    """Return how the script gets to the driver.

    :param cluster_mode: the driver runs on another machine than this one
    :raises ConfigurationError: the script is on this machine and does not exist, or cannot be shipped
    """
    parts = urlsplit(application)
    if parts.scheme == "local":
        return ShippedApplication(unquote(parts.path))
    if parts.scheme not in ("", "file"):
        name = parts.path.rstrip("/").rsplit("/", 1)[-1]
        if cluster_mode:
            return ShippedApplication(name, files=(application,))
        if not name.endswith(".py"):
            raise ConfigurationError(
                f"The application {application!r} does not end in '.py'.",
                remedy="spark-submit fetches only scripts that do; rename it, or give the path of a local script.",
            )
        return ShippedApplication(name, py_files=(application,))
    path = Path(unquote(parts.path) if parts.scheme else application).absolute()
    if not os.path.isfile(path):
        raise ConfigurationError(
            f"The application {application!r} does not exist on the worker (looked for {path}).",
            remedy="Check the operator's 'application', that the worker has the same files as the DAG processor, "
            "and that its user may reach them.",
        )
    return ShippedApplication(path.name, files=(str(path),)) if cluster_mode else ShippedApplication(str(path))
