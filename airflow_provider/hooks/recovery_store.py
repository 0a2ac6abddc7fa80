"""The hook of the connection type ``spark_recovery``: its form, its *Test* button, and the event store it leads to."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import BaseHook

from airflow_provider.airflow.recovery_connection import CONN_TYPE, DEFAULT_CONN_ID, RecoveryConnection
from airflow_provider.provider_info import get_provider_info


class RecoveryStoreHook(BaseHook):
    """Reach the event store of a connection. Needs no Spark connection.

    :param recovery_conn_id: connection of type ``spark_recovery``
    :ivar recovery: event store and options
    """

    conn_name_attr = "recovery_conn_id"
    default_conn_name = DEFAULT_CONN_ID
    conn_type = CONN_TYPE
    hook_name = "Spark Recovery"

    def __init__(self, recovery_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.recovery = RecoveryConnection(recovery_conn_id)

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return the form's layout for Airflow versions without declared forms."""
        behaviour: dict[str, Any] = get_provider_info()["connection-types"][0]["ui-field-behaviour"]
        return {name.replace("-", "_"): value for name, value in behaviour.items()}

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """Return the form's fields for Airflow 3.1; later versions read them from the provider's metadata."""
        return _form_widgets()

    def test_connection(self) -> tuple[bool, str]:
        """Test everything that recovery needs of the store; used by the *Test* button."""
        return self.recovery.test()


def _form_widgets() -> dict[str, Any]:
    """Return the declared fields as WTForms fields; none if WTForms is not installed, as on a worker.

    Airflow's API server replaces these libraries with stand-ins and needs no fields.
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
