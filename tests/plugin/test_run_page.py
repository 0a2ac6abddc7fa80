"""The page of a DAG run: its jobs in one table, each leading to its own page. In the same browser, a job's buttons."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from airflow_provider.core.job_view import summary
from airflow_provider.storage.discarding import find_discard
from tests.plugin.conftest import Run, Site
from tests.support.browser import Person, chromium, complaints, picture


def test_what_was_superseded_is_not_counted() -> None:
    """Its partitions are no part of what the newest attempt has to store."""
    vertex = {"reused": 1, "computed": 2, "lost": 3, "missing": 4}
    told: dict[str, Any] = dict.fromkeys(("attempt", "partitions", "stored", "reused", "computed", "bytes_reused"), 0)
    told |= {"state": "RUNNING", "task_seconds_saved": 0.0, "extra": "dropped"}
    vertices = [{**vertex, "state": "RUNNING"}, {**vertex, "state": "SUPERSEDED"}]
    found = summary({**told, "vertices": vertices, "retry": {"work": None, "others": ["dropped"]}})
    assert found is not None
    assert {name: found[name] for name in ("stored_reused", "stored_computed", "lost", "missing")} == {
        "stored_reused": 1,
        "stored_computed": 2,
        "lost": 3,
        "missing": 4,
    }
    assert "extra" not in found
    assert found["retry"] == {"work": None}
    assert summary(None) is None


@pytest.fixture(scope="module")
def several(site: Site) -> Run:
    """A run with three jobs, two of one mapped task; all have stored two vertices of three and failed."""
    return site.run("a b spent fail", "several")


def asked(run: Run, path: str, user: str | None = "ann") -> httpx.Response:
    with run.site.client(user) as client:
        return client.get(f"/spark-recovery/{path}", params={"dag_id": run.dag_id, "run_id": run.run_id})


@pytest.mark.integration
@pytest.mark.process
def test_each_job_of_the_run_is_told_in_short(several: Run) -> None:
    """Jobs only, each with Airflow's state, its own, and its partitions; what a browser has is not sent again."""
    answer = asked(several, "api/run").raise_for_status()
    told: dict[str, Any] = answer.json()
    assert [(row["task"]["task_id"], row["task"]["map_index"], row["task"]["state"]) for row in told["jobs"]] == [
        ("job", -1, "failed"),
        ("mapped", 0, "failed"),
        ("mapped", 1, "failed"),
    ]
    for row in told["jobs"]:
        assert (row["view"]["state"], row["view"]["stored"], row["view"]["stored_computed"]) == ("FAILED", 8, 8)
        assert "vertices" not in row["view"]
    assert told["omitted"] == 0
    with several.site.client() as client:
        again = client.get(answer.url, headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.integration
@pytest.mark.process
def test_a_run_with_one_job_leads_to_it(failed: Run) -> None:
    """To the page of that job, with all of its ids."""
    answer = asked(failed, "run")
    assert answer.status_code == 303
    page = httpx.URL(str(answer.url)).join(answer.headers["location"])
    assert page.path == "/spark-recovery/"
    assert dict(page.params) == {name: str(value) for name, value in failed.query().items()}


@pytest.mark.integration
@pytest.mark.process
@pytest.mark.parametrize("path", ["run", "api/run"])
def test_only_who_may_see_the_dag_sees_its_run(several: Run, path: str) -> None:
    """Without login people are sent to it and programs refused; without permission both are refused."""
    assert asked(several, path, None).status_code == {"run": 303, "api/run": 401}[path]
    for user in ("nobody", "other_dag"):
        assert asked(several, path, user).status_code == 403
    assert asked(several, path, "vic").status_code == 200


@pytest.mark.integration
@pytest.mark.process
def test_a_person_finds_the_job(several: Run, tmp_path: Path) -> None:
    """The table in a real browser, with the share of each job that a retry would keep, and one click to a job's own
    page; nothing is blocked or missing.
    """
    site = several.site
    with chromium(tmp_path / "profile") as browser:
        person = Person(browser)
        site.log_in(browser)
        ids = {"dag_id": several.dag_id, "run_id": several.run_id}
        browser.get(f"{site.url}/spark-recovery/run?{urlencode(ids)}")
        rows = person.wait_for("the table", lambda: person.css("#jobs tbody tr"))
        assert [row.find_element(By.TAG_NAME, "th").text for row in rows] == ["job", "mapped [0]", "mapped [1]"]
        for row in rows:
            assert all(each in row.text for each in ("failed", "8 of 8 partitions", "80 %"))
        assert person.text("#subtitle") == "3 jobs · 0 partitions reused, 24 computed"
        picture(browser, "run")
        person.click("//a[normalize-space()='mapped [1]']")
        person.wait_for("the job's page", lambda: person.css(".vertex canvas"))
        assert person.text("#heading") == "mapped [1]"
        assert complaints(browser) == []


@pytest.mark.integration
@pytest.mark.process
def test_a_run_without_jobs_says_so(site: Site, tmp_path: Path) -> None:
    """In words, in place of an empty table."""
    with chromium(tmp_path / "profile") as browser:
        person = Person(browser)
        site.log_in(browser)
        browser.get(f"{site.url}/spark-recovery/run?{urlencode({'dag_id': 'etl', 'run_id': 'no-such-run'})}")
        person.wait_for("the words", lambda: person.text("#empty"))
        assert "No Spark job here that a retry could resume." in person.text("#empty")
        assert not browser.find_element(By.ID, "jobs").is_displayed()


@pytest.mark.integration
@pytest.mark.process
def test_a_person_sees_what_would_be_lost_now(tmp_path: Path, site: Site) -> None:
    """The share of the work so far that a retry would keep: of all at the top, and of each recovery point; where the
    driver does not know what was spent, the page says what a retry would save.
    """
    run = site.run("a b spent fail")
    with chromium(tmp_path / "profile") as browser:
        person = Person(browser)
        site.log_in(browser)
        browser.get(f"{site.url}/spark-recovery/?{urlencode(run.query())}")
        person.wait_for("the figure", lambda: person.text("#retry-figure"))
        figure = [person.text(f"#retry-{part}") for part in ("title", "figure", "text")]
        assert figure == ["A retry would keep", "80 %", "of the work so far: 40 s of 50 s of task time"]
        assert ["a retry would keep 100 %, 20 s of 20 s" in row.text for row in person.css(".vertex")] == [True, True]
        rest = "nothing has read yet: a retry would keep 0 s of 10 s of task time"
        assert rest in person.text("#notes")
        assert complaints(browser) == []
        picture(browser, "share")
        run.again("fail")
        person.wait_for("the next attempt", lambda: person.text("#retry-title") == "A retry would save")


@pytest.mark.integration
@pytest.mark.process
def test_a_retry_after_a_driver_that_recorded_nothing(tmp_path: Path, site: Site, failed: Run) -> None:
    """It was killed right after its claim; while the next one starts, the page says that nothing is recorded."""
    answer = failed.see().json()
    starting = {**answer, "view": None, "pulse": "silent", "task": {**answer["task"], "state": "running"}}
    with chromium(tmp_path / "profile") as browser:
        person = Person(browser)
        site.log_in(browser)
        browser.get(f"{site.url}/spark-recovery/?{urlencode(failed.query())}")
        person.wait_for("the page", lambda: person.text("#heading"))
        said = "show(arguments[0]); return document.getElementById('empty-title').textContent"
        # In one step: the page asks again every second, and Airflow knows more than this.
        assert browser.execute_script(said, starting) == "Nothing is recorded yet."
        assert complaints(browser) == []


@pytest.mark.integration
@pytest.mark.process
def test_the_buttons_ask_first(tmp_path: Path, site: Site) -> None:
    """Escape changes nothing; a confirmed discard is said, and the job starts afresh; a release deletes."""
    run = site.run("a b fail")
    with chromium(tmp_path / "profile") as browser:
        person = Person(browser)
        site.log_in(browser)
        browser.get(f"{site.url}/spark-recovery/?{urlencode(run.query())}")
        person.click("//button[@id='discard']")
        assert browser.switch_to.active_element.text == "Cancel"
        ActionChains(browser).send_keys(Keys.ESCAPE).perform()
        assert not browser.find_element(By.ID, "confirm").is_displayed()
        assert find_discard(site.store, run.job.prefix, 1) is None
        for button, said in (("discard", "starts afresh"), ("release", "8 partitions deleted")):
            person.click(f"//button[@id='{button}']")
            person.click("//button[@id='confirm-yes']")
            person.wait_for(said, lambda said=said: said in person.text("#notices [data-notice=done]"))  # type: ignore[misc]
            picture(browser, button)
        assert find_discard(site.store, run.job.prefix, 1) is not None
        assert "was discarded by ann" in person.text("#notices [data-notice=discard]")
        assert complaints(browser) == []
