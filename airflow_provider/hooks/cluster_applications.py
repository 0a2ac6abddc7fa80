"""Find and end an application that another try submitted, through the cluster manager.

Needed if another worker started a driver in cluster mode, so that there is no process on this machine to end. The
application's name comes from places where others can write, above all the event store, so it is trusted only if the
cluster manager confirms that the application bears this job's mark (see
:mod:`airflow_provider.airflow.cluster_managers`).
"""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow_provider.airflow import order
from airflow_provider.airflow.cluster_managers import LABEL, manager
from airflow_provider.airflow.ending_driver import end_driver
from airflow_provider.hooks.spark_recovery import SparkRecoveryHook
from airflow_provider.storage.claims import Claim, same_machine

_PATIENCE = 30
"""Seconds that YARN's command line may take."""
_YARN_NAME = re.compile(r"application_[0-9]+_[0-9]+")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_POD_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


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

    @property
    def by_hand(self) -> str:
        """The command that ends it."""
        if self.manager == "k8s":
            return f"kubectl delete pod --namespace {self.namespace} {self.name}"
        return f"yarn application -kill {self.name}"


def application_of(
    master: str, *, cluster_mode: bool, namespace: str, host: str, recorded: str, remembered: str
) -> Application | None:
    """Return the application of an attempt; ``None`` if it is unknown.

    The driver's own record takes precedence, because upstream's durable mode saves the application only after
    submitting, so it may remember that of another attempt.

    :param namespace: the Kubernetes namespace of the Spark connection
    :param host: the host that claimed the job, on Kubernetes the pod
    :param recorded: Spark's application id from the attempt's events; empty text before the first recovery point
    :param remembered: external id stored by upstream's durable mode, or empty text
    """
    kind, known = manager(master), remembered_application(master, remembered)
    if kind == "yarn":
        return _on_yarn(recorded) or known
    if kind == "k8s" and cluster_mode:
        if known is not None and host and known.name.startswith(host):  # as a host name, a long pod name is cut
            return known
        return _on_kubernetes(namespace or "default", host)
    return None


def remembered_application(master: str, remembered: str) -> Application | None:
    """Return the application that upstream's durable mode remembers; ``None`` if it does not fit the master."""
    kind = manager(master)
    if kind == "yarn":
        return _on_yarn(remembered)
    if kind == "k8s":
        space, _, pod = remembered.partition(":")
        return _on_kubernetes(space, pod)
    return None


def _on_yarn(name: str) -> Application | None:
    return Application("yarn", name) if _YARN_NAME.fullmatch(name) else None


def _on_kubernetes(namespace: str, name: str) -> Application | None:
    named = _NAMESPACE.fullmatch(namespace) and _POD_NAME.fullmatch(name)
    return Application("k8s", name, namespace) if named else None


def end_attempt(
    claim: Claim,
    application: Application | None,
    mark: str,
    hook: SparkRecoveryHook,
    fence: Callable[[], None],
    log: logging.Logger,
) -> None:
    """End the driver that holds *claim*: by its process if it runs on this machine, else through its cluster manager.

    In cluster mode always through the cluster manager: YARN restarts a failed application master.

    :param mark: the job's mark in the cluster manager
    :param fence: makes the driver end itself and prevents a new one; called first, because the cluster manager may be
        unreachable
    """
    by_process = application is None or (not hook.cluster_mode and same_machine(claim))
    if by_process and end_driver(claim, log):
        return
    fence()
    if application is not None:
        end_application(application, mark, hook, log)


def end_remembered(told: order.Application, mark: str, log: logging.Logger) -> None:
    """Ask the cluster manager to end the application that a deferred task remembers, if any.

    Best effort: the job has been cancelled in the event store already. This is faster, and frees resources that a
    driver that has not started yet still waits for.

    :param mark: the job's mark in the cluster manager
    """
    application = remembered_application(told.manager, told.external_id)
    if application is None:
        return
    try:
        hook = SparkRecoveryHook(conn_id=told.conn_id, deploy_mode="cluster")
    except Exception as error:  # noqa: BLE001 - whatever is wrong with the connection, the driver is fenced
        log.warning("The cluster manager cannot be asked to end %s: %s", application, error)
        return
    end_application(application, mark, hook, log)


def end_application(application: Application, mark: str, hook: SparkRecoveryHook, log: logging.Logger) -> None:
    """Ask the cluster manager to end *application* if it bears *mark*; errors are logged as warnings."""
    try:
        if application.manager == "k8s":
            ended = _end_pod(application, mark)
        elif hook.yarn_address:
            ended = _end_on_yarn(application.name, mark, hook)
        else:
            ended = _end_by_command(application.name, mark)
    except Exception as error:  # noqa: BLE001 - whatever the clients raise, the task is ending
        reason = getattr(error, "reason", "") or error  # Kubernetes errors also contain response headers
        log.warning("%s could not be ended (%s). End it by hand: %s", application, reason, application.by_hand)
        return
    if ended:
        log.info("The cluster manager was asked to end %s.", application)
        return
    log.warning(
        "%s was not ended: the cluster manager does not confirm that it belongs to this job (%s), and the event store "
        "alone is not trusted. If it belongs to this job, end it by hand: %s",
        application,
        mark,
        application.by_hand,
    )


def _end_pod(application: Application, mark: str) -> bool:
    """Delete a driver pod if it bears *mark*; return whether it does."""
    from airflow.providers.cncf.kubernetes import kube_client
    from kubernetes.client import V1DeleteOptions, V1Preconditions

    client: Any = kube_client.get_kube_client()
    found = client.read_namespaced_pod(application.name, application.namespace).metadata
    if (found.labels or {}).get(LABEL) != mark:
        return False
    # Another pod may have taken the name in the meantime.
    this_one = V1DeleteOptions(preconditions=V1Preconditions(uid=found.uid))
    client.delete_namespaced_pod(application.name, application.namespace, body=this_one)
    return True


def _end_on_yarn(name: str, mark: str, hook: SparkRecoveryHook) -> bool:
    """Kill an application through the ResourceManager's REST API if it bears *mark*; return whether it does."""
    if mark not in hook.yarn_tags(name):
        return False
    hook._kill_yarn_application(name)
    return True


def _end_by_command(name: str, mark: str) -> bool:
    """Kill an application with YARN's command line if it bears *mark*; return whether it does.

    The command's report of one application has no tags, but its list can be filtered by tag.
    """
    listed = _yarn("-list", "-appTags", mark)
    if name not in [line.split(maxsplit=1)[0] for line in listed.splitlines() if line.strip()]:
        return False
    _yarn("-kill", name)
    return True


def _yarn(*arguments: str) -> str:
    """Run ``yarn application``; return what it prints.

    :raises RuntimeError: the command is missing or failed
    """
    program = shutil.which("yarn")
    if program is None:
        raise RuntimeError(
            "there is no 'yarn' on the worker's PATH and no 'yarn_resourcemanager_webapp_address' in the Spark "
            "connection's extra"
        )
    command = [program, "application", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)  # noqa: S603
    if done.returncode:
        raise RuntimeError(f"'yarn {' '.join(command[1:])}' ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout
