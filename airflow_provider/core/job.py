"""The identity of a job, and how identities become storage keys.

A job is one Airflow task instance (dag_id, run_id, task_id, map_index), without its try number, so that every retry
finds what the last try left. Identities may contain any character; storage keys contain only characters that every file
system, S3 look-alike and Hadoop path takes literally.
"""

from __future__ import annotations

import hashlib
import string
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote, unquote

from airflow_provider.core.errors import ConfigurationError

_PLAIN = frozenset(string.ascii_letters + string.digits + "-_.")
_LONGEST_SEGMENT = 120
"""Bytes of one encoded key segment: four of them and a partition name stay below S3's 1,024 bytes for a key."""

JOB_FOLDER = "@job"
"""Ends a job's prefix. ``@`` is never produced by :func:`encode_segment`, so no job can lie inside another."""


def encode_segment(text: str) -> str:
    """Return *text* as one key segment: injective, case-preserving, never empty, ``.``, ``..`` or hidden.

    Bytes outside ``[A-Za-z0-9._-]`` become ``~XX``; so do a leading ``.`` and ``_``, which Hadoop treats as hidden. A
    segment over 120 bytes is cut and ends in a digest of the whole text.
    """
    encoded = "".join(
        chr(byte) if chr(byte) in _PLAIN and not (position == 0 and chr(byte) in "._") else f"~{byte:02X}"
        for position, byte in enumerate(text.encode("utf-8", "surrogatepass"))
    )
    if not encoded:
        return "~"
    if len(encoded) > _LONGEST_SEGMENT:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return f"{encoded[: _LONGEST_SEGMENT - 34]}~~{digest}"
    return encoded


def _decode_segment(segment: str) -> str:
    """Return the text of a segment that was not cut."""
    return unquote(segment.replace("~", "%"), errors="surrogateescape") if segment != "~" else ""


@dataclass(frozen=True)
class JobId:
    """The parts that name a job, for example ``("etl", "manual__2026-01-01T00:00:00+00:00", "sessions", "-1")``."""

    parts: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.parts or not any(self.parts):
            raise ConfigurationError("The job id is empty.", remedy="Give --job-id a name of at least one character.")

    @classmethod
    def of_task_instance(cls, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> JobId:
        """The job of one Airflow task instance; ``map_index`` is -1 for a task that is not mapped."""
        return cls((dag_id, run_id, task_id, str(map_index)))

    @classmethod
    def parse(cls, text: str) -> JobId:
        """Read what :meth:`__str__` wrote; any other text is also a valid id (``/`` separates parts)."""
        return cls(tuple(unquote(part, errors="surrogateescape") for part in text.split("/")))

    def __str__(self) -> str:
        safe = " :+@,;=~()[]'!*$&<>|{}\"^`"
        return "/".join(quote(part, safe=safe, errors="surrogateescape") for part in self.parts)

    @property
    def prefix(self) -> str:
        """The key prefix of everything that belongs to this job, without a trailing slash."""
        return "/".join(["jobs", *(encode_segment(part) for part in self.parts), JOB_FOLDER])


def name_of(prefix: str) -> str:
    """Return the id, as the command line takes it, of the job with a prefix; its folder where a part of it was cut."""
    folder = prefix.removeprefix("jobs/").removesuffix(f"/{JOB_FOLDER}")
    parts = tuple(map(_decode_segment, folder.split("/")))
    return str(job) if any(parts) and (job := JobId(parts)).prefix == prefix else folder


def run_mark(began: datetime, cleared: int | None, name: str = "") -> str:
    """Return a mark that distinguishes a DAG run from others of its name.

    :param began: when the run began; the same in all of its tries until it is cleared, or set to *queued* by hand
    :param cleared: how often it was cleared
    :param name: shared by the task's tries in this run alone; empty text if Airflow keeps none
    """
    return f"{cleared or 0}@{began.isoformat()}{f'#{name}' if name else ''}"


def is_another_run(one: str, other: str) -> bool:
    """Whether two marks certainly belong to two runs: cleared equally often, begun at different moments, and without a
    name that both share.
    """
    (cleared, _, began), (others_cleared, _, others_began) = one.partition("@"), other.partition("@")
    (began, _, name), (others_began, _, others_name) = began.partition("#"), others_began.partition("#")
    return (
        bool(began and others_began)
        and cleared == others_cleared
        and began != others_began
        and (not name or name != others_name)
    )


def is_another_deployment(one: str, other: str) -> bool:
    """Whether two names certainly belong to two Airflow deployments; empty text matches any."""
    return bool(one and other) and one != other
