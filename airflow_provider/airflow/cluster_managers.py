"""Cluster managers: what recovery can be used with, and the mark that an application bears there.

What the event store says of an application may be wrong, or somebody else's; only the cluster manager knows what was
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
    """Return what kind of cluster a master URL is for: ``local``, ``standalone``, ``yarn``, ``k8s`` or empty text."""
    for beginning, kind in (("local", "local"), ("spark://", "standalone"), ("yarn", "yarn"), ("k8s", "k8s")):
        if master.startswith(beginning):
            return kind
    return ""


def require_deployment(master: str, *, cluster_mode: bool) -> None:
    """Make sure that Spark can put a Python driver where the deploy mode says.

    The refusals are those of Spark's ``SparkSubmit``, which makes them after a JVM has started, at every retry.

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
    :raises ConfigurationError: it has not; upstream would refuse at every retry
    """
    if yarn_cluster and durable and not tracked:
        raise ConfigurationError(
            "On YARN in cluster mode, durable=True needs yarn_track_via_rm_api=True.",
            remedy="Set it, and 'yarn_resourcemanager_webapp_address' in the Spark connection's extra; or set "
            "durable=False: a retry attaches by the driver's heartbeat all the same.",
        )


def job_mark(event_store: str, job: JobId) -> str:
    """Return the mark of a job in a store. No secret: lower case, and short enough for a tag and for a label."""
    return f"spark-recovery-{digest(event_store.rstrip('/'), str(job))[:32]}"


def marked(conf: Mapping[str, Any], kind: str, mark: str, usual_tags: str = "") -> dict[str, Any]:
    """Return Spark's conf with the mark beside the tags and labels that it has.

    :param kind: see :func:`manager`
    :param usual_tags: those that apply where *conf* has none
    """
    if kind == "k8s":
        return {**conf, f"spark.kubernetes.driver.label.{LABEL}": mark}
    if kind != "yarn":
        return dict(conf)
    tags = [tag.strip() for tag in str(conf.get(TAGS, usual_tags)).split(",")]
    return {**conf, TAGS: ",".join([*filter(None, tags), mark])}


def said_in_files(name: str, properties_file: str | None, spark_binary: str, environment: Mapping[str, str]) -> str:
    """Return what ``spark-submit`` takes for a property from a file of this machine, if its command does not name it.

    :param properties_file: read in the place of ``spark-defaults.conf``
    """
    path = Path(properties_file) if properties_file else _defaults(spark_binary, environment)
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return ""
    said = re.findall(rf"^\s*{re.escape(name)}(?:\s*[=:]\s*|\s+)(.*)$", text, re.MULTILINE)
    return str(said[-1]).strip() if said else ""


def _defaults(spark_binary: str, environment: Mapping[str, str]) -> Path:
    folder = environment.get("SPARK_CONF_DIR")
    if folder:
        return Path(folder) / "spark-defaults.conf"
    program = Path(shutil.which(spark_binary) or spark_binary).resolve()
    return Path(environment.get("SPARK_HOME") or program.parents[1]) / "conf" / "spark-defaults.conf"
