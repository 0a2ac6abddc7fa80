"""An application that this try has not submitted: its name in the cluster manager, and how it is ended there.

Needed where a driver in cluster mode was started by another worker, so that no process of this machine can be ended.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider.hooks.deployment import manager
from airflow_provider.hooks.spark_recovery import SparkRecoveryHook
from airflow_provider.operators.driver import end_driver
from airflow_provider.storage.claims import Claim, same_machine

_PATIENCE = 30
"""Seconds that YARN's command line may take."""


@dataclass(frozen=True)
class Application:
    """An application as its cluster manager knows it.

    :ivar manager: ``yarn`` or ``k8s``
    :ivar name: a YARN application id, or the name of a driver pod
    :ivar namespace: of the pod
    """

    manager: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"driver pod {self.namespace}:{self.name}" if self.manager == "k8s" else f"YARN application {self.name}"


def application_of(
    master: str, *, cluster_mode: bool, namespace: str, host: str, recorded: str, remembered: str
) -> Application | None:
    """Return the application of an attempt; ``None`` if nothing that is known names one.

    What the driver itself recorded comes first, because what upstream's durable mode remembers may be the application
    of another attempt: it is saved only after submitting.

    :param namespace: the Kubernetes namespace of the Spark connection
    :param host: the host that claimed the job, on Kubernetes the pod
    :param recorded: Spark's application id among the attempt's events; empty text before the first recovery point
    :param remembered: external id that upstream's durable mode has stored, or empty text
    """
    kind = manager(master)
    if kind == "yarn":
        name = next((name for name in (recorded, remembered) if name.startswith("application_")), "")
        return Application("yarn", name) if name else None
    if kind == "k8s" and cluster_mode:
        known = remembered_application(master, remembered)
        if known is not None and host and known.name.startswith(host):  # as a host name a long pod name is cut
            return known
        return Application("k8s", host, namespace or "default") if host else None
    return None


def remembered_application(master: str, remembered: str) -> Application | None:
    """Return what upstream's durable mode remembers; ``None`` if it cannot be for that master."""
    kind = manager(master)
    if kind == "yarn" and remembered.startswith("application_"):
        return Application("yarn", remembered)
    if kind == "k8s" and ":" in remembered:
        space, _, pod = remembered.partition(":")
        return Application("k8s", pod, space)
    return None


def end_attempt(
    claim: Claim,
    application: Application | None,
    hook: SparkRecoveryHook,
    fence: Callable[[], None],
    log: logging.Logger,
) -> None:
    """End the driver that holds *claim*: by its process where that is on this machine, else by its cluster manager.

    In cluster mode always by the latter: YARN starts a failed application master once more.

    :param fence: makes the driver end itself, and no other begin; called before the cluster manager is asked, which may
        not be within reach
    """
    by_process = application is None or (not hook.cluster_mode and same_machine(claim))
    if by_process and end_driver(claim, log):
        return
    fence()
    if application is not None:
        end_application(application, hook, log)


def end_remembered(kind: str, name: str, conn_id: str, log: logging.Logger) -> None:
    """Ask the cluster manager to end an application of which a deferred task remembers this; if it does, and can.

    Only a help: the job has been cancelled in the event store. This one is quicker, and frees what a driver still waits
    for that has not begun.

    :param kind: see :func:`airflow_provider.hooks.deployment.manager`
    :param name: as upstream's durable mode writes it: a YARN application, or ``namespace:pod``
    :param conn_id: the ``spark`` connection
    """
    application = remembered_application(kind, name)
    if application is None:
        return
    try:
        hook = SparkRecoveryHook(conn_id=conn_id, deploy_mode="cluster")
    except Exception as error:  # noqa: BLE001 - whatever is wrong with the connection, the driver is fenced
        log.warning("The cluster manager cannot be asked to end %s: %s", application, error)
        return
    end_application(application, hook, log)


def end_application(application: Application, hook: SparkRecoveryHook, log: logging.Logger) -> None:
    """Ask the cluster manager to end *application*, by upstream's own ways; what goes wrong is a warning."""
    log.info("Ending %s", application)
    try:
        if application.manager == "k8s":
            hook._kubernetes_driver_pod = application.name
            hook._connection["namespace"] = application.namespace
            hook._delete_driver_pod()
        elif hook.yarn_address:
            hook._kill_yarn_application(application.name)
        else:
            _yarn_kill(application.name, log)
    except Exception as error:  # noqa: BLE001 - whatever the clients raise, the task is being ended
        log.warning("%s could not be ended (%s). End it in the cluster manager.", application, error)


def _yarn_kill(name: str, log: logging.Logger) -> None:
    program = shutil.which("yarn")
    if program is None:
        log.warning(
            "There is no 'yarn' on the worker's PATH and no 'yarn_resourcemanager_webapp_address' in the Spark "
            "connection's extra. End it by hand: yarn application -kill %s",
            name,
        )
        return
    command = [program, "application", "-kill", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)  # noqa: S603
    log.info("'yarn application -kill %s' ended with %d. %s", name, done.returncode, done.stderr.strip()[-500:])
