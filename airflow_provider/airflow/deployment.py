"""Cluster managers and deploy modes: what recovery can be used with, said before anything is submitted."""

from __future__ import annotations

from airflow_provider.core.errors import ConfigurationError


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
