"""The mark that an application bears in its cluster manager: it tells of which job it is.

What the event store says of an application may be wrong, or somebody else's; only the cluster manager knows what was
submitted. A tag on YARN, a label of the driver pod on Kubernetes.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_provider.core.digest import digest
from airflow_provider.core.job import JobId

LABEL = "spark-recovery-job"
"""Of the driver pod."""
_TAGS = "spark.yarn.tags"
_SAID = re.compile(rf"^\s*{re.escape(_TAGS)}(?:\s*[=:]\s*|\s+)(.*)$", re.MULTILINE)


def job_mark(event_store: str, job: JobId) -> str:
    """Return the mark of a job in a store. No secret: lower case, and short enough for a tag and for a label."""
    return f"spark-recovery-{digest(event_store.rstrip('/'), str(job))[:32]}"


def marked(conf: Mapping[str, Any], kind: str, mark: str, usual_tags: str = "") -> dict[str, Any]:
    """Return Spark's conf with the mark beside the tags and labels that it has.

    :param kind: see :func:`airflow_provider.airflow.deployment.manager`
    :param usual_tags: those that apply where *conf* has none
    """
    if kind == "k8s":
        return {**conf, f"spark.kubernetes.driver.label.{LABEL}": mark}
    if kind != "yarn":
        return dict(conf)
    tags = [tag.strip() for tag in str(conf.get(_TAGS, usual_tags)).split(",")]
    return {**conf, _TAGS: ",".join([*filter(None, tags), mark])}


def usual_tags(properties_file: str | None, spark_binary: str, environment: Mapping[str, str]) -> str:
    """Return the tags that ``spark-submit`` takes from a file of this machine; what is in its command replaces them.

    :param properties_file: read in the place of ``spark-defaults.conf``
    """
    path = Path(properties_file) if properties_file else _defaults(spark_binary, environment)
    try:
        said = _SAID.findall(path.read_text(errors="replace"))
    except OSError:
        return ""
    return str(said[-1]).strip() if said else ""


def _defaults(spark_binary: str, environment: Mapping[str, str]) -> Path:
    folder = environment.get("SPARK_CONF_DIR")
    if folder:
        return Path(folder) / "spark-defaults.conf"
    program = Path(shutil.which(spark_binary) or spark_binary).resolve()
    return Path(environment.get("SPARK_HOME") or program.parents[1]) / "conf" / "spark-defaults.conf"
