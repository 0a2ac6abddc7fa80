"""What retries and clearings under a real scheduler can be besides: each of these takes minutes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from selenium.webdriver.common.by import By

from airflow_provider.cli.demo.demo_processes import wait_until
from airflow_provider.core.options import StorageOptions
from airflow_provider.storage.claims import process_is_gone
from airflow_provider.storage.uris import open_store
from tests.end_to_end.jobs import check_answer, gated_job
from tests.end_to_end.scene import GRADED, TASK, TOTALS, Scene, airflow_scene
from tests.end_to_end.stage import LONG
from tests.support.browser import Person, chromium, picture
from tests.support.flights import DAGS, few_flights
from tests.support.s3_gateway import S3Server

pytestmark = [pytest.mark.airflow, pytest.mark.process, pytest.mark.walk, pytest.mark.timeout(1500)]

BUCKET = "ten-jobs"
EXAMPLE, FEATURES = "flights_features_deferred", "features"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, s3_gateway: S3Server) -> Iterator[Scene]:
    s3_gateway.create_bucket(BUCKET)
    connections = {
        "aws_default": {
            "conn_type": "aws",
            "login": s3_gateway.access_key,
            "password": s3_gateway.secret_key,
            "extra": {"endpoint_url": s3_gateway.endpoint, "region_name": "us-east-1"},
        },
        "bucket": {
            "conn_type": "spark_recovery",
            "extra": {
                "event_store": f"s3://{BUCKET}/events",
                "aws_conn_id": "aws_default",
                "addressing_style": "path",
                "previous_worker_recovery_timeout": "3 s",
            },
        },
    }
    example = ("flights_features_deferred.py", "flights_features_job.py")
    files = {name: (DAGS / name).read_text() for name in example}
    with airflow_scene(tmp_path_factory.mktemp("at-length"), files, connections) as scene:
        yield scene


def test_fix_the_bug_and_clear(scene: Scene) -> None:
    """A bug in the last step; fixed and cleared, the job reuses every partition that it had stored."""
    run = scene.begin("by_hand", bug=True)
    run.gate.touch()
    run.wait_for("failed")
    assert "a bug in the last step" in run.logs()
    run.script.write_text(gated_job())
    run.clear()
    run.wait_for("success", try_number=2)
    assert run.counts() == (TOTALS + GRADED, 0)
    check_answer(run.target)
    # What tells the run from another deployment's of the same name; Airflow counts the clearing.
    assert [run.claim(epoch).run.partition("@")[0] for epoch in (1, 2)] == ["0", "1"]


def test_correct_a_file_that_a_function_reads_and_clear(scene: Scene, tmp_path: Path) -> None:
    """What a function has made of a file is reused by Airflow's own retry, and computed again after a clearing."""
    factor = tmp_path / "factor"
    factor.write_text("5")
    run = scene.begin("retried", bug=True, factor=factor)
    run.gate.touch()
    run.wait_for("failed", try_number=2)
    retry = run.logs("attempt=2*")
    assert f"'totals': all {TOTALS} partitions reused" in retry
    assert f"'graded': all {GRADED} partitions reused" in retry
    factor.write_text("7")
    run.script.write_text(gated_job(factor=factor))
    run.clear()
    run.wait_for("success", try_number=3)
    assert run.counts() == (TOTALS, GRADED)
    check_answer(run.target)


def test_discard_and_clear(scene: Scene, tmp_path: Path) -> None:
    """A person discards on the page what is stored; the cleared task computes everything, and says why."""
    run = scene.begin("by_hand", bug=True)
    run.gate.touch()
    run.wait_for("failed")
    airflow = scene.stage.airflow
    tasks = f"{airflow.url}/dags/{run.dag}/runs/{quote(run.run_id, safe='')}"
    with chromium(tmp_path / "profile") as browser:
        person = Person(browser)
        browser.get(f"{airflow.url}/api/v2/auth/login?next={quote(tasks, safe='')}")
        person.click("//a[normalize-space()='Spark recovery']")  # the tab of the DAG run; with one job it leads there
        frame = "//iframe[@title='Spark recovery']"
        browser.switch_to.frame(person.wait_for("the tab", lambda: browser.find_element(By.XPATH, frame)))
        person.wait_for("the grids", lambda: person.css(".vertex canvas"))
        assert person.cells() == {"totals": "c" * TOTALS, "graded": "c" * GRADED}
        picture(browser, "before-discard")
        person.click("//button[@id='discard']")
        person.click("//button[@id='confirm-yes']")
        person.wait_for("its success", lambda: "starts afresh" in person.text("#notices [data-notice=done]"))
    run.script.write_text(gated_job())
    run.clear()
    run.wait_for("success", try_number=2)
    assert run.counts() == (0, TOTALS + GRADED)
    assert "was discarded by" in run.logs()
    check_answer(run.target)


