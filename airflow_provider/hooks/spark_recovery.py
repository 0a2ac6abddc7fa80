"""The hook: ``SparkSubmitHook`` that wraps the user's application in the recovery runner."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowNotFoundException, mask_secret

from airflow_provider.hooks.application import require_pyspark, ship
from airflow_provider.hooks.bundle import build_bundle
from airflow_provider.hooks.settings import RecoverySettings, conf_settings, merge_settings
from airflow_provider.recovery.errors import ConfigurationError, RecoveryError
from airflow_provider.recovery.job import JobId
from airflow_provider.recovery.options import StorageOptions
from airflow_provider.recovery.run_request import RunRequest
from airflow_provider.storage.uris import open_store

if TYPE_CHECKING:
    import boto3
    from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook

    from airflow_provider.storage.object_store import ObjectStore

_HASH_SEED = "PYTHONHASHSEED"
"""Functions that close over sets pickle the same from run to run only under a fixed hash seed."""


class SparkRecoveryHook(SparkSubmitHook):
    """Submit PySpark applications that a retry can resume; all of ``SparkSubmitHook``'s parameters work.

    :param recovery_conn_id: connection of type ``spark_recovery``: event store and options
    :param event_store: event store for this job in place of the connection's
    :param recovery_options: options for this job over the connection's
    """

    conn_name_attr = "recovery_conn_id"
    default_conn_name = "spark_recovery_default"
    conn_type = "spark_recovery"
    hook_name = "Spark Recovery"

    def __init__(
        self,
        *args: Any,
        recovery_conn_id: str = default_conn_name,
        event_store: str | None = None,
        recovery_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._set_recovery(recovery_conn_id, event_store, recovery_options)

    def _set_recovery(
        self, recovery_conn_id: str, event_store: str | None, recovery_options: dict[str, Any] | None
    ) -> None:
        self.recovery_conn_id = recovery_conn_id
        self._event_store = event_store
        self._recovery_options = recovery_options or {}
        self._attempt: dict[str, Any] | None = None

    @classmethod
    def adopt(
        cls,
        hook: SparkSubmitHook,
        *,
        recovery_conn_id: str,
        event_store: str | None,
        recovery_options: dict[str, Any] | None,
    ) -> SparkRecoveryHook:
        """Return a recovery hook with everything that *hook* was given.

        ``SparkSubmitOperator`` makes its hook in one method that names every parameter; adopting that hook keeps
        parameters working that later releases add.
        """
        adopted = cls.__new__(cls)
        adopted.__dict__.update(hook.__dict__)
        adopted._set_recovery(recovery_conn_id, event_store, recovery_options)
        return adopted

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return how Airflow versions without declared forms show the connection."""
        from airflow_provider.provider_info import get_provider_info

        behaviour: dict[str, Any] = get_provider_info()["connection-types"][0]["ui-field-behaviour"]
        return {name.replace("-", "_"): value for name, value in behaviour.items()}

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """Return no widgets of the old form: the fields are declared in the provider's metadata."""
        return {}

    # -- settings and store -----------------------------------------------------------------------------------------

    @cached_property
    def settings(self) -> RecoverySettings:
        """The connection's settings, under the operator's, under those among Spark's conf.

        :raises ConfigurationError: the connection is missing or something in it cannot be used
        """
        own = {**self._recovery_options, "event_store": self._event_store}
        return merge_settings(
            (f"the connection {self.recovery_conn_id!r}", self._connection_values()),
            ("the operator", own),
            ("the Spark conf", conf_settings(self._conf)),
        )

    def _connection_values(self) -> dict[str, Any]:
        try:
            connection = self.get_connection(self.recovery_conn_id)
        except AirflowNotFoundException as error:
            if self._event_store:
                return {}
            raise ConfigurationError(
                f"The connection {self.recovery_conn_id!r} does not exist.",
                remedy=f"Create it: airflow connections add {self.recovery_conn_id} --conn-type {self.conn_type} "
                '--conn-extra \'{"event_store": "s3://bucket/prefix", "aws_conn_id": "aws_default"}\'',
            ) from error
        if connection.conn_type != self.conn_type:
            raise ConfigurationError(
                f"The connection {self.recovery_conn_id!r} is of type {connection.conn_type!r}.",
                remedy=f"Recovery needs a connection of type {self.conn_type!r}.",
            )
        return dict(connection.extra_dejson)

    @cached_property
    def storage(self) -> StorageOptions:
        """How the store is reached: our own settings, then what the AWS connection says of S3."""
        aws = self._aws
        if aws is None:
            return self.settings.storage
        wrapper = aws.conn_config
        verify = wrapper.verify if isinstance(wrapper.verify, str) else ""
        found = {
            "endpoint_url": wrapper.get_service_endpoint_url("s3"),
            "region": wrapper.region_name,
            "ca_bundle": verify,
        }
        chosen = {name: value for name, value in self.settings.storage.to_mapping().items() if value}
        return StorageOptions.from_mapping(chosen, base=StorageOptions.from_mapping(found))

    @cached_property
    def store(self) -> ObjectStore:
        """The object store, with the AWS connection's credentials if one is named. Nothing is sent to it yet."""
        return open_store(self.settings.event_store, self.storage, session=self._session)

    @cached_property
    def _aws(self) -> AwsBaseHook | None:
        name = self.settings.aws_conn_id
        if not name or not self.settings.event_store.startswith("s3:"):
            return None
        try:
            from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook
        except ImportError as error:
            raise ConfigurationError(
                f"The AWS connection {name!r} needs the Amazon provider, which is not installed.",
                remedy="pip install apache-airflow-providers-amazon, or leave aws_conn_id empty to use the "
                "machine's own credentials.",
            ) from error
        try:
            self.get_connection(name)
        except AirflowNotFoundException as error:
            raise ConfigurationError(
                f"The AWS connection {name!r}, named by {self.recovery_conn_id!r}, does not exist.",
                remedy=f"Create it: airflow connections add {name} --conn-type aws, or leave aws_conn_id empty.",
            ) from error
        return AwsBaseHook(aws_conn_id=name, client_type="s3")

    @cached_property
    def _session(self) -> boto3.Session | None:
        return self._aws.get_session(region_name=self.storage.region or None) if self._aws is not None else None

    def test_connection(self) -> tuple[bool, str]:
        """Try everything that recovery needs of the store: for the *Test* button of the connection form."""
        try:
            self.store.check()
        except RecoveryError as error:
            return False, str(error)
        return True, f"Creating, create-only, reading, listing and deleting work in {self.store.uri}"

    # -- submitting -------------------------------------------------------------------------------------------------

    @property
    def cluster_mode(self) -> bool:
        """Whether the driver runs on another machine than this one."""
        return bool(self._connection["deploy_mode"] == "cluster")

    def require_recoverable(self, application: str) -> None:
        """Make sure that the application can be run with recovery, before anything is asked of the store.

        :raises ConfigurationError: it cannot; says why
        """
        require_pyspark(application, self._java_class, self._connection["master"], self._conf)
        ship(application, cluster_mode=self.cluster_mode)

    def prepare(self, job: JobId, *, fresh: str = "", previous_lost: int = 0) -> None:
        """Make the next :meth:`submit` an attempt at *job*.

        :param fresh: why nothing may be reused; empty text to resume
        :param previous_lost: newest epoch that has been watched and found lost, so that the driver need not watch it
        """
        self._attempt = {"job": job, "fresh": fresh, "previous_lost": previous_lost}

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Submit the application, inside the runner if :meth:`prepare` was called."""
        if self._attempt is None:
            return super().submit(application, **kwargs)
        bundle = build_bundle()
        shipped = ship(application, cluster_mode=self.cluster_mode)
        request = RunRequest(
            event_store=self.settings.event_store,
            application=shipped.argument,
            arguments=tuple(str(argument) for argument in self._application_args or ()),
            options=self.settings.options,
            storage=self.storage,
            supervised=True,
            **self._attempt,
        )
        self._attempt = None
        self._application_args = request.to_arguments()
        self._py_files = ",".join([str(bundle.package), *([self._py_files] if self._py_files else [])])
        self._files = ",".join([*([self._files] if self._files else []), *shipped.files]) or None
        return super().submit(str(bundle.runner), **kwargs)

    @property
    def returncode(self) -> int | None:
        """Exit code of the last ``spark-submit``; ``None`` if none has ended."""
        return self._submit_sp.returncode if self._submit_sp is not None else None

    @property
    def driver_error(self) -> str:
        """The runner's own line about what is wrong; empty text if it wrote none."""
        marked = [line for line in self._last_submit_log_lines if "spark-recovery: " in line and "INFO" not in line]
        return marked[-1].split("spark-recovery: ", 1)[1] if marked else ""

    def _build_spark_submit_command(self, application: str) -> list[str]:
        if self.cluster_mode:
            self.log.info("The driver and its executors reach the event store with their own role.")
            for name in (f"spark.yarn.appMasterEnv.{_HASH_SEED}", f"spark.kubernetes.driverEnv.{_HASH_SEED}"):
                self._conf.setdefault(name, "0")
            return super()._build_spark_submit_command(application)
        command = super()._build_spark_submit_command(application)
        self._env = {_HASH_SEED: "0", **self._credentials(), **(self._env or {})}
        return command

    def _credentials(self) -> dict[str, str]:
        """Return what the driver needs to reach the store; goes into its environment and nowhere else."""
        if self._session is None:
            return {}
        found = self._session.get_credentials()
        if found is None:
            return {}
        keys = found.get_frozen_credentials()
        values = {
            "AWS_ACCESS_KEY_ID": keys.access_key,
            "AWS_SECRET_ACCESS_KEY": keys.secret_key,
            "AWS_SESSION_TOKEN": keys.token or "",
        }
        for secret in (keys.secret_key, keys.token):
            if secret:
                mask_secret(secret)
        return {name: value for name, value in values.items() if value}
