"""What people do with Airflow, in a real one: tasks marked and cleared, deferred tasks, and what dies under them.

Whatever dies, the task ends green, right, written by one driver. One Airflow for all tests.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver

from airflow_provider.cli.demo.demo_processes import command_of, send, wait_until
from airflow_provider.cli.demo.local_airflow import LocalAirflow
from airflow_provider.core.faults import AFTER_PARTITION_EVENT
from airflow_provider.storage.claims import process_is_gone
from airflow_provider.storage.processes import ancestors
from tests.end_to_end.jobs import check_answer
from tests.end_to_end.scene import GRADED, TASK, TOTALS, Scene, airflow_scene
from tests.end_to_end.stage import LONG
from tests.support.browser import Person, chromium, complaints, dark, picture
from tests.support.flights import few_flights, slow_features

pytestmark = [pytest.mark.airflow, pytest.mark.process, pytest.mark.timeout(1800)]

BY_HAND_DAG, FEATURES = "flights_by_hand", "features"
KILLED_AFTER = 6
"""Partitions recorded, of 15 or more, when the first driver is killed: its tasks are some partitions ahead of it."""

BY_HAND = """\
from airflow.sdk import DAG

from airflow_provider.operators.spark_recovery import SparkRecoveryOperator

with DAG("flights_by_hand", schedule=None, params={"input_dir": "", "output_dir": ""}):
    SparkRecoveryOperator(
        task_id="features",
        application="SCRIPT",
        application_args=["{{ params.input_dir }}", "{{ params.output_dir }}"],
        env_vars={"SPARK_RECOVERY_FAULT": "{{ 'FAULT' if ti.try_number == 1 else '' }}"},
        retries=0,
    )
"""
"""No retries: a person decides what happens after a failure."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("airflow")
    script, fault = slow_features(folder), f"{AFTER_PARTITION_EVENT}@{KILLED_AFTER}"
    by_hand = BY_HAND.replace("SCRIPT", str(script)).replace("FAULT' if", f"{fault}' if")
    with airflow_scene(folder, {"by_hand.py": by_hand}) as scene:
        yield scene


def test_marked_failed(scene: Scene) -> None:
    """Marking the running task failed ends its driver and the JVM under it."""
    run = scene.begin("by_hand")
    run.wait_in_the_middle()
    claim = run.claim(1)
    jvm = ancestors(claim.pid)[1]
    assert "SparkSubmit" in command_of(jvm)
    scene.stage.airflow.mark(run.dag, run.run_id, TASK, "failed")
    wait_until("the driver to be gone", lambda: process_is_gone(claim), timeout=LONG)
    wait_until("the JVM to be gone", lambda: "SparkSubmit" not in command_of(jvm), timeout=LONG)
    assert run.instance["state"] == "failed"
    assert not run.target.exists()


def test_the_worker_is_killed_then_the_driver(scene: Scene) -> None:
    """The driver outlives its worker: the scheduler's retry attaches to it. Killed, too, it is resumed by that try."""
    run = scene.begin("retried")
    run.wait_in_the_middle()
    kill_worker(run.claim(1).pid)
    run.wait_for("running", try_number=2)
    wait_until("try 2 to attach", lambda: "attaching to it, submitting nothing" in run.logs("attempt=2*"), timeout=LONG)
    assert not process_is_gone(run.claim(1))
    run.kill_driver(1)
    run.wait_in_the_middle(epoch=2)
    run.gate.touch()
    run.wait_for("success", try_number=2)
    assert run.counts() == (TOTALS, GRADED)
    check_answer(run.target)


def test_a_deferred_task_outlives_the_triggerer(scene: Scene) -> None:
    """No worker while a driver runs; green after the triggerer was killed, and another one started."""
    scene.start_triggerer()
    first = scene.begin("deferred")
    first.wait_for("deferred")
    driver = first.claim(1)
    assert not process_is_gone(driver)
    slots = scene.stage.airflow.call("GET", "/api/v2/pools/default_pool")
    assert (slots["deferred_slots"], slots["running_slots"]) == (1, 0)
    wait_until("the trigger to follow", lambda: "Following attempt 1" in first.logs("*trigger*"), timeout=LONG)

    scene.kill_triggerer()
    assert not process_is_gone(driver), "the driver needs nobody"
    scene.start_triggerer()
    wait_until(
        "the new triggerer to follow", lambda: first.logs("*trigger*").count("Following attempt 1") == 2, timeout=LONG
    )
    first.gate.touch()
    first.wait_for("success")
    assert first.report()["state"] == "FINISHED"
    assert first.claim(1) == driver
    assert "the driver goes on" in first.logs("attempt=1.log"), "the driver's output is in the task log"
    finished = "recovery point 'graded': finished"
    wait_until("progress in the trigger's log", lambda: finished in first.logs("*trigger*"), timeout=LONG)


def test_a_deferred_tasks_driver_is_killed(scene: Scene) -> None:
    """Airflow's retry resumes the job, and is deferred, too; progress is in the trigger's log."""
    scene.start_triggerer()
    second = scene.begin("deferred")
    second.wait_for("deferred")
    wait_until("the first vertex", lambda: "'totals': finished" in second.logs("*trigger*"), timeout=LONG)
    second.kill_driver(1)
    second.wait_for("deferred", try_number=2)
    second.gate.touch()
    second.wait_for("success", try_number=2)
    assert [attempt["state"] for attempt in second.report()["attempts"]] == ["LOST", "FINISHED"]
    assert second.counts() == (TOTALS, GRADED)


