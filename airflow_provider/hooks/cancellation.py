"""Ending an application by the cluster manager's own means, in the ways of upstream's hook.

Only a help: the event store's cancellation (``storage.cancelling``) is what counts. This one is quicker, and frees what
a driver still waits for that has not begun.
"""

from __future__ import annotations

import logging

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook


def end_application(manager: str, external_id: str, conn_id: str, log: logging.Logger) -> None:
    """Ask the cluster manager to end an application; that it cannot be reached is a warning.

    :param manager: ``yarn`` (by its REST interface), ``kubernetes`` (deletes the driver's pod) or ``standalone``
    :param external_id: application, ``namespace:pod`` or driver id
    :param conn_id: the ``spark`` connection
    """
    if not manager or not external_id:
        return
    try:
        hook = SparkSubmitHook(conn_id=conn_id, deploy_mode="cluster", track_driver_via_k8s_api=manager == "kubernetes")
        log.info("Ending %s application %s", manager, external_id)
        if manager == "yarn":
            hook._kill_yarn_application(external_id)
        elif manager == "kubernetes":
            hook._connection["namespace"], hook._kubernetes_driver_pod = external_id.split(":", 1)
            hook._delete_driver_pod()
        elif manager == "standalone":
            hook._driver_id = external_id
            hook.on_kill()
    except Exception as error:  # noqa: BLE001 - upstream raises all kinds; the driver is fenced all the same
        log.warning(
            "The cluster manager could not be asked to end %s (%s: %s); its driver ends when it finds itself fenced.",
            external_id,
            type(error).__name__,
            error,
        )
