"""A connection of type ``spark_recovery`` with what a job says over it: its settings, and the store that they lead to.

Knows nothing of Spark: triggers and the page open stores with it, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook, mask_secret

from airflow_provider.airflow.aws import AwsAccess
from airflow_provider.airflow.connection_form import told
from airflow_provider.airflow.deployment_name import deployment_name
from airflow_provider.airflow.mark import job_mark
from airflow_provider.airflow.recovery_settings import SECRET, RecoverySettings, merge_settings
from airflow_provider.core.errors import ConfigurationError, RecoveryError
from airflow_provider.core.job import JobId
from airflow_provider.core.option_types import parse_flag
from airflow_provider.core.options import StorageOptions
from airflow_provider.core.spark_conf import conf_settings
from airflow_provider.storage.checks import check_steps
from airflow_provider.storage.uris import open_store

if TYPE_CHECKING:
    from airflow_provider.storage.object_store import ObjectStore

CONN_TYPE = "spark_recovery"
DEFAULT_CONN_ID = "spark_recovery_default"


class RecoveryConnection:
    """Where a job's state is kept, and how the job is recovered. Nothing is asked before it is needed.

    :param conn_id: the connection: event store and options
    :param event_store: event store in place of the connection's
    :param options: the operator's options over the connection's
    :param conf: Spark's properties of the job, some of which may be options over the operator's
    :param run_options: options that whoever started this run has given, over all others
    """

    def __init__(
        self,
        conn_id: str = DEFAULT_CONN_ID,
        event_store: str | None = None,
        options: Mapping[str, Any] | None = None,
        conf: Mapping[str, Any] | None = None,
        run_options: Mapping[str, str] | None = None,
    ) -> None:
        self.conn_id = conn_id
        self._event_store = event_store
        self._options = options or {}
        self._conf = conf or {}
        self._run_options = run_options or {}

    @cached_property
    def settings(self) -> RecoverySettings:
        """The connection's settings, under the operator's, under those among Spark's conf, under the run's.

        :raises ConfigurationError: the connection is missing or something in it cannot be used
        """
        own = {**self._options, "event_store": self._event_store}
        connection = self._connection_values()
        secret = str(connection.pop(SECRET, None) or "").strip()
        settings = merge_settings(
            (f"the connection {self.conn_id!r}", connection),
            ("the operator", own),
            ("the Spark conf", conf_settings(self._conf)),
            ("the run's conf", self._run_options),
        )
        for part in filter(None, (text.strip() for text in secret.split(","))):
            mask_secret(part)
        options = replace(settings.options, deployment=settings.options.deployment or deployment_name())
        return replace(settings, options=options, integrity_secret=secret)

    @cached_property
    def enabled(self) -> bool:
        """Whether jobs are recorded and recovered; where the job itself says no, no connection is needed.

        :raises ConfigurationError: see :attr:`settings`
        """
        said = {**self._options, **conf_settings(self._conf)}.get("enabled")
        if said not in (None, "") and not parse_flag(said, "enabled"):
            return False
        return self.settings.options.enabled

    def _connection_values(self) -> dict[str, Any]:
        try:
            connection = BaseHook.get_connection(self.conn_id)
        except AirflowNotFoundException as error:
            if self._event_store and self.conn_id == DEFAULT_CONN_ID:
                return {}  # the operator says all that is needed; a connection named on purpose must be there
            raise ConfigurationError(
                f"The connection {self.conn_id!r} does not exist.",
                remedy=f"Create it: airflow connections add {self.conn_id} --conn-type {CONN_TYPE} "
                '--conn-extra \'{"event_store": "s3://bucket/prefix", "aws_conn_id": "aws_default"}\'',
            ) from error
        if connection.conn_type != CONN_TYPE:
            raise ConfigurationError(
                f"The connection {self.conn_id!r} is of type {connection.conn_type!r}.",
                remedy=f"Recovery needs a connection of type {CONN_TYPE!r}.",
            )
        return dict(connection.extra_dejson)

    @cached_property
    def storage(self) -> StorageOptions:
        """How the store is reached: our own settings, then what the AWS connection says of S3."""
        own = self.settings.storage
        return own if self.aws is None else type(own).from_mapping(own.given(), base=self.aws.storage_defaults)

    @cached_property
    def store(self) -> ObjectStore:
        """The object store, with the AWS connection's credentials if one is named. Nothing is sent to it yet."""
        session = self.aws.session if self.aws is not None else None
        secret = self.settings.integrity_secret
        return open_store(self.settings.event_store, self.storage, session=session, integrity_secret=secret)

    @cached_property
    def aws(self) -> AwsAccess | None:
        """Access to the store by an AWS connection, if one is named."""
        name = self.settings.aws_conn_id
        if not name or not self.settings.event_store.startswith("s3:"):
            return None
        return AwsAccess(name, self.conn_id, self.settings.storage.region)

    @property
    def location(self) -> dict[str, Any]:
        """Where the job's state is, for the recovery page: plain values, no secret, and no address but the store's."""
        return {
            "recovery_conn_id": self.conn_id,
            "event_store": self.settings.event_store,
            "timeout": self.settings.options.previous_worker_recovery_timeout,
            "history_server": str(self._conf.get("spark.yarn.historyServer.address") or ""),
            "own_settings": ", ".join(self._own_settings()),
        }

    def _own_settings(self) -> list[str]:
        """Return the names of the task's own settings without which the connection leads to another store."""
        shared = {name.replace("-", "_"): str(value or "") for name, value in self._connection_values().items()}
        used = {"aws_conn_id": self.settings.aws_conn_id, "endpoint_url": self.settings.storage.endpoint_url}
        return [name for name, value in used.items() if (value or "") != shared.get(name, "").strip()]

    def mark_of(self, job: JobId) -> str:
        """Return the mark that applications of *job* bear in the cluster manager."""
        return job_mark(self.settings.event_store, job)

    def test(self) -> tuple[bool, str]:
        """Try everything that recovery needs of the store; return whether all works, and what to say of it."""
        try:
            return told(self.store.uri, [*check_steps(self.store)])
        except RecoveryError as error:
            return False, str(error)
