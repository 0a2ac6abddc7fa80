"""A person at Airflow's UI: driver killed, task red, *Clear* pressed, and the page shows what survived."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver

from airflow_provider.cli.demo.demo_processes import wait_until
from airflow_provider.cli.demo.local_airflow import LocalAirflow
from airflow_provider.core.faults import AFTER_PARTITION_EVENT
from tests.end_to_end.stage import airflow_stage
from tests.support.browser import Person, chromium, complaints, dark, picture
from tests.support.flights import few_flights, slow_features

pytestmark = [pytest.mark.airflow, pytest.mark.process]

DAG, TASK = "flights_by_hand", "features"
KILLED_AFTER = 6
"""Partitions recorded, of 15 or more, when the first driver is killed: its tasks are some partitions ahead of it."""

DAG_FILE = """\
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


class Scene(Person):
    """A person, Airflow, and one run of the DAG."""

    def __init__(self, airflow: LocalAirflow, browser: WebDriver, run_id: str) -> None:
        super().__init__(browser)
        self.airflow = airflow
        self.run_id = run_id
        self.task_url = f"{airflow.url}/dags/{DAG}/runs/{quote(run_id, safe='')}/tasks/{TASK}"

    def state(self) -> str:
        return str(self.airflow.task_instance(DAG, self.run_id, TASK)["state"])

    def enter_page(self) -> None:
        """Look into the tab, where Airflow shows the recovery page in a frame."""
        self.browser.switch_to.default_content()
        path = "//iframe[@title='Spark recovery']"
        self.browser.switch_to.frame(self.wait_for("the tab", lambda: self.browser.find_element(By.XPATH, path)))
        self.wait_for("the grids", lambda: self.css(".vertex canvas"))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    source = tmp_path / "source"
    source.mkdir()
    fault = f"{AFTER_PARTITION_EVENT}@{KILLED_AFTER}"
    text = DAG_FILE.replace("SCRIPT", str(slow_features(tmp_path))).replace("FAULT' if", f"{fault}' if")
    with chromium(tmp_path / "profile") as browser, airflow_stage(tmp_path, {"by_hand.py": text}, DAG) as stage:
        conf = {"input_dir": str(few_flights(source)), "output_dir": str(stage.work / "features")}
        yield Scene(stage.airflow, browser, stage.airflow.trigger(DAG, conf))


@pytest.mark.timeout(1500)
def test_clear_in_the_ui_resumes_and_the_page_shows_it(scene: Scene) -> None:
    """Red with what is kept, cleared by hand, green, with reused and computed partitions told apart."""
    wait_until("the task to fail", lambda: scene.state() == "failed", timeout=600)
    browser = scene.browser
    browser.get(f"{scene.airflow.url}/api/v2/auth/login?next={quote(scene.task_url, safe='')}")

    scene.click("//a[normalize-space()='Spark recovery']")
    scene.enter_page()
    assert scene.text("#heading") == TASK
    stored = scene.cells()
    assert 0 < stored["scored"].count("c") <= KILLED_AFTER  # events of its last second died with the driver
    assert set("".join(stored.values())) == {"c", "m"}
    scene.wait_for("the driver to count as lost", lambda: "lost" in scene.text("#state"))
    assert complaints(browser) == []
    picture(browser, "killed")
    browser.switch_to.default_content()

    scene.click("//button[@aria-label='Press shift+c to clear']")
    scene.click("//*[@role='dialog']//button[normalize-space()='Confirm']")
    wait_until("the cleared task to succeed", lambda: scene.state() == "success", timeout=600)

    scene.enter_page()
    scene.wait_for("the end on the page", lambda: "finished" in scene.text("#state"))
    cells = scene.cells()
    assert cells["clean"] + cells["joined"] == "rr"
    assert (cells["scored"].count("r") >= stored["scored"].count("c"), set(cells["scored"])) == (True, {"r", "c"})
    assert cells["features"] == "c"
    assert [row.text.split()[0] for row in scene.css("#attempts tbody tr")] == ["2", "1"]
    assert scene.browser.find_element(By.ID, "discard").is_enabled() is False
    browser.switch_to.default_content()
    scene.wait_for("Airflow's own page to say so", lambda: "Success" in scene.text("body"))
    picture(browser, "resumed")

    browser.get(scene.task_url + "/details")
    link = scene.wait_for(
        "the extra link",
        lambda: browser.find_element(
            By.XPATH, "//a[normalize-space()='Spark recovery' and contains(@href, '?dag_id=')]"
        ),
    )
    browser.get(link.get_attribute("href") or "")
    scene.wait_for("the grid", lambda: scene.css(".vertex canvas"))
    picture(browser, "page", whole=True, until="section:has(#attempts)")
    dark(browser, True)
    dark_paper = ".vertex canvas[data-paper='#181e28']"
    scene.wait_for("dark colours", lambda: len(scene.css(dark_paper)) == len(scene.css(".vertex canvas")))
    picture(browser, "page-dark", whole=True)
    assert complaints(browser) == []
    everything_by_keyboard(scene)


def everything_by_keyboard(scene: Scene) -> None:
    """The Tab key reaches the graph's vertices, and Enter leads to a vertex's partitions."""
    for _ in range(30):
        ActionChains(scene.browser).send_keys(Keys.TAB).perform()
        if scene.browser.execute_script("return document.activeElement.dataset.node || ''"):
            break
    name = scene.browser.execute_script("return document.activeElement.dataset.node")
    ActionChains(scene.browser).send_keys(Keys.ENTER).perform()
    assert name
    assert scene.browser.execute_script("return document.activeElement.dataset.id") == name