class UserOfAirflow(Person):
    """A person at the browser, Airflow, and one run of the DAG."""

    def __init__(self, airflow: LocalAirflow, browser: WebDriver, run_id: str) -> None:
        super().__init__(browser)
        self.airflow = airflow
        self.run_id = run_id
        self.task_url = f"{airflow.url}/dags/{BY_HAND_DAG}/runs/{quote(run_id, safe='')}/tasks/{FEATURES}"

    def state(self) -> str:
        return str(self.airflow.task_instance(BY_HAND_DAG, self.run_id, FEATURES)["state"])

    def enter_page(self) -> None:
        """Look into the tab, where Airflow shows the recovery page in a frame."""
        self.browser.switch_to.default_content()
        path = "//iframe[@title='Spark recovery']"
        self.browser.switch_to.frame(self.wait_for("the tab", lambda: self.browser.find_element(By.XPATH, path)))
        self.wait_for("the grids", lambda: self.css(".vertex canvas"))


@pytest.fixture
def user(scene: Scene, tmp_path: Path) -> Iterator[UserOfAirflow]:
    source = tmp_path / "source"
    source.mkdir()
    conf = {"input_dir": str(few_flights(source)), "output_dir": str(scene.stage.work / "features")}
    run_id = scene.stage.airflow.trigger(BY_HAND_DAG, conf)
    with chromium(tmp_path / "profile") as browser:
        yield UserOfAirflow(scene.stage.airflow, browser, run_id)


def test_clear_in_the_ui_resumes_and_the_page_shows_it(user: UserOfAirflow) -> None:
    """Red with what is kept, cleared by hand, green, with reused and computed partitions told apart."""
    wait_until("the task to fail", lambda: user.state() == "failed", timeout=600)
    browser = user.browser
    browser.get(f"{user.airflow.url}/api/v2/auth/login?next={quote(user.task_url, safe='')}")

    user.click("//a[normalize-space()='Spark recovery']")
    user.enter_page()
    assert user.text("#heading") == FEATURES
    stored = user.cells()
    assert 0 < stored["scored"].count("c") <= KILLED_AFTER  # events of its last second died with the driver
    assert set("".join(stored.values())) == {"c", "m"}
    user.wait_for("the driver to count as lost", lambda: "lost" in user.text("#state"))
    assert complaints(browser) == []
    picture(browser, "killed")
    browser.switch_to.default_content()

    user.click("//button[@aria-label='Press shift+c to clear']")
    user.click("//*[@role='dialog']//button[normalize-space()='Confirm']")
    wait_until("the cleared task to succeed", lambda: user.state() == "success", timeout=600)

    user.enter_page()
    user.wait_for("the end on the page", lambda: "finished" in user.text("#state"))
    cells = user.cells()
    assert cells["clean"] + cells["joined"] == "rr"
    assert (cells["scored"].count("r") >= stored["scored"].count("c"), set(cells["scored"])) == (True, {"r", "c"})
    assert cells["features"] == "c"
    assert [row.text.split()[0] for row in user.css("#attempts tbody tr")] == ["2", "1"]
    assert user.browser.find_element(By.ID, "discard").is_enabled() is False
    browser.switch_to.default_content()
    user.wait_for("Airflow's own page to say so", lambda: "Success" in user.text("body"))
    picture(browser, "resumed")

    browser.get(user.task_url + "/details")
    link = user.wait_for(
        "the extra link",
        lambda: browser.find_element(
            By.XPATH, "//a[normalize-space()='Spark recovery' and contains(@href, '?dag_id=')]"
        ),
    )
    browser.get(link.get_attribute("href") or "")
    user.wait_for("the grid", lambda: user.css(".vertex canvas"))
    picture(browser, "page", whole=True, until="section:has(#attempts)")
    dark(browser, True)
    dark_paper = ".vertex canvas[data-paper='#181e28']"
    user.wait_for("dark colours", lambda: len(user.css(dark_paper)) == len(user.css(".vertex canvas")))
    picture(browser, "page-dark", whole=True)
    assert complaints(browser) == []
    everything_by_keyboard(user)


def everything_by_keyboard(user: UserOfAirflow) -> None:
    """The Tab key reaches the graph's vertices, and Enter leads to a vertex's partitions."""
    for _ in range(30):
        ActionChains(user.browser).send_keys(Keys.TAB).perform()
        if user.browser.execute_script("return document.activeElement.dataset.node || ''"):
            break
    name = user.browser.execute_script("return document.activeElement.dataset.node")
    ActionChains(user.browser).send_keys(Keys.ENTER).perform()
    assert name
    assert user.browser.execute_script("return document.activeElement.dataset.id") == name


def kill_worker(driver: int) -> None:
    """SIGKILL for the processes of Airflow's that watch a driver, not for it nor for the scheduler above them."""
    watching = []
    for pid in ancestors(driver)[1:]:
        if "airflow scheduler" in command_of(pid):
            break
        assert pid > 1
        if "airflow" in command_of(pid).split()[0]:
            watching.append(pid)
    assert watching
    send(signal.SIGKILL, watching)
