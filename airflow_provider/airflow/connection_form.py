"""The connection form: what its *Test* button says, and its fields for Airflow 3.1, which reads no provider's forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider.provider_info import get_provider_info
from airflow_provider.storage.checks import CheckedStep


def form_widgets() -> dict[str, Any]:
    """Return the declared fields as WTForms fields; none where that is not installed, as in a worker.

    Airflow's API server puts stand-ins in the place of these libraries, and needs none of them.
    """
    try:
        from flask_appbuilder.fieldwidgets import BS3PasswordFieldWidget, BS3TextFieldWidget
        from wtforms import BooleanField, PasswordField, StringField
        from wtforms.validators import Optional, any_of
    except ImportError:
        return {}

    def widget(declared: dict[str, Any]) -> Any:
        label, description, schema = declared["label"], declared["description"], declared["schema"]
        if "boolean" in schema["type"]:
            return BooleanField(label, description=description, default=schema["default"])
        if schema.get("format") == "password":
            return PasswordField(label, description=description, widget=BS3PasswordFieldWidget())
        validators = [Optional(), *([any_of(schema["enum"])] if "enum" in schema else [])]
        return StringField(label, validators=validators, description=description, widget=BS3TextFieldWidget())

    declared = get_provider_info()["connection-types"][0]["conn-fields"]
    return {name: widget(field) for name, field in declared.items()}


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
