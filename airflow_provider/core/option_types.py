"""The types of option values and how people write them: durations and sizes with units, choices, flags."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider.core.errors import ConfigurationError

UNLIMITED = 2**31 - 1
"""Written ``infinite``; the number is Flink's."""


@dataclass(frozen=True)
class OptionType:
    """One type of value.

    :ivar read: takes a value and the option's name; returns the plain value or raises ConfigurationError
    :ivar metavar: placeholder for the value in ``--help``
    :ivar choices: all values, if there are few
    """

    read: Callable[[object, str], Any]
    metavar: str
    choices: tuple[str, ...] = ()


_DURATION_UNITS = {
    "ms": 0.001,
    "s": 1,
    "sec": 1,
    "min": 60,
    "m": 60,
    "h": 3600,
    "d": 86400,
    "days": 86400,
    "day": 86400,
}
_SIZE_UNITS = {"b": 1, "": 1}
for _power, _letter in enumerate("kmgt", start=1):
    for _suffix in (_letter, f"{_letter}b", f"{_letter}ib"):
        _SIZE_UNITS[_suffix] = 1024**_power

_NUMBER_AND_UNIT = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([a-zA-Z]*)\s*", re.ASCII | re.IGNORECASE)


def parse_duration(value: object, option: str) -> float:
    """Return seconds from a number (seconds) or text such as ``30 s``, ``500ms``, ``3 min``, ``7 days``."""
    return _parse(value, _DURATION_UNITS | {"": 1}, option, "a duration such as '30 s', '3 min' or '7 days'")


def parse_size(value: object, option: str) -> int:
    """Return bytes from a number (bytes) or text such as ``1 MiB``, ``1m``, ``512 kb`` (powers of 1,024)."""
    return int(_parse(value, _SIZE_UNITS, option, "a size such as '1 MiB' or '512 kb'"))


def parse_flag(value: object, option: str) -> bool:
    """Return a boolean from a boolean or from ``true``/``false``, ``yes``/``no``, ``on``/``off``, ``1``/``0``."""
    text = str(value).strip().lower()
    if text in {"true", "yes", "on", "1"}:
        return True
    if text in {"false", "no", "off", "0"}:
        return False
    raise _bad(option, value, "true or false")


def _parse(value: object, units: Mapping[str, float], option: str, expected: str) -> float:
    match = _NUMBER_AND_UNIT.fullmatch(str(value))
    if match is None or match[2].lower() not in units:
        raise _bad(option, value, expected)
    number = float(match[1]) * units[match[2].lower()]
    if not math.isfinite(number):
        raise _bad(option, value, expected)
    return number


def _bad(option: str, value: object, expected: str) -> ConfigurationError:
    return ConfigurationError(
        f"Option {option!r} has the value {value!r}.", remedy=f"It must be {expected}.", option=option
    )


def one_of(*choices: str) -> OptionType:
    """Return the type of an option with a few fixed values."""

    def read(value: object, option: str) -> str:
        text = str(value).strip()
        for choice in choices:
            if text.lower() == choice.lower():
                return choice
        raise _bad(option, value, " or ".join(repr(choice) for choice in choices))

    return OptionType(read, "|".join(choices), choices)


def _text(value: object, option: str) -> str:
    return str(value).strip()


def _url(value: object, option: str) -> str:
    text = str(value).strip().rstrip("/")
    if "@" in text:
        # Not _bad(), which would repeat a value that may be a password.
        raise ConfigurationError(
            f"Option {option!r} holds a user name or a password.",
            remedy="It must be a URL such as 'http://127.0.0.1:9000'; credentials come from boto3's own chain.",
            option=option,
        )
    if not re.fullmatch(r"https?://[^/@\s]+(/[^@\s]*)?", text):
        raise _bad(option, value, "a URL such as 'http://127.0.0.1:9000'")
    return text


def _positive_duration(value: object, option: str) -> float:
    seconds = parse_duration(value, option)
    if seconds <= 0:
        raise _bad(option, value, "longer than zero")
    return seconds


def _count(value: object, option: str) -> int:
    text = str(value).strip().lower()
    if text == "infinite":
        return UNLIMITED
    if not re.fullmatch(r"[0-9]{1,10}", text) or int(text) > UNLIMITED:
        raise _bad(option, value, "a whole number from 0, or 'infinite'")
    return int(text)


def number(lowest: float, highest: float) -> OptionType:
    """Return the type of a number between bounds."""

    def read(value: object, option: str) -> float:
        try:
            number = float(str(value))
        except ValueError:
            number = math.nan
        if not lowest <= number <= highest:
            raise _bad(option, value, f"a number from {lowest:g} to {highest:g}")
        return number

    return OptionType(read, "NUMBER")


TEXT = OptionType(_text, "TEXT")
URL = OptionType(_url, "URL")
FLAG = OptionType(parse_flag, "true|false", ("true", "false"))
SIZE = OptionType(parse_size, "SIZE")
DURATION = OptionType(parse_duration, "DURATION")
POSITIVE_DURATION = OptionType(_positive_duration, "DURATION")
COUNT = OptionType(_count, "NUMBER")
