"""A driver knows the conf it was submitted with before it has a session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider.spark.submitted_conf import conf_arguments, with_py_file
from tests.support.driver import DriverHarness

PRINTS_NOTHING = "print('the script has run')\n"


@pytest.mark.parametrize(
    ("arguments", "conf"),
    [
        (None, {}),
        ("pyspark-shell", {}),
        ('--conf "spark.a=b c" -c spark.d=e=f pyspark-shell', {"spark.a": "b c", "spark.d": "e=f"}),
        ("--conf=spark.g=h", {"spark.g": "h"}),
        ("--conf spark.a=1 --conf spark.a=2", {"spark.a": "2"}),
        ("--conf nothing --conf", {}),
        ('--conf "unclosed', {}),
    ],
)  # fmt: skip
def test_arguments_of_pyspark(arguments: str | None, conf: dict[str, str]) -> None:
    """``--conf`` in all its forms, the last one wins; rubbish is left to Spark."""
    assert conf_arguments({"PYSPARK_SUBMIT_ARGS": arguments} if arguments else {}) == conf


@pytest.mark.parametrize(
    ("arguments", "becomes"),
    [
        ("--master spark://h:1 pyspark-shell", "--master spark://h:1 --py-files own.zip pyspark-shell"),
        ("--conf spark.master=yarn", "--conf spark.master=yarn --py-files own.zip pyspark-shell"),
        ("--master=yarn --py-files a.py,b.py pyspark-shell", "--py-files a.py,b.py,own.zip pyspark-shell"),
        ("--master yarn --conf spark.submit.pyFiles=a.py pyspark-shell", "--py-files a.py,own.zip pyspark-shell"),
        ("--master yarn --name 'two words' pyspark-shell", "--name 'two words' --py-files own.zip pyspark-shell"),
        ("--master local-cluster[2,1,512]", "local-cluster[2,1,512]' --py-files own.zip pyspark-shell"),
        ("--master local[2] pyspark-shell", None),
        ("--conf spark.master=local pyspark-shell", None),
        ("pyspark-shell", None),
        ("", None),
        ("--master 'unclosed", None),
    ],
)
def test_executors_get_a_python_file_with_the_session(arguments: str, becomes: str | None) -> None:
    """Beside those that the user has named, wherever; not where executors are the driver's own JVM."""
    changes = with_py_file({"PYSPARK_SUBMIT_ARGS": arguments}, lambda: Path("own.zip"))
    assert changes.get("PYSPARK_SUBMIT_ARGS", "").endswith(becomes) if becomes else changes == {}


def test_spark_submit_is_left_alone() -> None:
    """There the JVM runs already, and ``--py-files`` has brought the package."""
    environment = {"PYSPARK_GATEWAY_PORT": "1", "PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell"}
    assert with_py_file(environment, lambda: Path("own.zip")) == {}


@pytest.mark.integration
@pytest.mark.process
def test_spark_submits_conf_reaches_the_driver(tmp_path: Path) -> None:
    """``--conf`` and ``spark-defaults.conf`` are read through spark-submit; an unknown property ends the driver."""
    (tmp_path / "app.py").write_text(PRINTS_NOTHING)
    (tmp_path / "runner.py").write_text(
        "import sys\nfrom airflow_provider.spark.runner import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    (tmp_path / "spark-defaults.conf").write_text("spark.recovery.retention  3 parsecs\nspark.ui.enabled  false\n")
    submit = Path(sys.executable).with_name("spark-submit")

    def run(*flags: str) -> subprocess.CompletedProcess[str]:
        job = [f"--event-store=file://{tmp_path}/store", "--job-id=job", str(tmp_path / "app.py")]
        return subprocess.run(
            [str(submit), "--master", "local[1]", *flags, str(tmp_path / "runner.py"), *job],
            env={**os.environ, "SPARK_CONF_DIR": str(tmp_path), "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    wrong = run()
    assert wrong.returncode == 2, wrong.stderr
    assert "Option 'retention' has the value '3 parsecs'" in wrong.stdout
    unknown = run("--conf", "spark.recovery.retention=3 days", "--conf", "spark.recovery.snapshots=hunter2")
    assert unknown.returncode == 2, unknown.stderr
    assert "unknown property spark.recovery.snapshots." in unknown.stdout
    assert "the script has run" not in wrong.stdout + unknown.stdout
    assert not (tmp_path / "store").exists()


@pytest.mark.integration
@pytest.mark.process
def test_pysparks_arguments_reach_the_driver(driver: DriverHarness) -> None:
    """``spark-recovery run`` takes options from ``PYSPARK_SUBMIT_ARGS``, over those of its own command line."""
    script = driver.folder / "app.py"
    script.write_text(PRINTS_NOTHING)
    arguments = '--conf "spark.recovery.resume=never" pyspark-shell'
    done = [driver.run(script, options={"keep-partitions": ""}, PYSPARK_SUBMIT_ARGS=arguments) for _ in range(2)]
    assert [outcome.code for outcome in done] == [0, 0]
    assert "starts afresh: resume is set to 'never'" in done[1].log
