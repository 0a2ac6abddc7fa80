"""Identities: any characters in, plain keys out, and no two jobs meet."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.job import JOB_FOLDER, JobId, encode_segment, name_of

_texts = st.one_of(
    st.text(max_size=300),
    st.text("ab.~_/-%\u00e4 +:A", max_size=12),
    st.text(st.characters(), max_size=5),  # with lone surrogates
)
_parts = st.lists(st.text(max_size=20), min_size=1, max_size=5).filter(any).map(tuple)


@given(_texts, _texts)
def test_two_texts_never_share_a_segment(one: str, other: str) -> None:
    """encode_segment is injective."""
    assert (encode_segment(one) == encode_segment(other)) == (one == other)


@given(_texts)
def test_a_segment_is_plain(text: str) -> None:
    """Only characters that every store takes literally, never hidden, empty, a dot, or longer than 120 bytes."""
    segment = encode_segment(text)
    assert re.fullmatch(r"[A-Za-z0-9~-][A-Za-z0-9._~-]*", segment)
    assert len(segment) <= 120
    assert "@" not in segment


@given(st.text("ab", min_size=120, max_size=130), st.text("ab", min_size=1, max_size=10))
def test_long_texts_that_begin_alike_are_told_apart(text: str, more: str) -> None:
    """What is cut ends in a digest of the whole, which no uncut text can look like."""
    assert encode_segment(text + "a") != encode_segment(text + "a" + more)
    assert encode_segment(encode_segment(text + "a")) != encode_segment(text + "a")


@pytest.mark.parametrize(
    ("text", "segment"),
    [
        ("plain-Name_1.x", "plain-Name_1.x"),
        ("", "~"),
        (".", "~2E"),
        ("..", "~2E."),
        ("_hidden", "~5Fhidden"),
        ("manual__2026-01-01T00:00:00+00:00", "manual__2026-01-01T00~3A00~3A00~2B00~3A00"),
        ("a/b", "a~2Fb"),
        ("ü", "~C3~BC"),
        ("~", "~7E"),
    ],
)
def test_the_encoding_is_fixed(text: str, segment: str) -> None:
    """Stored jobs must be found again by later releases."""
    assert encode_segment(text) == segment


@given(_parts)
def test_a_job_survives_its_text(parts: tuple[str, ...]) -> None:
    """What is printed and passed on a command line is read back as the same job."""
    assert JobId.parse(str(JobId(parts))) == JobId(parts)


@given(_parts)
def test_a_prefix_tells_its_job(parts: tuple[str, ...]) -> None:
    """By the id that is read back as the same job, unless a part of it was cut."""
    job = JobId(parts)
    cut = any("~~" in encode_segment(part) for part in parts)
    folder = job.prefix.removeprefix("jobs/").removesuffix(f"/{JOB_FOLDER}")
    assert name_of(job.prefix) == (folder if cut else str(job))


@given(st.text(min_size=1))
def test_any_text_is_a_job(text: str) -> None:
    """--job-id takes anything but nothing; the text of the job it makes means the same job."""
    try:
        job = JobId.parse(text)
    except ConfigurationError:
        assert set(text) == {"/"}
        return
    assert JobId.parse(str(job)) == job


def test_bytes_that_are_no_text_stay_apart() -> None:
    """%FE and %FF are no UTF-8; they are two jobs all the same."""
    assert JobId.parse("%FE") != JobId.parse("%FF")
    assert str(JobId.parse("a%FF")) == "a%FF"
    assert JobId.parse("%FE").prefix != JobId.parse("%FF").prefix


@given(_parts, _parts)
def test_no_job_lies_within_another(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    """Prefixes are equal for equal jobs only, and none is the beginning of another's folder."""
    first, second = JobId(one).prefix, JobId(other).prefix
    assert (first == second) == (one == other)
    if one != other:
        assert not first.startswith(f"{second}/")
        assert not second.startswith(f"{first}/")


def test_a_task_instance_is_a_job_without_its_try() -> None:
    """dag_id, run_id, task_id and map_index; -1 where the task is not mapped."""
    job = JobId.of_task_instance("etl", "scheduled__2026-01-01T00:00:00+00:00", "täsk", 3)
    assert job.parts == ("etl", "scheduled__2026-01-01T00:00:00+00:00", "täsk", "3")
    assert JobId.of_task_instance("d", "r", "t").parts[-1] == "-1"
    assert job.prefix == f"jobs/etl/scheduled__2026-01-01T00~3A00~3A00~2B00~3A00/t~C3~A4sk/3/{JOB_FOLDER}"
    assert str(job) == "etl/scheduled__2026-01-01T00:00:00+00:00/t%C3%A4sk/3"


@pytest.mark.parametrize("text", ["", "/", "///"])
def test_an_empty_job_is_refused(text: str) -> None:
    """A job without a name would share everything with every other one."""
    with pytest.raises(ConfigurationError, match="job id is empty") as caught:
        JobId.parse(text)
    assert "--job-id" in caught.value.remedy
