"""The ``spark_recovery`` connection with a job's overrides: its settings, and the store that they lead to.

Knows nothing of Spark: triggers and the page use it as well.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook, conf, mask_secret

from airflow_provider.airflow.aws import AwsAccess
from airflow_provider.airflow.cluster_managers import job_mark
from airflow_provider.airflow.recovery_settings import SECRET, RecoverySettings, by_name, merge_settings
from airflow_provider.core.errors import ConfigurationError, RecoveryError
from airflow_provider.core.job import JobId
from airflow_provider.core.option_types import parse_flag
from airflow_provider.core.options import StorageOptions
from airflow_provider.core.options_in_conf import conf_settings
from airflow_provider.storage.checks import CheckedStep, check_steps
from airflow_provider.storage.uris import open_store

if TYPE_CHECKING:
    from airflow_provider.storage.object_store import ObjectStore

CONN_TYPE = "spark_recovery"
DEFAULT_CONN_ID = "spark_recovery_default"
_SCHEME = "spark-recovery://"


def deployment_name() -> str:
    """Return the default name of this Airflow deployment: host, port and path of its API server; empty text if
    Airflow's configuration names only ``localhost``. The option ``deployment`` overrides it.

    The name must be the same on all of a deployment's workers for as long as its jobs last, and different in each
    deployment. Airflow has no such id; ``[api] base_url`` comes closest. The name is no secret: user and password of
    the URL are left out.
    """
    said = str(conf.get("api", "base_url", fallback="") or "")
    try:
        url = urlsplit(said)
        host, port = url.hostname or "", url.port
    except ValueError:
        return ""
    if not host or _is_everywhere(host):
        return ""
    name = f"[{host}]" if ":" in host else host
    return f"{name}:{port}{url.path.rstrip('/')}" if port else f"{name}{url.path.rstrip('/')}"


def _is_everywhere(host: str) -> bool:
    """Whether this host means the local machine everywhere, as ``localhost`` does."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def told(uri: str, steps: Sequence[CheckedStep]) -> tuple[bool, str]:
    """Return whether all steps worked, and a text that names each one, with the remedy for those that failed."""
    works = [step.name for step in steps if step.problem is None]
    fails = [f"{step.name.capitalize()} fails: {step.problem}" for step in steps if step.problem is not None]
    sound = f"{_listed(works).capitalize()} {'works' if len(works) == 1 else 'work'} in {uri}" if works else ""
    if not fails:
        return True, sound
    return False, " ".join([*([f"{sound}."] if sound else []), *fails])


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


class RecoveryConnection:
    """Where a job's state is kept, and how the job is recovered. Nothing is looked up before it is needed.

    :param conn_id: the connection, which holds event store and options
    :param event_store: overrides the connection's event store
    :param options: the operator's options, which override the connection's
    :param conf: the job's Spark properties; options among them override the operator's
    :param run_options: options from the run's conf, which override all others
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
        """The settings: the connection's, overridden by the operator's, by those in Spark's conf, and by the run's.

        :raises ConfigurationError: the connection is missing, or a setting is invalid
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
        """Whether jobs are recorded and recovered. If the job itself switches recovery off, no connection is needed.

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
                return {}  # the operator names everything; a connection that was named on purpose must exist
            raise ConfigurationError(
                f"The connection {self.conn_id!r} does not exist.",
                remedy=f"Create it: airflow connections add {self.conn_id} --conn-type {CONN_TYPE} "
                '--conn-extra \'{"event_store": "s3://bucket/prefix", "aws_conn_id": "aws_default"}\'',
            ) from error
        if connection.conn_type != CONN_TYPE:
            raise ConfigurationError(
                f"The connection {self.conn_id!r} is of type {connection.conn_type!r}.",
                remedy=f"Recovery needs a connection of type {CONN_TYPE!r}. In a URI that is {_SCHEME}, with a hyphen.",
            )
        remedy = 'Write it as JSON, with a name for each setting: {"event_store": "s3://bucket/prefix"}.'
        return by_name(connection.extra_dejson, f"The extra of the connection {self.conn_id!r}", remedy)

    @cached_property
    def storage(self) -> StorageOptions:
        """How the store is reached: our own settings, then the AWS connection's S3 settings."""
        own = self.settings.storage
        return own if self.aws is None else type(own).from_mapping(own.given(), base=self.aws.storage_defaults)

    @cached_property
    def store(self) -> ObjectStore:
        """The object store, with the AWS connection's credentials if one is named. Sends no request yet."""
        session = self.aws.session if self.aws is not None else None
        secret = self.settings.integrity_secret
        return open_store(self.settings.event_store, self.storage, session=session, integrity_secret=secret)

    @cached_property
    def aws(self) -> AwsAccess | None:
        """Access to the store through an AWS connection, if one is named."""
        name = self.settings.aws_conn_id
        if not name or not self.settings.event_store.startswith("s3:"):
            return None
        return AwsAccess(name, self.conn_id, self.settings.storage.region)

    @property
    def location(self) -> dict[str, Any]:
        """The job's location, for the recovery page: plain values, no secret, no address but the store's."""
        return {
            "recovery_conn_id": self.conn_id,
            "event_store": self.settings.event_store,
            "timeout": self.settings.options.previous_worker_recovery_timeout,
            "history_server": str(self._conf.get("spark.yarn.historyServer.address") or ""),
            "own_settings": ", ".join(self._own_settings()),
        }

    def _own_settings(self) -> list[str]:
        """Return the names of the task's own settings without which the connection would lead to another store."""
        shared = {name.replace("-", "_"): str(value or "") for name, value in self._connection_values().items()}
        used = {"aws_conn_id": self.settings.aws_conn_id, "endpoint_url": self.settings.storage.endpoint_url}
        return [name for name, value in used.items() if (value or "") != shared.get(name, "").strip().rstrip("/")]

    def mark_of(self, job: JobId) -> str:
        """Return the mark of *job*'s applications in the cluster manager."""
        return job_mark(self.settings.event_store, job)

    def test(self) -> tuple[bool, str]:
        """Test everything that recovery needs of the store; return whether all of it works, and a text for people."""
        try:
            return told(self.store.uri, [*check_steps(self.store)])
        except RecoveryError as error:
            return False, str(error)