def test_the_scheduler_is_killed_and_started_again(scene: Scene) -> None:
    """The new one takes the task for an orphan and starts it again; of the two drivers one writes."""
    run = scene.begin("retried")
    run.wait_in_the_middle()
    first = run.instance["id"]
    scene.stage.restart_scheduler()
    wait_until("the task to be taken for an orphan", lambda: run.instance["id"] != first, timeout=LONG)
    run.gate.touch()
    run.wait_for("success", try_number=None)
    check_answer(run.target)
    assert sum(run.counts()) == TOTALS + GRADED


def test_two_mapped_tasks_at_once(scene: Scene) -> None:
    """One of the two loses its driver and reuses its own partitions; the other does not notice."""
    run = scene.begin("mapped")
    one, other = run.mapped(0), run.mapped(1)
    one.wait_in_the_middle()
    other.wait_in_the_middle()
    one.kill_driver(1)
    for mapped in (one, other):
        mapped.gate.touch()
    other.wait_for("success")
    one.wait_for("success", try_number=2)
    assert (one.counts(), other.counts()) == ((TOTALS, GRADED), (0, TOTALS + GRADED))
    for mapped in (one, other):
        check_answer(mapped.target)


def test_ten_jobs_at_once_on_one_bucket(scene: Scene, s3_gateway: S3Server) -> None:
    """Three of ten lose their drivers and resume; each ends with its own right rows, and the page tells them apart."""
    options = StorageOptions(endpoint_url=s3_gateway.endpoint, addressing_style="path")
    runs = [scene.begin("on_bucket") for _ in range(10)]
    for run in runs:
        run.store = open_store(f"s3://{BUCKET}/events", options, session=s3_gateway.session())
    killed, others = runs[::4], [run for run in runs if run not in runs[::4]]
    for run in others:
        run.gate.touch()
    for run in killed:
        run.wait_in_the_middle()
        run.kill_driver(1)
        run.gate.touch()
    for run in others:
        run.wait_for("success")
        assert run.counts() == (0, TOTALS + GRADED)
    for run in killed:
        run.wait_for("success", try_number=2)
        assert run.counts() == (TOTALS, GRADED)
    for run in runs:
        check_answer(run.target)
        query = urlencode({"dag_id": run.dag, "run_id": run.run_id})
        (told,) = scene.stage.airflow.call("GET", f"/spark-recovery/api/run?{query}")["jobs"]
        assert (told["problem"], told["view"]["state"]) == ("", "FINISHED")
        assert (told["view"]["reused"], told["view"]["computed"]) == run.counts()


def test_a_deferred_task_is_marked_failed(scene: Scene) -> None:
    """The trigger ends the driver, wherever it runs, and says so in a claim."""
    scene.start_triggerer()
    run = scene.begin("deferred")
    run.wait_for("deferred")
    wait_until("the trigger to follow", lambda: "Following attempt 1" in run.logs("*trigger*"), timeout=LONG)
    scene.stage.airflow.mark(run.dag, run.run_id, TASK, "failed")
    wait_until("the driver to end", lambda: process_is_gone(run.claim(1)), timeout=LONG)
    assert run.claim(2).cancels
    assert run.instance["state"] == "failed"


def test_the_deferred_example(scene: Scene, tmp_path: Path) -> None:
    """The example DAG with a deferrable operator runs as it is."""
    scene.start_triggerer()
    conf = {"input_dir": str(few_flights(tmp_path)), "output_dir": str(scene.stage.work / "features")}
    example = scene.stage.run(EXAMPLE, FEATURES, conf)
    example.wait_for("success")
    assert example.report()["state"] == "FINISHED"
    assert "Following attempt 1" in example.logs("*trigger*")
