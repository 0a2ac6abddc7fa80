"""The command line between Airflow's side and Spark's: what one writes the other reads."""

from __future__ import annotations

import argparse
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.job import JobId
from airflow_provider.core.options import RecoveryOptions, StorageOptions
from airflow_provider.core.run_request import (
    RunRequest,
    add_run_arguments,
    add_store_arguments,
    parse_run_arguments,
    storage_options,
)
from tests.core.examples import any_recovery_options, any_storage_options

_text = st.text(max_size=12) | st.sampled_from(
    [
        "--event-store",
        "-x",
        "--",
        "--fresh=x",
        "-",
        "",
        "a b",
        "--job-id",
        "@file",
        "--write",
        "--s",
        "--re=z",
        "--help",
    ]
)


@settings(max_examples=50)
@given(
    st.builds(
        RunRequest,
        event_store=st.sampled_from(["s3://bucket/prefix", "file:///tmp/with%20space"]),
        # "--" alone as an option's value is more than argparse can take; no task instance, no file is called that.
        job=st.lists(_text, min_size=2, max_size=4).filter(any).map(lambda parts: JobId(tuple(parts))),
        application=st.sampled_from(["app.py", "/path/with space/app.py", "s3a://bucket/app.py"]),
        arguments=st.lists(_text, max_size=5).map(tuple),
        options=any_recovery_options,
        storage=any_storage_options.filter(lambda options: "--" not in vars(options).values()),
        fresh=_text.filter(lambda text: text != "--"),
        previous_lost=st.integers(0, 10**6),
        series=st.sampled_from(["", "airflow-0-2-2"]),
        automatic_retry=st.booleans(),
        supervised=st.booleans(),
        keep_partitions=st.booleans(),
    )
)
def test_any_request_survives_its_command_line(request: RunRequest) -> None:
    """Whatever the values look like, and whatever the user's own arguments are."""
    line = request.to_arguments()
    assert all(isinstance(argument, str) for argument in line)
    assert parse_run_arguments(line) == request


@pytest.mark.parametrize("argument", ["--write", "--s", "--re", "--e", "--fresh", "-h", "--help", "--supervised"])
def test_what_follows_the_application_belongs_to_the_script(argument: str) -> None:
    """Also what begins like an option of ours, or is one."""
    line = ["--event-store", "file:///store", "--job-id", "etl", "app.py", argument, "x", "--", "-y"]
    assert parse_run_arguments(line).arguments == (argument, "x", "--", "-y")


def test_an_option_is_never_shortened() -> None:
    """What is short today may be ambiguous tomorrow."""
    with pytest.raises(ConfigurationError, match="--resum"):
        parse_run_arguments(["--event-store", "file:///store", "--job-id", "etl", "--resum", "never", "app.py"])


def test_a_plain_request_is_a_short_command_line() -> None:
    """Defaults are not repeated, so that a log line can be read."""
    request = RunRequest("file:///store", JobId(("etl", "1")), "app.py", ("--day", "1"))
    line = request.to_arguments()
    assert line == ["--event-store=file:///store", "--job-id=etl/1", "app.py", "--day", "1"]


def test_options_with_a_space_or_an_equals_sign_mean_the_same() -> None:
    """People write either."""
    spaced = ["--event-store", "file:///s", "--job-id", "j", "--write-buffer-flush-interval", "1 day", "app.py"]
    joined = ["--event-store=file:///s", "--job-id=j", "--write-buffer-flush-interval=1 day", "app.py"]
    assert parse_run_arguments(spaced) == parse_run_arguments(joined)
    assert parse_run_arguments(spaced).options.write_buffer_flush_interval == 86400


def test_two_dashes_may_stand_before_the_script_and_among_its_arguments() -> None:
    """Before it they end our options; behind it they are the script's own."""
    line = ["--event-store=file:///s", "--job-id=j"]
    assert parse_run_arguments([*line, "--", "app.py", "--", "-x"]) == parse_run_arguments(
        [*line, "app.py", "--", "-x"]
    )
    assert parse_run_arguments([*line, "app.py", "a", "--", "b"]).arguments == ("a", "--", "b")


def test_a_dag_whose_name_begins_with_a_dash_is_a_job() -> None:
    """Airflow allows it."""
    request = RunRequest("file:///s", JobId.of_task_instance("-etl", "-run", "-task"), "app.py", fresh="-cleared")
    assert parse_run_arguments(request.to_arguments()) == request


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ([], "required"),
        (["--event-store", "file:///s", "app.py"], "--job-id"),
        (["--job-id", "j", "app.py"], "--event-store"),
        (["--event-store", "file:///s", "--job-id", "j"], "app.py"),
        (["--event-store", "file:///s", "--job-id", "j", "--bogus", "app.py"], "--bogus"),
        (["--event-store", "file:///s", "--job-id", "j", "--previous-lost", "x", "app.py"], "--previous-lost"),
        (["--event-store", "file:///s", "--job-id", "", "app.py"], "job id is empty"),
        (["--event-store", "file:///s", "--job-id", "j", "--resume", "maybe", "app.py"], "'resume'"),
        (["--event-store", "file:///s", "--job-id", "j", "--sse", "rot13", "app.py"], "'sse'"),
        (["--event-store"], "--event-store"),
    ],
)
def test_a_command_line_that_cannot_be_read_is_an_error_and_no_exit(line: list[str], says: str) -> None:
    """A driver reports it with its own exit code; nothing calls sys.exit."""
    with pytest.raises(ConfigurationError) as caught:
        parse_run_arguments(line)
    assert says in str(caught.value)


def test_every_option_is_on_the_command_line() -> None:
    """An option that is added to the dataclasses and forgotten here would be lost on the way."""
    parser = argparse.ArgumentParser()
    add_run_arguments(parser)
    known = {action.dest for action in parser._actions}
    assert known >= set(RecoveryOptions.__dataclass_fields__) | set(StorageOptions.__dataclass_fields__)


def test_the_help_shows_what_people_use(capsys: pytest.CaptureFixture[str]) -> None:
    """``--help`` ten options, ``--help-all`` each one but what only the operator passes."""
    parser = argparse.ArgumentParser(prog="spark-recovery run")
    add_run_arguments(parser)
    common = re.findall(r"^  (--[a-z-]+)", parser.format_help(), re.MULTILINE)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--help-all"])
    everything = re.findall(r"^  (--[a-z-]+)", capsys.readouterr().out, re.MULTILINE)
    assert ended.value.code == 0
    assert len(set(common) - {"--help-all"}) == 10
    declared = {**RecoveryOptions.declared(), **StorageOptions.declared()}
    assert set(everything) >= {*common, *(f"--{name.replace('_', '-')}" for name in declared)}
    assert "--supervised" not in everything


def test_other_commands_reach_the_store_the_same_way() -> None:
    """Inspect and its like share the store's options."""
    parser = argparse.ArgumentParser()
    add_store_arguments(parser)
    arguments = parser.parse_args(
        ["--event-store", "s3://b/p", "--region", "eu-west-1", "--checksum", "when_supported"]
    )
    assert storage_options(arguments) == StorageOptions(region="eu-west-1", checksum="when_supported")
