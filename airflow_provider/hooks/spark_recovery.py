"""The hook: ``SparkSubmitHook`` that wraps the user's application in the recovery runner."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import requests
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowNotFoundException, mask_secret

from airflow_provider.airflow.aws import AwsAccess
from airflow_provider.airflow.connection_form import told
from airflow_provider.airflow.deployment import manager, require_deployment
from airflow_provider.airflow.deployment_name import deployment_name
from airflow_provider.airflow.detached import start_detached
from airflow_provider.airflow.driver_bundle import build_bundle
from airflow_provider.airflow.mark import job_mark, marked, usual_tags
from airflow_provider.airflow.masking import secret_parts
from airflow_provider.airflow.recovery_settings import SECRET, RecoverySettings, merge_settings
from airflow_provider.airflow.user_application import require_pyspark, ship
from airflow_provider.core.errors import ConfigurationError, RecoveryError
from airflow_provider.core.job import JobId
from airflow_provider.core.option_types import parse_flag
from airflow_provider.core.options import INTEGRITY_SECRET, StorageOptions
from airflow_provider.core.run_request import RunRequest
from airflow_provider.core.spark_conf import conf_settings
from airflow_provider.storage.checks import check_steps
from airflow_provider.storage.uris import open_store

if TYPE_CHECKING:
    import logging

    from airflow_provider.airflow.renewing import Loan
    from airflow_provider.storage.object_store import ObjectStore

_HASH_SEED = "PYTHONHASHSEED"
"""Functions that close over sets pickle the same from run to run only under a fixed hash seed."""


_RUNNER_ERROR = re.compile(r"^(?:.*\bERROR )?spark-recovery: (.*)")
YARN_EXIT_CODE = re.compile(r"User application exited with(?: status)? (\d+)")
"""How YARN's diagnostics tell a driver's exit code."""


class SparkRecoveryHook(SparkSubmitHook):
    """Submit PySpark applications that a retry can resume; all of ``SparkSubmitHook``'s parameters work.

    :param recovery_conn_id: connection of type ``spark_recovery``: event store and options
    :param event_store: event store for this job in place of the connection's
    :param recovery_options: options for this job over the connection's
    :param run_options: options that whoever started this run has given, over all others
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
        run_options: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._set_recovery(recovery_conn_id, event_store, recovery_options, run_options)

    def _set_recovery(
        self,
        recovery_conn_id: str,
        event_store: str | None,
        recovery_options: dict[str, Any] | None,
        run_options: dict[str, str] | None,
    ) -> None:
        self.recovery_conn_id = recovery_conn_id
        self._event_store = event_store
        self._recovery_options = recovery_options or {}
        self._run_options = run_options or {}
        self._attempt: dict[str, Any] | None = None
        self._output: Path | None = None
        self._lent: dict[str, str] | None = None
        self._loan: Loan | None = None
        self.submitted = False
        self._driver_error = ""
        self._driver_exit_code: int | None = None

    @classmethod
    def adopt(
        cls,
        hook: SparkSubmitHook,
        *,
        recovery_conn_id: str,
        event_store: str | None,
        recovery_options: dict[str, Any] | None,
        run_options: dict[str, str] | None = None,
    ) -> SparkRecoveryHook:
        """Return a recovery hook with everything that *hook* was given.

        ``SparkSubmitOperator`` makes its hook in one method that names every parameter; adopting that hook keeps
        parameters working that later releases add.
        """
        adopted = cls.__new__(cls)
        adopted.__dict__.update(hook.__dict__)
        adopted._set_recovery(recovery_conn_id, event_store, recovery_options, run_options)
        return adopted

    @classmethod
    def of_store(
        cls, *, recovery_conn_id: str, event_store: str, recovery_options: dict[str, Any] | None = None
    ) -> SparkRecoveryHook:
        """Return a hook that knows the event store alone: it asks for no Spark connection, and submits nothing."""
        hook = cls.__new__(cls)
        hook._conf = {}
        hook._set_recovery(recovery_conn_id, event_store, recovery_options, None)
        return hook

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return how Airflow versions without declared forms show the connection."""
        from airflow_provider.provider_info import get_provider_info

        behaviour: dict[str, Any] = get_provider_info()["connection-types"][0]["ui-field-behaviour"]
        return {name.replace("-", "_"): value for name, value in behaviour.items()}

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """Return the form's fields for Airflow 3.1; later versions read them in the provider's metadata."""
        from airflow_provider.airflow.connection_form import form_widgets

        return form_widgets()

    # -- settings and store -----------------------------------------------------------------------------------------

    @cached_property
    def settings(self) -> RecoverySettings:
        """The connection's settings, under the operator's, under those among Spark's conf, under the run's.

        :raises ConfigurationError: the connection is missing or something in it cannot be used
        """
        own = {**self._recovery_options, "event_store": self._event_store}
        connection = self._connection_values()
        secret = str(connection.pop(SECRET, None) or "").strip()
        settings = merge_settings(
            (f"the connection {self.recovery_conn_id!r}", connection),
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
        own = {**self._recovery_options, **conf_settings(self._conf)}
        said = own.get("enabled")
        if said not in (None, "") and not parse_flag(said, "enabled"):
            return False
        return self.settings.options.enabled

    def _connection_values(self) -> dict[str, Any]:
        try:
            connection = self.get_connection(self.recovery_conn_id)
        except AirflowNotFoundException as error:
            if self._event_store and self.recovery_conn_id == self.default_conn_name:
                return {}  # the operator says all that is needed; a connection named on purpose must be there
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
        own = self.settings.storage
        return own if self._aws is None else type(own).from_mapping(own.given(), base=self._aws.storage_defaults)

    @cached_property
    def store(self) -> ObjectStore:
        """The object store, with the AWS connection's credentials if one is named. Nothing is sent to it yet."""
        session = self._aws.session if self._aws is not None else None
        secret = self.settings.integrity_secret
        return open_store(self.settings.event_store, self.storage, session=session, integrity_secret=secret)

    @cached_property
    def _aws(self) -> AwsAccess | None:
        name = self.settings.aws_conn_id
        if not name or not self.settings.event_store.startswith("s3:"):
            return None
        return AwsAccess(name, self.recovery_conn_id, self.settings.storage.region)

    @property
    def location(self) -> dict[str, Any]:
        """Where the job's state is, for the recovery page: plain values, no secret, and no address but the store's."""
        return {
            "recovery_conn_id": self.recovery_conn_id,
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

    def test_connection(self) -> tuple[bool, str]:
        """Try everything that recovery needs of the store: for the *Test* button of the connection form."""
        try:
            return told(self.store.uri, [*check_steps(self.store)])
        except RecoveryError as error:
            return False, str(error)

    # -- submitting -------------------------------------------------------------------------------------------------

    @property
    def cluster_mode(self) -> bool:
        """Whether the driver runs on another machine than this one."""
        mode = self._connection["deploy_mode"] or self._conf.get("spark.submit.deployMode")
        return str(mode).lower() == "cluster"

    @property
    def yarn_address(self) -> str:
        """Address of YARN's ResourceManager; empty text if the Spark connection has none."""
        try:
            return self._get_yarn_rm_base_url()
        except ValueError:
            return ""

    def require_recoverable(self, application: str) -> None:
        """Make sure that the application can be run with recovery, before anything is asked of the store.

        :raises ConfigurationError: it cannot; says why
        """
        environment = {**os.environ, **(self._env_vars or {})}
        remote = self._conf.get("spark.remote") or environment.get("SPARK_REMOTE") or ""
        require_pyspark(application, self._java_class, self._connection["master"], str(remote))
        require_deployment(self._connection["master"], cluster_mode=self.cluster_mode)
        ship(application, cluster_mode=self.cluster_mode)

    def yarn_tags(self, application_id: str) -> list[str]:
        """Return the tags of an application, as YARN's ResourceManager tells them."""
        address = f"{self.yarn_address}/ws/v1/cluster/apps/{application_id}"
        answer = requests.get(address, auth=self._resolved_yarn_rm_auth, timeout=self._HTTP_TIMEOUT)
        answer.raise_for_status()
        return str(answer.json()["app"].get("applicationTags") or "").split(",")

    def mark_of(self, job: JobId) -> str:
        """Return the mark that applications of *job* bear in the cluster manager."""
        return job_mark(self.settings.event_store, job)

    def add_py_file(self, path: str) -> None:
        """Send one more file along with ``--py-files``."""
        self._py_files = _listed(path, self._py_files)

    def prepare(
        self, job: JobId, *, fresh: str = "", previous_lost: int = 0, previous_beat: int = -1, run: str = ""
    ) -> None:
        """Make the next :meth:`submit` an attempt at *job*.

        :param fresh: why nothing may be reused; empty text to resume
        :param previous_lost: newest epoch that has been watched and found lost, so that the driver need not watch it
        :param previous_beat: number of that one's last heartbeat; -1 if it is not known
        :param run: tells the DAG run from others of the same name (see :mod:`airflow_provider.core.job`)
        """
        self._attempt = {
            "job": job,
            "fresh": fresh,
            "previous_lost": previous_lost,
            "previous_beat": previous_beat,
            "run": run,
        }
        if self.cluster_mode and not self._connection["deploy_mode"] and not self._yarn_track_via_rm_api:
            # Upstream overlooks the conf: it would take any end of a driver pod for a success, and capture no id.
            self._connection["deploy_mode"] = "cluster"

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Submit the application, inside the runner if :meth:`prepare` was called."""
        self.submitted = True
        if self._attempt is None:
            return super().submit(application, **kwargs)
        with self._wrapped(application) as runner:
            if self._output is None:
                with self._credentials_lent():
                    return super().submit(runner, **kwargs)
            self._start_detached(runner, self._output)
            return None

    def _start_detached(self, runner: str, output: Path) -> None:
        """Start a driver that nobody waits for, and what renews its credentials."""
        loan = self._loan = self._aws.loan() if self._aws is not None else None
        self._lent = loan.environment if loan is not None else None
        try:
            command = self._build_spark_submit_command(runner)
            self._submit_sp = start_detached(command, self._env, output)
        except BaseException:
            if loan is not None:
                loan.take_back()
            raise
        finally:
            self._lent = None
        if loan is None:
            return
        try:
            self.log.info("Process %d renews the driver's credentials.", loan.renew_during(self._submit_sp.pid, output))
        except OSError as error:
            self.log.warning("Nobody renews the driver's temporary credentials: %s", error)

    @contextmanager
    def _credentials_lent(self) -> Iterator[None]:
        """Renew the credentials of a driver of this machine while the block runs."""
        if self._aws is None or self.cluster_mode:
            yield
            return
        with self._aws.lent_to_driver() as self._lent:
            try:
                yield
            finally:
                self._lent = None

    def do_not_wait(self, output: Path | None) -> None:
        """Let the next :meth:`submit` return as soon as the application is started, whatever becomes of it.

        In cluster mode the cluster manager is only given the application. Otherwise the driver is a process of this
        machine, which outlives this one.

        :param output: file for what a driver of this machine prints; none in cluster mode
        :raises ConfigurationError: the connection does not say enough
        """
        self._output = output
        self._post_submit_commands_done = True  # they are for when the application has ended
        if output is not None:
            return
        if self._is_yarn:
            self._conf = {**self._conf, "spark.yarn.submit.waitAppCompletion": "false"}
        elif self._is_kubernetes:
            self._track_driver_via_k8s_api = True
            try:
                self._validate_track_driver_via_k8s_api_config()
            except ValueError as error:
                raise ConfigurationError(
                    f"The driver's pod could not be found again: {error}",
                    remedy="Set 'namespace' in the Spark connection's extra, or 'deferrable' to false.",
                ) from error

    def relay(self, lines: Iterator[str]) -> None:
        """Log what a detached driver has printed, as :meth:`submit` does for one that it waits for."""
        self._process_spark_submit_log(lines)

    @contextmanager
    def _wrapped(self, application: str) -> Iterator[str]:
        """Put the runner in the place of the application while the block runs."""
        bundle = build_bundle()
        shipped = ship(application, cluster_mode=self.cluster_mode)
        arguments = tuple(str(argument) for argument in self._application_args or ())
        request = RunRequest(
            event_store=self.settings.event_store,
            application=shipped.argument,
            arguments=arguments,
            secret_parts=secret_parts(arguments),
            options=self.settings.options,
            storage=self.storage,
            supervised=True,
            **(self._attempt or {}),
        )
        own = self._application_args, self._py_files, self._files
        self._application_args = request.to_arguments()
        self._py_files = _listed(str(bundle.package), self._py_files, *shipped.py_files)
        self._files = _listed(self._files, *shipped.files) or None
        try:
            yield str(bundle.runner)
        except FileNotFoundError as error:
            if error.filename != self._connection["spark_binary"]:
                raise
            raise ConfigurationError(
                f"The program {error.filename!r} is not on the worker's PATH.",
                remedy="Install Spark on the worker (pip install pyspark brings spark-submit), or set spark_binary.",
            ) from error
        finally:
            self._application_args, self._py_files, self._files = own
            self._attempt = None

    @property
    def exit_code(self) -> int | None:
        """Exit code of the driver, as far as the last ``spark-submit`` tells it; ``None`` if none has ended."""
        if self._driver_exit_code or self._spark_exit_code:
            return self._driver_exit_code or self._spark_exit_code
        return self._submit_sp.returncode if self._submit_sp is not None else None

    @property
    def driver_error(self) -> str:
        """The runner's own last line about what is wrong; empty text if it wrote none."""
        return self._driver_error

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(self._listen(itr))

    def _listen(self, lines: Iterator[Any]) -> Iterator[Any]:
        """Pass the lines on, and note what the runner says of itself and what YARN says of it."""
        for line in lines:
            if said := _RUNNER_ERROR.search(line):
                self._driver_error = said[1].strip()
            elif code := YARN_EXIT_CODE.search(line):
                self._driver_exit_code = int(code[1])
            yield line

    def _build_spark_submit_command(self, application: str) -> list[str]:
        if self._attempt is None:
            return super()._build_spark_submit_command(application)
        kind, environment = manager(self._connection["master"]), {**os.environ, **(self._env_vars or {})}
        tags = usual_tags(self._properties_file, self._connection["spark_binary"], environment)
        self._conf = marked(self._conf, kind, self.mark_of(self._attempt["job"]), tags)
        if self.cluster_mode:
            self.log.info("The driver and its executors reach the event store with their own role.")
            if self.settings.integrity_secret:
                self.log.info("They need the connection's integrity secret in their environment: %s.", INTEGRITY_SECRET)
            names = (f"spark.yarn.appMasterEnv.{_HASH_SEED}", f"spark.kubernetes.driverEnv.{_HASH_SEED}")
            self._conf = {**dict.fromkeys(names, "0"), **self._conf}
            return super()._build_spark_submit_command(application)
        command = super()._build_spark_submit_command(application)
        log = cast("logging.Logger", self.log)
        credentials = self._lent
        if credentials is None:
            credentials = self._aws.driver_environment(log) if self._aws is not None else {}
        secret = self.settings.integrity_secret
        sealing = {INTEGRITY_SECRET: secret} if secret else {}
        self._env = {_HASH_SEED: "0", **credentials, **(self._env or {}), **sealing}
        return command


def _listed(*paths: str | None) -> str:
    return ",".join(path for path in paths if path)
