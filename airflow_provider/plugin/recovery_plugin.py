"""The plugin that Airflow loads (entry point ``airflow.plugins``): the pages, and their tabs in the UI of task
instances and DAG runs.

Schedulers and workers also load plugins, so nothing heavy is imported before the first request for a page.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from airflow_provider.airflow.locations import URL_PREFIX


class LazyApp:
    """An ASGI application that is created on the first request."""

    @cached_property
    def _app(self) -> Any:
        from airflow_provider.plugin.app import create_app

        return create_app()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request."""
        await self._app(scope, receive, send)


class SparkRecoveryPlugin(AirflowPlugin):
    """The recovery page in Airflow's UI."""

    name = "spark_recovery"
    fastapi_apps = [{"app": LazyApp(), "url_prefix": URL_PREFIX, "name": "Spark recovery"}]  # noqa: RUF012 - Airflow's form
    external_views = [  # noqa: RUF012 - Airflow's form
        {
            "name": "Spark recovery",
            # Relative to Airflow's base URL, wherever that is.
            "href": URL_PREFIX[1:] + "/?dag_id={DAG_ID}&run_id={RUN_ID}&task_id={TASK_ID}&map_index={MAP_INDEX}",
            "destination": "task_instance",
            "url_route": "spark_recovery",
        },
        {
            "name": "Spark recovery",
            "href": URL_PREFIX[1:] + "/run?dag_id={DAG_ID}&run_id={RUN_ID}",
            "destination": "dag_run",
            "url_route": "spark_recovery_run",
        },
    ]
