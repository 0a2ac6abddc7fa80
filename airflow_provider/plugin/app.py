"""The page's web application: HTML, JSON and two buttons. HTTP only; other modules make all decisions."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.logging.decorators import action_logging
from fastapi import Body, Depends, FastAPI, HTTPException, Request, Response, status
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse

from airflow_provider import __version__
from airflow_provider.airflow.locations import store_console
from airflow_provider.core.errors import ConfigurationError, JobAlreadyRunning, RecoveryError
from airflow_provider.core.job import JobId
from airflow_provider.core.job_view import MOST_ROWS, summary
from airflow_provider.plugin.access import Run, Task, TaskInstanceRef, User, may, may_change, may_see
from airflow_provider.plugin.location import Job, Location, read_instance, read_location, read_run, what_is_missing
from airflow_provider.plugin.spark_ui import find_spark_ui, stated_address
from airflow_provider.plugin.watched_jobs import MOST_JOBS, Seen, WatchedJobs

log = logging.getLogger(__name__)

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}
_PAGES = ("", "/", "/run", "/spark-ui")
"""What people open in a browser: whoever is not logged in is sent to Airflow's login."""
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_AT_WORK = ("running", "restarting")


def create_app() -> FastAPI:
    """Return the application that Airflow mounts below its own."""
    app = FastAPI(title="Spark recovery", version=__version__, openapi_url=None, docs_url=None, redoc_url=None)
    jobs = WatchedJobs()

    @app.middleware("http")
    async def secure(request: Request, call_next: Any) -> Response:
        # Airflow 3.1 fills in ids as they are: "+" is that of a run's moment. A space is "%20" wherever we write one.
        request.scope["query_string"] = request.scope["query_string"].replace(b"+", b"%2B")
        response: Response = await call_next(request)
        for name, value in SECURITY_HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    @app.exception_handler(HTTPException)
    async def to_login(request: Request, error: HTTPException) -> Response:
        path = request.url.path.removeprefix(request.scope.get("root_path", ""))
        if error.status_code == status.HTTP_401_UNAUTHORIZED and request.method == "GET" and path in _PAGES:
            return RedirectResponse(login_address(request), status.HTTP_303_SEE_OTHER)
        return await http_exception_handler(request, error)

    @app.get("/", dependencies=[Depends(may_see)])
    def page(request: Request) -> Response:
        return _file(request, "index.html")

    @app.get("/run", dependencies=[Depends(may_see)])
    def run_page(request: Request, run: Run, session: SessionDep) -> Response:
        """Show the page of a DAG run; a run with a single job redirects to that job's page."""
        found, _ = read_run(session, run, most=2, located=0)
        if len(found) == 1:
            return RedirectResponse(f"./?{urlencode(vars(found[0][0]), quote_via=quote)}", status.HTTP_303_SEE_OTHER)
        return _file(request, "run.html")

    for name in ("page.css", "common.js", "page.js", "run.js"):
        app.get(f"/{name}")(_serves(name))

    @app.get("/api/job", dependencies=[Depends(may_see)])
    def job(request: Request, task: Task, user: User, session: SessionDep) -> Response:
        instance, location = read_instance(session, task), read_location(session, task)
        session.commit()  # hold no connection to Airflow's database while waiting for the store
        missing, remedy = what_is_missing(instance, location)
        seen, problem = _look(jobs, location, task) if location is not None else (None, "")
        answer = {
            "task": {**vars(task), **(vars(instance) if instance is not None else {})},
            "may_change": may(user, "PUT", task.dag_id),
            "missing": missing,
            "remedy": remedy,
            "problem": problem,
            "location": _told(location, task, seen) if location is not None else None,
            **_told_of(seen),
        }
        return _unless_known(request, json.dumps(answer, separators=(",", ":")).encode(), "application/json")

    @app.get("/api/run", dependencies=[Depends(may_see)])
    def jobs_of_run(request: Request, run: Run, session: SessionDep) -> Response:
        listed, omitted = read_run(session, run, MOST_ROWS, MOST_JOBS)
        session.commit()
        places = [(location, task.job) for task, _, location in listed[:MOST_JOBS] if location is not None]
        seen = dict(zip(places, jobs.look_at(places), strict=True))
        rows = [_row(job, seen, looked_at=number < MOST_JOBS) for number, job in enumerate(listed)]
        answer = {"run": vars(run), "jobs": rows, "omitted": omitted}
        return _unless_known(request, json.dumps(answer, separators=(",", ":")).encode(), "application/json")

    @app.get("/spark-ui", dependencies=[Depends(may_see)])
    def spark_ui(task: Task, session: SessionDep) -> Response:
        location = read_location(session, task)
        session.commit()
        target = find_spark_ui(jobs, location, task) if location is not None else None
        if target is None:
            raise HTTPException(
                status.HTTP_404_NOT_FOUND,
                "No Spark UI is known of the newest attempt: it has not started, it has ended and no history server is "
                "configured (spark.yarn.historyServer.address), or its UI is disabled.",
            )
        if not target.configured:
            return HTMLResponse(stated_address(target.url))
        return RedirectResponse(target.url, status.HTTP_303_SEE_OTHER)

    def button(name: str, *, delete: bool) -> None:
        @app.post(
            f"/api/{name}", dependencies=[Depends(may_change), Depends(action_logging(event=f"spark_recovery.{name}"))]
        )
        def press(
            task: Task, user: User, session: SessionDep, attempt: Annotated[int, Body(embed=True, ge=1)]
        ) -> JSONResponse:
            return _give_up(jobs, task, str(user.get_name()), session, attempt, delete=delete)

    button("discard", delete=False)
    button("release", delete=True)
    return app


