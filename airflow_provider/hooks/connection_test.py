"""What the *Test* button of the connection form says."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider.storage.checks import CheckedStep


def told(uri: str, steps: Sequence[CheckedStep]) -> tuple[bool, str]:
    """Return whether all steps have worked, and a text that names each: what works, and what fails with its remedy."""
    works = [step.name for step in steps if step.problem is None]
    fails = [f"{step.name.capitalize()} fails: {step.problem}" for step in steps if step.problem is not None]
    sound = f"{_listed(works).capitalize()} {'works' if len(works) == 1 else 'work'} in {uri}" if works else ""
    if not fails:
        return True, sound
    return False, " ".join([*([f"{sound}."] if sound else []), *fails])


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
