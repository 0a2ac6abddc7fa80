"""Cluster managers: which ones recovery supports, and the mark that an application bears there.

The event store may be wrong about an application, or written by others; only the cluster manager knows what was
submitted. So each application is marked with its job: by a tag on YARN, by a label of the driver pod on Kubernetes.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_provider.core.digest import digest
from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.job import JobId

LABEL = "spark-recovery-job"
"""Of the driver pod."""
TAGS = "spark.yarn.tags"


def manager(master: str) -> str:
    """Return the cluster kind of a master URL: ``local``, ``standalone``, ``yarn``, ``k8s`` or empty text."""
    for beginning, kind in (("local", "local"), ("spark://", "standalone"), ("yarn", "yarn"), ("k8s", "k8s")):
        if master.startswith(beginning):
            return kind
    return ""


def require_deployment(master: str, *, cluster_mode: bool) -> None:
    """Make sure that Spark can run a Python driver in this deploy mode.

    ``SparkSubmit`` refuses the same combinations, but only after it has started a JVM, and again at every retry.

    :raises ConfigurationError: it cannot
    """
    if not cluster_mode:
        return
    if manager(master) == "standalone":
        raise ConfigurationError(
            f"Spark runs no Python driver in cluster mode on a standalone cluster ({master}).",
            remedy="Set the deploy mode to 'client'. A retry attaches to the driver there, too, if it outlives its "
            "worker, and resumes the job if not. Drivers on the cluster's machines need YARN or Kubernetes.",
        )
    if manager(master) == "local":
        raise ConfigurationError(
            f"The master {master!r} has no cluster that a driver in cluster mode could run on.",
            remedy="Set the deploy mode to 'client', or name a cluster in the Spark connection.",
        )


def require_tracking(*, yarn_cluster: bool, durable: bool, tracked: bool) -> None:
    """Make sure that upstream's durable mode, which is on by default, has what it needs on YARN.

    :param tracked: ``yarn_track_via_rm_api``
    :raises ConfigurationError: something is missing; upstream would refuse at every retry
    """
    if yarn_cluster and durable and not tracked:
        raise ConfigurationError(
            "On YARN in cluster mode, durable=True needs yarn_track_via_rm_api=True.",
            remedy="Set it, and 'yarn_resourcemanager_webapp_address' in the Spark connection's extra; or set "
            "durable=False: a retry attaches by the driver's heartbeat all the same.",
        )


def job_mark(event_store: str, job: JobId) -> str:
    """Return the mark of a job in a store. It is no secret, is in lower case, and fits into a tag and a label."""
    return f"spark-recovery-{digest(event_store.rstrip('/'), str(job))[:32]}"


def marked(conf: Mapping[str, Any], kind: str, mark: str, usual_tags: str = "") -> dict[str, Any]:
    """Return Spark's conf with the mark beside the tags and labels that it has.

    :param kind: see :func:`manager`
    :param usual_tags: the tags that apply if *conf* has none
    """
    if kind == "k8s":
        return {**conf, f"spark.kubernetes.driver.label.{LABEL}": mark}
    if kind != "yarn":
        return dict(conf)
    tags = [tag.strip() for tag in str(conf.get(TAGS, usual_tags)).split(",")]
    return {**conf, TAGS: ",".join([*filter(None, tags), mark])}


def said_in_files(name: str, properties_file: str | None, spark_binary: str, environment: Mapping[str, str]) -> str:
    """Return the value that ``spark-submit`` reads for a property from a file on this machine, if its command does not
    set it.

    :param properties_file: replaces ``spark-defaults.conf``
    """
    path = Path(properties_file) if properties_file else _defaults(spark_binary, environment)
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return ""
    text = re.sub(r"\\\n[^\S\n]*", "", text)  # a line that goes on
    blank = r"[^\S\n]"
    said = re.findall(rf"^{blank}*{re.escape(name)}(?:{blank}*[=:]{blank}*|{blank}+|$)(.*)$", text, re.MULTILINE)
    return str(said[-1]).strip() if said else ""


def _defaults(spark_binary: str, environment: Mapping[str, str]) -> Path:
    folder = environment.get("SPARK_CONF_DIR")
    if folder:
        return Path(folder) / "spark-defaults.conf"
    program = Path(shutil.which(spark_binary) or spark_binary).resolve()
    return Path(environment.get("SPARK_HOME") or program.parent.parent) / "conf" / "spark-defaults.conf"
