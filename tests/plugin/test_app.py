"""The page inside a real API server of Airflow: who may see, who may press the buttons, and what is said."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import httpx
import pytest

from airflow_provider.cli.demo.demo_processes import wait_until as found
from airflow_provider.core import events as ev
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.links import recovery_links
from airflow_provider.plugin import location
from airflow_provider.plugin.access import task_instance
from airflow_provider.plugin.location import Location
from airflow_provider.plugin.spark_ui import find_spark_ui, stated_address
from airflow_provider.plugin.watched_jobs import WatchedJobs
from airflow_provider.storage.claims import Claims
from airflow_provider.storage.discarding import find_discard
from airflow_provider.storage.event_writer import JobEventWriter
from airflow_provider.storage.heartbeat import Heartbeat
from airflow_provider.storage.partition_store import PartitionStore
from tests.plugin.conftest import Run, Site
from tests.support.small_driver import PARTITIONS
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.integration]

BUTTONS = ("discard", "release")


def stored_by(run: Run) -> set[int]:
    survivors = PartitionStore(run.site.store, run.job.prefix).survivors()
    return {partition.epoch for found in survivors.values() for partition in found}


def test_the_page_shows_what_the_job_has_stored(failed: Run) -> None:
    """Found by what the try itself said: the job's vertices, its attempt, and where all of it is."""
    answer = failed.see().raise_for_status().json()
    assert (answer["missing"], answer["problem"]) == ("", "")
    assert answer["task"]["state"] == "failed"
    assert answer["location"]["event_store"] == failed.site.event_store
    assert answer["location"]["prefix"] == failed.job.prefix
    view = answer["view"]
    assert {vertex["name"]: vertex["cells"] for vertex in view["vertices"]} == {"a": "c4", "b": "c4"}
    assert [(attempt["state"], attempt["error"]) for attempt in view["attempts"]] == [
        ("FAILED", "ZeroDivisionError: division by zero")
    ]
    assert (answer["pulse"], answer["claimed"], answer["may_change"]) == ("FAILED", 1, True)
    assert failed.see(map_index="{MAP_INDEX}").json() == answer, "Airflow fills this in for mapped tasks only"


def test_the_address_that_airflow_3_1_makes(failed: Run) -> None:
    """It fills in ids as they are: the ``+`` in the id of a run is no space, on its page and in what that asks for."""
    assert "+" in failed.run_id
    ids = "&".join(f"{name}={value}" for name, value in failed.query().items())
    with failed.site.client() as client:
        answer = client.get(f"/spark-recovery/api/job?{ids}")
        assert answer.request.url.query.count(b"+") == failed.run_id.count("+")
        assert answer.json() == failed.see().json()
        run = client.get(f"/spark-recovery/run?dag_id={failed.dag_id}&run_id={failed.run_id}")
    page = httpx.URL(run.headers["location"])
    assert page.params["run_id"] == failed.run_id


def test_the_html_and_its_files(failed: Run) -> None:
    """Everything comes from this server, under a policy that lets nothing else in, and no inline script would run."""
    with failed.site.client() as client:
        page = client.get("/spark-recovery/", params=failed.query())
        assert page.headers["content-type"].startswith("text/html")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'self'" in policy
        assert "<script src=" in page.text
        assert "://" not in page.text.replace("http://www.w3.org", "")
        for name in ("page.css", "common.js", "page.js", "run.js"):
            file = client.get(f"/spark-recovery/{name}").raise_for_status()
            assert file.headers["x-content-type-options"] == "nosniff"


def test_nothing_new_is_not_sent_again(failed: Run) -> None:
    """A browser that has the newest state gets 304 and no body."""
    with failed.site.client() as client:
        first = client.get("/spark-recovery/api/job", params=failed.query())
        again = client.get(
            "/spark-recovery/api/job", params=failed.query(), headers={"If-None-Match": first.headers["etag"]}
        )
    assert (again.status_code, again.content) == (304, b"")


def test_without_login(failed: Run) -> None:
    """People are sent to Airflow's login and come back; programs get 401; no button works."""
    assert failed.see(user=None).status_code == 401
    with failed.site.client(None) as client:
        for page in ("", "spark-ui"):
            answer = client.get(f"/spark-recovery/{page}", params=failed.query())
            assert answer.status_code == 303
            assert answer.headers["location"].startswith("/api/v2/auth/login?next=%2Fspark-recovery%2F")
        assert client.get(answer.headers["location"]).status_code == 307
    for button in BUTTONS:
        assert failed.press(button, user=None).status_code == 401
    assert find_discard(failed.site.store, failed.job.prefix, 1) is None