def login_address(request: Request) -> str:
    """Return the login address that leads back to this request. Airflow itself checks the return address."""
    own = request.scope.get("root_path", "")
    root = own[: own.rfind("/spark-recovery")] if "/spark-recovery" in own else ""
    back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return f"{root}/api/v2/auth/login?next={quote(back, safe='')}"


def _look(jobs: WatchedJobs, location: Location, task: TaskInstanceRef) -> tuple[Seen | None, str]:
    """Look at a job; return its state, or a sentence that says why it cannot be shown."""
    try:
        return jobs.look(location, task.job), ""
    except RecoveryError as error:
        return None, str(error)


def _row(job: Job, seen: Mapping[tuple[Location, JobId], Seen | RecoveryError], *, looked_at: bool) -> dict[str, Any]:
    """Return a job's row in the list of a run, with its state if it was looked at."""
    task, instance, location = job
    found = seen.get((location, task.job)) if location is not None else None
    told = _told_of(found if isinstance(found, Seen) else None)
    return {
        "task": {**vars(task), **vars(instance)},
        "looked_at": looked_at,
        "problem": str(found) if isinstance(found, RecoveryError) else "",
        **told,
        "view": summary(told["view"]),
    }


def _told(location: Location, task: TaskInstanceRef, seen: Seen | None) -> dict[str, Any]:
    return {
        "recovery_conn_id": location.recovery_conn_id,
        "event_store": location.event_store,
        "prefix": task.job.prefix,
        "timeout": (seen.patience if seen is not None else 0.0) or location.timeout,
        "has_history": bool(location.history_server),
        "console": store_console(location.event_store, task.job),
    }


def _told_of(seen: Seen | None) -> dict[str, Any]:
    if seen is None:
        return {"pulse": "none", "claimed": 0, "host": "", "discard": None, "view": None}
    return {
        "pulse": seen.pulse,
        "claimed": seen.claimed,
        "host": seen.host,
        "discard": {**vars(seen.discard), "reason": seen.discard.reason} if seen.discard is not None else None,
        "view": seen.view,
    }


def _give_up(
    jobs: WatchedJobs, task: TaskInstanceRef, user: str, session: SessionDep, attempt: int, *, delete: bool
) -> JSONResponse:
    """Discard, and release if *delete*, unless the job has changed since the person looked at the page."""
    instance, location = read_instance(session, task), read_location(session, task)
    session.commit()
    if location is None:
        raise HTTPException(status.HTTP_409_CONFLICT, " ".join(what_is_missing(instance, location)))
    if instance is not None and instance.state in _AT_WORK:
        raise HTTPException(
            status.HTTP_409_CONFLICT,
            f"The task is {instance.state} (try {instance.try_number}). Mark it failed first, then try again.",
        )
    try:
        made, deleted = jobs.give_up(location, task.job, user, attempt, delete=delete)
    except (JobAlreadyRunning, ConfigurationError) as error:
        raise HTTPException(status.HTTP_409_CONFLICT, str(error)) from error
    except RecoveryError as error:
        raise HTTPException(status.HTTP_502_BAD_GATEWAY, str(error)) from error
    log.info("%s has discarded what job %s stored up to attempt %d", user, task.job, made.epoch)
    return JSONResponse({"attempt": made.epoch, "by": made.by, "partitions_deleted": deleted})


def _serves(name: str) -> Callable[[Request], Response]:
    """Return the endpoint of a static file."""

    def file(request: Request) -> Response:
        return _file(request, name)

    return file


@cache
def _content(name: str) -> bytes:
    return files("airflow_provider.plugin").joinpath("page", name).read_bytes()


def _file(request: Request, name: str) -> Response:
    return _unless_known(request, _content(name), f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8")


def _unless_known(request: Request, body: bytes, media_type: str) -> Response:
    """Return *body*, or "not modified" if the browser already has it."""
    tag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
    known = [told.strip() for told in request.headers.get("if-none-match", "").split(",")]
    if tag in known:
        return Response(status_code=status.HTTP_304_NOT_MODIFIED, headers={"ETag": tag})
    return Response(body, media_type=media_type, headers={"ETag": tag})
