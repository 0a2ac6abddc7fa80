"""What a try says of itself as soon as it begins, so that Airflow's UI can show the job while it runs.

Pushed as XComs in each try, because Airflow wipes them before each. Nothing of it is secret: the name of a connection,
never what it holds.
"""

from __future__ import annotations

import logging
from typing import Any

from airflow_provider.links.recovery_links import LINKS

LOCATION_KEY = "spark_recovery"
"""XCom with what the recovery page has to know."""


def publish(operator: Any, instance: Any, location: dict[str, Any], log: logging.Logger) -> None:
    """Push where the job's state is, and the links. That it cannot be shown is no reason to fail.

    :param instance: the task instance
    :param location: plain JSON without secrets
    """
    try:
        instance.xcom_push(key=LOCATION_KEY, value=location)
        for link in LINKS:
            instance.xcom_push(key=link.xcom_key, value=link.get_link(operator, ti_key=instance))
    except Exception as error:  # noqa: BLE001 - the job runs without its page
        log.warning("The recovery page cannot be told where the job's state is: %s", error)