@pytest.mark.parametrize("user", ["nobody", "other_dag"])
def test_without_permission_on_the_dag(failed: Run, user: str) -> None:
    """Neither somebody without a role nor somebody with one for another DAG sees or changes anything."""
    assert failed.see(user).status_code == 403
    with failed.site.client(user) as client:
        for page in ("", "spark-ui"):
            assert client.get(f"/spark-recovery/{page}", params=failed.query()).status_code == 403
    for button in BUTTONS:
        assert failed.press(button, user).status_code == 403
        # Named twice, the DAG that is checked is the DAG that is used.
        twice = {"dag_id": ["etl", "other_dag"]}
        assert failed.press(button, user, **twice).status_code in (403, 409)  # type: ignore[arg-type]
    assert find_discard(failed.site.store, failed.job.prefix, 1) is None


def test_permission_for_one_dag(failed: Run) -> None:
    """Who may only see another DAG sees that one."""
    assert failed.see("other_dag", dag_id="other_dag").json()["missing"] == "There is no such task instance."


def test_whoever_may_only_see_presses_no_button(failed: Run) -> None:
    """A viewer sees the job, is told so, and is refused."""
    assert failed.see("vic").json()["may_change"] is False
    for button in BUTTONS:
        assert failed.press(button, "vic").status_code == 403
    assert find_discard(failed.site.store, failed.job.prefix, 1) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "application/json"},
        {"Content-Type": "text/plain", "X-Spark-Recovery": "1"},
        {"Content-Type": "application/json", "X-Spark-Recovery": "1", "Origin": "https://evil.example"},
        {"Content-Type": "application/json", "X-Spark-Recovery": "1", "Origin": "null"},
        {"Content-Type": "application/json", "X-Spark-Recovery": "1", "Sec-Fetch-Site": "cross-site"},
        {"Content-Type": "application/json", "X-Spark-Recovery": "1", "Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_sites_press_no_button(failed: Run, headers: dict[str, str]) -> None:
    """With somebody's cookie, whatever they can make a browser send."""
    for button in BUTTONS:
        assert failed.press(button, headers=headers).status_code == 403
    assert find_discard(failed.site.store, failed.job.prefix, 1) is None


def test_discard(site: Site) -> None:
    """It keeps the partitions, says who did it, is in Airflow's audit log, and the next driver computes everything."""
    run = site.run("a b fail")
    answer = run.press("discard")
    assert (answer.status_code, answer.json()) == (200, {"attempt": 1, "by": "ann", "partitions_deleted": 0})
    assert stored_by(run) == {1}
    assert run.see().json()["discard"]["reason"].endswith("was discarded by ann")
    with site.client() as client:
        audit = client.get("/api/v2/eventLogs", params={"event": "spark_recovery.discard", "run_id": run.run_id})
        assert [(entry["owner"], entry["task_id"]) for entry in audit.json()["event_logs"]] == [("ann", "job")]
    run.again("a b fail")
    view = run.view_of(attempt=2)
    assert {vertex["name"]: vertex["cells"] for vertex in view["vertices"]} == {"a": "c4", "b": "c4"}
    assert view["attempts"][1]["fresh"] is True


@pytest.mark.walk  # its like are the other tests of a discard
def test_without_a_discard_the_next_driver_reuses(site: Site) -> None:
    """The page tells kept from computed, and who has not looked at the newest attempt cannot discard it."""
    run = site.run("a fail")
    run.again("a b fail")
    view = run.view_of(attempt=2)
    assert {vertex["name"]: vertex["cells"] for vertex in view["vertices"]} == {"a": "r4", "b": "c4"}
    refused = run.press("discard", attempt=1)
    assert refused.status_code == 409
    assert "Attempt 2 has begun since the page was loaded" in refused.json()["detail"]


def test_release(site: Site) -> None:
    """The partitions are gone, the story stays."""
    run = site.run("a b fail")
    assert run.press("release").json()["partitions_deleted"] == 2 * PARTITIONS
    assert stored_by(run) == set()
    assert len(run.see().json()["view"]["attempts"]) == 1


def test_a_driver_at_work_is_left_alone_and_its_job_is_followed(site: Site) -> None:
    """409 with what to do, at once; that its heartbeat moves is known from the second look on. Its records show up."""
    run = site.run("a fail")
    claim = Claims(site.store, run.job.prefix).claim()
    beat = Heartbeat(site.store, run.job.prefix, claim, 0.05, lambda _: None)
    writer = JobEventWriter(
        site.store, run.job.prefix, claim, RecoveryOptions(), on_fenced=lambda _: None, on_broken=lambda _: None
    )
    writer.begin(lambda _: ev.AttemptStarted(epoch=claim.epoch, host="here"))
    writer.flush()
    beat.start()
    try:
        for button in BUTTONS:
            said: list[str] = []

            def is_seen_to_move(button: str = button, said: list[str] = said) -> bool:
                refused = run.press(button, attempt=claim.epoch)
                assert refused.status_code == 409
                said.append(refused.json()["detail"])
                return "its heartbeat moves" in said[-1]

            wait_until(is_seen_to_move, "the heartbeat to be seen to move")
            assert all("Try again" in words or "then try again" in words for words in said)
        answer = run.see().json()
        assert (answer["view"]["attempt"], answer["claimed"]) == (2, 2)
    finally:
        writer.close()
        beat.stop("FAILED")
    assert stored_by(run) == {1}


def test_what_is_missing_is_said(failed: Run) -> None:
    """A task of another kind, a task that does not exist, and an address that names none."""
    assert failed.see(task_id="empty").json()["missing"].startswith("This task is run by EmptyOperator")
    assert failed.see(run_id="no-such-run").json()["missing"] == "There is no such task instance."
    assert failed.see(task_id="").status_code == 422
    for button in BUTTONS:
        assert failed.press(button, task_id="empty").status_code == 409


def test_the_spark_ui(site: Site) -> None:
    """Of an attempt that is over nothing is known without a history server, and that is said. Where a driver that runs
    says that its UI is, nobody is sent: the address is shown.
    """
    run = site.run("a fail")
    with site.client() as client:
        answer = client.get("/spark-recovery/spark-ui", params=run.query())
        assert answer.status_code == 404
        assert "history server" in answer.json()["detail"]
        claim = Claims(site.store, run.job.prefix).claim()
        writer = JobEventWriter(
            site.store, run.job.prefix, claim, RecoveryOptions(), on_fenced=lambda _: None, on_broken=lambda _: None
        )
        writer.begin(lambda _: ev.AttemptStarted(epoch=claim.epoch, host="here"))
        writer.append(ev.SparkApplicationStarted(epoch=claim.epoch, application_id="app", ui_url="http://elsewhere/x"))
        writer.close()

        def told() -> httpx.Response | None:
            answer = client.get("/spark-recovery/spark-ui", params=run.query())
            return answer if answer.status_code != 404 else None

        shown = found("the address of the driver", told, timeout=20)
    assert (shown.status_code, shown.headers.get("location")) == (200, None)
    assert "elsewhere" in shown.text


def test_an_address_that_a_driver_states_is_shown_before_anybody_goes_there() -> None:
    """Airflow's address redirects to no address from the event store, and what is in it stays text."""
    page = stated_address('http://driver:4040/"><script>alert(1)</script>')
    assert "<strong>driver:4040</strong>" in page
    assert 'href="http://driver:4040/&quot;&gt;&lt;script&gt;' in page
    assert "<script>" not in page


def test_what_is_no_address_leads_nowhere() -> None:
    """Whatever a driver has recorded, or the address bar holds."""
    seen = SimpleNamespace(application_id="app", ui_url="http://[x")
    jobs = cast("WatchedJobs", SimpleNamespace(look=lambda *_: seen))
    nowhere = cast("Location", SimpleNamespace(history_server=""))
    assert find_spark_ui(jobs, nowhere, task_instance("etl", "run", "job", "7")) is None
    assert task_instance("etl", "run", "job", "9" * 5000).map_index == -1


def test_airflow_shows_tab_and_links(failed: Run) -> None:
    """Each tab is registered once, and the task instance has the operator's links."""
    with failed.site.client() as client:
        plugins = client.get("/api/v2/plugins").json()
        named = [plugin for plugin in plugins["plugins"] if plugin["name"] == "spark_recovery"]
        views = [view["destination"] for plugin in named for view in plugin["external_views"]]
        assert views == ["task_instance", "dag_run"]
        entries = client.get(
            f"/api/v2/dags/etl/dagRuns/{failed.run_id}/taskInstances/job/xcomEntries",
        ).json()["xcom_entries"]
    assert {entry["key"] for entry in entries} >= {"spark_recovery", "_link_RecoveryPageLink", "_link_SparkUiLink"}


def test_operator_and_page_mean_the_same_xcom() -> None:
    """They must not import each other."""
    assert recovery_links.LOCATION_KEY == location.LOCATION_KEY
