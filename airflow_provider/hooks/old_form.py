"""The connection form for Airflow 3.1, which does not know forms that are declared in a provider's metadata."""

from __future__ import annotations

from typing import Any

from airflow_provider.provider_info import get_provider_info


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
