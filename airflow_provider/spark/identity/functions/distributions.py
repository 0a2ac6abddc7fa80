"""Installed distributions: the one that a module comes from, how its builds differ, and the others that it needs."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import re
from typing import Any

_NAME = re.compile(r"\s*([\w.-]+)\s*(?:\[([^\]]*)\])?")
_EXTRA = re.compile(r"\bextra\s*==\s*[\"']([\w.-]+)")
_NO_DIFFERENCE = re.compile(r"[-_.]+")
"""Characters that are interchangeable in a distribution's name."""


@functools.lru_cache(maxsize=4096)
def distributions_of(top: str) -> tuple[tuple[str, str], ...]:
    """Return the installed distributions that a top-level module comes from, with what tells their builds apart."""
    try:
        found = [importlib.metadata.distribution(top)]
        if not os.path.exists(str(found[0].locate_file(top))):
            found = []
    except (importlib.metadata.PackageNotFoundError, ValueError):
        found = []
    if not found:
        found = [importlib.metadata.distribution(name) for name in sorted(set(_top_levels().get(top, ())))]
    return tuple((one.metadata["Name"], _version(one)) for one in found)


@functools.lru_cache(maxsize=1)
def _top_levels() -> Any:
    return importlib.metadata.packages_distributions()


def _version(distribution: importlib.metadata.Distribution) -> str:
    """Return the version; for a distribution not installed from an index, also what tells its builds apart."""
    if distribution.read_text("direct_url.json") is None:
        return distribution.version
    record = distribution.read_text("RECORD") or ""
    lines = sorted(line for line in record.splitlines() if not line.startswith("..") and "__pycache__" not in line)
    files = [line for line in lines if ".dist-info/" not in line]
    return f"{distribution.version} (build {hashlib.sha256(chr(10).join(files).encode()).hexdigest()[:8]})"


@functools.lru_cache(maxsize=1024)
def needed_by(name: str) -> tuple[tuple[str, str], ...]:
    """Return the installed distributions that one needs, directly or indirectly, with their versions.

    Distributions needed only for an extra are left out, unless another one asks for that extra.
    """
    found = dict[str, tuple[str, str]]()
    pending, done = [(_plain(name), "")], set[tuple[str, str]]()
    while pending:
        wanted = pending.pop()
        if wanted in done:
            continue
        done.add(wanted)
        try:
            distribution = importlib.metadata.distribution(wanted[0])
        except importlib.metadata.PackageNotFoundError:
            continue
        found[wanted[0]] = distribution.metadata["Name"], _version(distribution)
        for requirement in distribution.requires or ():
            pending += _required(requirement, wanted[1])
    return tuple(found.values())


def _required(requirement: str, extra: str) -> list[tuple[str, str]]:
    """Return the distribution that a requirement names, alone and with each extra that it asks for, if it applies.

    :param extra: of the distribution that requires it; empty for none
    """
    named, condition = _NAME.match(requirement), requirement.partition(";")[2]
    extras = {_plain(each) for each in _EXTRA.findall(condition)}
    if named is None or (extras and extra not in extras):
        return []
    asked = [_plain(each) for each in (named[2] or "").split(",") if each.strip()]
    return [(_plain(named[1]), each) for each in ("", *asked)]


def _plain(name: str) -> str:
    return _NO_DIFFERENCE.sub("-", name.strip()).lower()
