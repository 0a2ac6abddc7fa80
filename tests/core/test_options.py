"""Options: one spelling everywhere, and a wrong value is named with what is right."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.option_types import parse_duration, parse_flag, parse_size
from airflow_provider.core.options import RecoveryOptions, StorageOptions
from tests.core.examples import _recovery, _storage


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (30, 30), (0.5, 0.5), ("30", 30), ("30 s", 30), ("30s", 30), ("500ms", 0.5), ("3 min", 180), ("3m", 180),
        ("2h", 7200), ("7 days", 604800), ("1 day", 86400), ("1d", 86400), (".5 s", 0.5), (" 1.5  MIN ", 90), ("0", 0),
        (1e-05, 1e-05), ("1E3", 1000), ("1e+16", 1e16),
    ],
)  # fmt: skip
def test_durations(text: object, seconds: float) -> None:
    """Numbers are seconds; units as people and Flink write them."""
    assert parse_duration(text, "o") == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (1024, 1024), ("1024", 1024), ("1024b", 1024), ("1 MiB", 2**20), ("1m", 2**20), ("1mb", 2**20), ("1 MB", 2**20),
        ("512 kb", 2**19), ("1.5k", 1536), ("2g", 2**31), ("1 TiB", 2**40),
    ],
)  # fmt: skip
def test_sizes(text: object, size: int) -> None:
    """Numbers are bytes, units powers of 1,024."""
    assert parse_size(text, "o") == size


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "1 parsec", "1 s s", "1,5", "inf", "nan", "1e", "1e999", "٣", None, True]
)
def test_what_is_no_number_is_refused_with_an_example(text: object) -> None:
    """The error names option and value and shows a right one."""
    for parse, example in ((parse_duration, "30 s"), (parse_size, "1 MiB")):
        with pytest.raises(ConfigurationError) as caught:
            parse(text, "some_option")
        assert "'some_option'" in caught.value.message
        assert repr(text) in caught.value.message
        assert example in caught.value.remedy


def test_flags() -> None:
    """As people write them; nothing else is guessed at."""
    for text in (True, "true", "True", " yes ", "ON", "1", 1):
        assert parse_flag(text, "o") is True
    for text in (False, "false", "no", "off", "0", 0):
        assert parse_flag(text, "o") is False
    for refused in ("", "maybe", "2", None):
        with pytest.raises(ConfigurationError, match="true or false"):
            parse_flag(refused, "o")


def test_the_defaults_are_those_of_the_design() -> None:
    """They are documented, and Flink's where Flink has them."""
    options = RecoveryOptions()
    assert options.enabled
    assert options.previous_worker_recovery_timeout == 30
    assert (options.write_buffer_size, options.write_buffer_flush_interval) == (2**20, 1)
    assert options.resume == "auto"


@pytest.mark.parametrize(("timeout", "interval"), [(30, 10), (60, 10), (6, 2), (0.3, 0.1)])
def test_three_heartbeats_fit_into_the_timeout(timeout: float, interval: float) -> None:
    """And an idle job beats at most every 10 s."""
    options = RecoveryOptions(previous_worker_recovery_timeout=timeout)
    assert options.heartbeat_interval == pytest.approx(interval)


def test_a_mapping_is_laid_over_a_base() -> None:
    """Connection, then operator, then command line; what is empty changes nothing; dashes are underscores."""
    base = RecoveryOptions.from_mapping({"write_buffer_flush_interval": "1 day", "resume": "NEVER"})
    options = RecoveryOptions.from_mapping({"write-buffer-size": "2 MiB", "resume": None, "enabled": ""}, base)
    assert options == RecoveryOptions(write_buffer_flush_interval=86400, resume="never", write_buffer_size=2**21)


def test_an_unknown_option_is_named_with_the_known_ones() -> None:
    """A typing error is not ignored."""
    with pytest.raises(ConfigurationError, match="'retension'") as caught:
        RecoveryOptions.from_mapping({"retension": "1 day"})
    assert "resume" in caught.value.remedy


@given(_recovery | _storage)
def test_options_survive_a_mapping_of_values_and_of_text(options: RecoveryOptions | StorageOptions) -> None:
    """As plain values, as they go through JSON, and as text, as they go through a command line."""
    values: dict[str, Any] = options.to_mapping()
    assert type(options).from_mapping(values) == options
    assert type(options).from_mapping({name: str(value) for name, value in values.items()}) == options


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("resume", "always", "'auto' or 'never'"),
        ("previous_worker_recovery_timeout", "0", "longer than zero"),
        ("write_buffer_size", "much", "1 MiB"),
        ("snapshot_min_pause", "often", "3 min"),
        ("retention", "0 days", "longer than zero"),
        ("enabled", "perhaps", "true or false"),
        ("endpoint_url", "127.0.0.1:9000", "http://127.0.0.1:9000"),
        ("endpoint_url", "s3://bucket", "http://127.0.0.1:9000"),
        ("addressing_style", "dns", "'path'"),
        ("sse", "rot13", "'AES256' or 'aws:kms'"),
        ("checksum", "md5", "'when_required'"),
    ],
)
def test_a_wrong_value_is_named_with_the_right_ones(option: str, value: str, remedy: str) -> None:
    """Option, value, and what to write instead."""
    kind = RecoveryOptions if option in RecoveryOptions().to_mapping() else StorageOptions
    with pytest.raises(ConfigurationError) as caught:
        kind.from_mapping({option: value})
    assert repr(option) in caught.value.message
    assert repr(value) in caught.value.message
    assert remedy in caught.value.remedy


def test_a_password_in_the_endpoint_is_refused_without_repeating_it() -> None:
    """It would end up in command lines and logs."""
    with pytest.raises(ConfigurationError, match="'endpoint_url'") as caught:
        StorageOptions.from_mapping({"endpoint_url": "https://user:hunter2@host:9000"})
    assert "hunter2" not in str(caught.value)
