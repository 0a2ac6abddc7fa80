"""What this package uses of the Spark provider that the provider does not promise to keep."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from pathlib import Path

import pytest
from airflow.providers.apache.spark.hooks import spark_submit as their_hook
from airflow.providers.apache.spark.operators import spark_submit as their_operator

import airflow_provider

PACKAGE = Path(airflow_provider.__file__).parent
OF_THE_HOOK = {
    "_HTTP_TIMEOUT",
    "_application_args",
    "_build_spark_submit_command",
    "_conf",
    "_connection",
    "_env",
    "_env_vars",
    "_files",
    "_get_yarn_rm_base_url",
    "_is_kubernetes",
    "_is_yarn",
    "_is_yarn_cluster_mode",
    "_java_class",
    "_kill_yarn_application",
    "_process_spark_submit_log",
    "_properties_file",
    "_py_files",
    "_resolved_yarn_rm_auth",
    "_run_post_submit_commands",
    "_spark_exit_code",
    "_submit_sp",
    "_track_driver_via_k8s_api",
    "_validate_track_driver_via_k8s_api_config",
    "_yarn_application_id",
    "_yarn_track_via_rm_api",
}
OF_THE_OPERATOR = {"_K8S_DRIVER_STATUS_KEY", "_conn_id", "_get_hook", "_hook"}
OURS = {"_attempt", "_submit"}
"""Names of our own, which stand in the provider's sources for something else."""


@pytest.mark.parametrize(
    ("module", "names"), [(their_hook, OF_THE_HOOK), (their_operator, OF_THE_OPERATOR)], ids=["hook", "operator"]
)
def test_the_provider_has_each_private_member_that_is_used(module: object, names: set[str]) -> None:
    """A version of the provider without one of them fails here, by its name, and in no task."""
    source = inspect.getsource(module)  # type: ignore[arg-type]
    assert {name for name in names if not re.search(rf"\b{name}\b", source)} == set()


def test_no_other_private_member_is_used() -> None:
    """Each that our hook and our operator name is in the tables above."""
    theirs = inspect.getsource(their_hook) + inspect.getsource(their_operator)
    used = set()
    for file in (*PACKAGE.glob("hooks/*.py"), *PACKAGE.glob("operators/*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            name = getattr(node, "attr", None) or (node.name if isinstance(node, ast.FunctionDef) else "")
            if name.startswith("_") and not name.startswith("__") and re.search(rf"\b{name}\b", theirs):
                used.add(name)
    assert used - OURS == OF_THE_HOOK | OF_THE_OPERATOR


def test_the_next_major_version_of_the_provider_is_not_installed_unseen() -> None:
    """What is private may change with it, so it has an upper bound."""
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
    needed = project["optional-dependencies"]["airflow"]
    (bound,) = [requirement for requirement in needed if "apache-spark" in requirement]
    assert re.search(r"<\d+$", bound), bound
