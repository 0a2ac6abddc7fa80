"""Control access to the page: Airflow's own login, and its permissions on the DAG of a request."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import get_user
from airflow.configuration import conf
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, Query, Request, status

from airflow_provider.core.job import JobId

CSRF_HEADER = "X-Spark-Recovery"
"""No other site can send it: a browser would ask first (CORS), and Airflow would refuse."""


@dataclass(frozen=True)
class RunRef:
    """The DAG run of a request."""

    dag_id: str
    run_id: str


@dataclass(frozen=True)
class TaskInstanceRef:
    """The task instance of a request."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int

    @property
    def job(self) -> JobId:
        """The task instance's job."""
        return JobId.of_task_instance(self.dag_id, self.run_id, self.task_id, self.map_index)


def dag_run(dag_id: Annotated[str, Query(min_length=1)], run_id: Annotated[str, Query(min_length=1)]) -> RunRef:
    """Read the DAG run from the query."""
    return RunRef(dag_id, run_id)


def task_instance(
    dag_id: Annotated[str, Query(min_length=1)],
    run_id: Annotated[str, Query(min_length=1)],
    task_id: Annotated[str, Query(min_length=1)],
    map_index: Annotated[str, Query()] = "-1",
) -> TaskInstanceRef:
    """Read the task instance from the query. A placeholder that Airflow did not fill in, ``{MAP_INDEX}``, means an
    unmapped task.
    """
    mapped = re.fullmatch("[0-9]{1,9}", map_index)  # Airflow's database has no larger ones
    return TaskInstanceRef(dag_id, run_id, task_id, int(map_index) if mapped else -1)


Run = Annotated[RunRef, Depends(dag_run)]
Task = Annotated[TaskInstanceRef, Depends(task_instance)]
User = Annotated[BaseUser, Depends(get_user)]


def may(user: BaseUser, method: Literal["GET", "PUT"], dag_id: str) -> bool:
    """Whether *user* may see (``GET``) or clear (``PUT``) task instances of the DAG."""
    team = getattr(DagModel, "get_team_name", lambda _: None)(dag_id)
    details = DagDetails(id=dag_id, **({"team_name": team} if team else {}))
    allowed: bool = get_auth_manager().is_authorized_dag(
        method=method, access_entity=DagAccessEntity.TASK_INSTANCE, details=details, user=user
    )
    return allowed


def may_see(user: User, run: Run) -> None:
    """Reject users who may not see the DAG's task instances."""
    if not may(user, "GET", run.dag_id):
        raise HTTPException(status.HTTP_403_FORBIDDEN, "You may not see task instances of this DAG.")


def may_change(request: Request, user: User, task: Task) -> None:
    """Reject users who may not clear the DAG's task instances, and requests that do not come from the page itself."""
    if not (may(user, "GET", task.dag_id) and may(user, "PUT", task.dag_id)):
        raise HTTPException(status.HTTP_403_FORBIDDEN, "You may not change task instances of this DAG.")
    if not same_origin(request):
        raise HTTPException(status.HTTP_403_FORBIDDEN, "The request does not come from the recovery page.")


def same_origin(request: Request) -> bool:
    """Whether a modifying request comes from our own page, or from a program with its own token.

    Three defences against other sites that use a person's login: JSON and a header of our own, which no form can send;
    what the browser says about the sender, if it does; and the sender's address.
    """
    headers = request.headers
    json_body = headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
    if not json_body or headers.get(CSRF_HEADER) != "1":
        return False
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return False
    origin = headers.get("origin")
    own = {headers.get("host", ""), urlsplit(conf.get("api", "base_url", fallback="")).netloc}
    return origin is None or urlsplit(origin).netloc in own - {""}
