"""Secrets in errors and reasons."""

from __future__ import annotations

import pytest

from airflow_provider.core import events as ev
from airflow_provider.core.redaction import redacted, redacted_event, secrets_in_conf, secrets_of
from tests.core.examples import init


def test_what_is_secret_is_told_by_its_name() -> None:
    """Environment variables, and arguments in both forms; places, switches and what is very short are none."""
    environment = {
        "DB_PASSWORD": "hunter22",
        "SPARK_RECOVERY_AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token",
        "TOKENIZERS_PARALLELISM": "false",
        "PWD_LENGTH": "12",
        "HOME": "/root/home",
    }
    arguments = ("--user", "someone", "--password", "from-a-flag", "--api-key=in-one-word", "--token", "--write", "x")
    assert secrets_of(environment, arguments) == {
        "hunter22",
        "wJalrXUtnFEMI/K7",
        "from-a-flag",
        "in-one-word",
    }
    assert secrets_of({}, ()) == frozenset()


def test_the_working_directory_is_no_secret() -> None:
    """PWD and OLDPWD are set by every shell; an argument of that name is a password."""
    assert secrets_of({"PWD": "/home/x", "OLDPWD": "/home/y"}, ()) == frozenset()
    assert secrets_of({"DB_PWD": "hunter22"}, ("--pwd", "hunter23")) == {"hunter22", "hunter23"}


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("login with hunter22 refused, hunter22!", "login with *** refused, ***!"),
        ("jdbc:postgresql://bob:s3cr:et@db:5432/x is down", "jdbc:postgresql://***@db:5432/x is down"),
        ("url jdbc:mysql://db/x?user=bob&password=abc&ssl=1", "url jdbc:mysql://db/x?user=bob&password=***&ssl=1"),
        ("Option(fs.s3a.secret.key = 'a b', x = 1)", "Option(fs.s3a.secret.key = ***, x = 1)"),
        ("PARSE_SYNTAX_ERROR: unexpected token: 'FROM'", "PARSE_SYNTAX_ERROR: unexpected token: 'FROM'"),
        ("connect({'password': 'a b', 'x': 1})", "connect({'password': ***, 'x': 1})"),
        ('{"api_key": "abc", "n": 1}', '{"api_key": ***, "n": 1}'),
        ("{'token': abc, 'n': 1}", "{'token': ***, 'n': 1}"),
        ("cannot clone https://ghp_16C7e42F@github.com/x", "cannot clone https://***@github.com/x"),
        ("abfss://data@account.dfs.core.windows.net/x", "abfss://data@account.dfs.core.windows.net/x"),
        ("s3://bucket/key is not there", "s3://bucket/key is not there"),
        ("ValueError: a == b", "ValueError: a == b"),
    ],
)
def test_texts_without_secrets(text: str, clean: str) -> None:
    """Known secrets, user and password of a URL, and what is assigned to a secret's name; the rest stays readable."""
    assert redacted(text, {"hunter22"}) == clean
    assert redacted(clean, {"hunter22"}) == clean


def test_secrets_of_sparks_properties() -> None:
    """Those that Spark redacts itself, too; where a secret lies and who provides it stays readable."""
    secret = {
        "spark.hadoop.fs.s3a.secret.key": "wJalrXUtnFEMI/K7",
        "spark.hadoop.fs.s3a.access.key": "AKIAIOSFODNN7",
        "spark.ssl.keyStorePassword": "hunter22",
        "spark.authenticate.secret": "t0psecret",
        "spark.sql.catalog.lake.token": "dapi12345",
    }
    plain = {
        "spark.hadoop.fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "spark.hadoop.hadoop.security.credential.provider.path": "jceks://file/keys",
        "spark.kubernetes.authenticate.driver.oauthTokenFile": "/var/run/token",
        "spark.security.credentials.hive.enabled": "false",
        "spark.executor.memory": "4096m",
    }
    assert secrets_in_conf({**secret, **plain}) == set(secret.values())


def test_all_texts_of_events_are_cleaned() -> None:
    """Refusals, phrases and titles of sinks as well; a step's result is the script's, whatever it is called."""
    secrets = {"hunter22"}
    handled = ev.FailureHandled(epoch=1, vertex="v", error="e", refused="no hunter22")
    assert vars(redacted_event(handled, secrets))["refused"] == "no ***"
    state = {"title": "jdbc hunter22", "doubt": "is hunter22 there?", "location": "hunter22", "attempt": 1}
    for name in ("sink/1", "unknown-sink/1"):
        told = redacted_event(ev.CoordinatorSnapshot(epoch=1, coordinator=name, state=state), secrets)
        assert vars(told)["state"] == {**state, "title": "jdbc ***", "doubt": "is *** there?"}
    step = ev.CoordinatorSnapshot(epoch=1, coordinator="step/x", state=state)
    assert redacted_event(step, secrets) is step
    began = init(because=("its hunter22 has changed", "new"))
    assert vars(redacted_event(began, secrets))["because"] == ("its *** has changed", "new")
    assert redacted_event(init(because=("new",)), secrets) == init(because=("new",))


def test_of_two_secrets_the_longer_one_goes_whole() -> None:
    """None of it is left over where one is the beginning of the other."""
    assert redacted("abcde abcdefgh", {"abcde", "abcdefgh"}) == "*** ***"


def test_events_without_secrets() -> None:
    """Errors and reasons are cleaned; what has none, and what is no text of somebody else's, is the same object."""
    failed = ev.JobFailed(epoch=1, at=1.0, error="no hunter22", unrecoverable=False, store_retries=0)
    assert redacted_event(failed, {"hunter22"}).error == "no ***"  # type: ignore[attr-defined]
    skipped = ev.VertexSkipped(epoch=1, at=1.0, name="hunter22", reason="it has no shuffle")
    assert redacted_event(skipped, {"hunter22"}) is skipped
