"""The hook: a ``SparkSubmitHook`` that wraps the user's application in the recovery runner."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import requests
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_provider.airflow.cluster_managers import TAGS, manager, marked, require_deployment, said_in_files
from airflow_provider.airflow.detached import start_detached
from airflow_provider.airflow.driver_bundle import build_bundle
from airflow_provider.airflow.masking import secret_parts
from airflow_provider.airflow.recovery_connection import DEFAULT_CONN_ID, RecoveryConnection
from airflow_provider.airflow.user_application import require_pyspark, ship
from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.job import JobId
from airflow_provider.core.options import INTEGRITY_SECRET
from airflow_provider.core.run_request import RunRequest

if TYPE_CHECKING:
    import logging

    from airflow_provider.airflow.recovery_settings import RecoverySettings
    from airflow_provider.airflow.renewing import Loan
    from airflow_provider.storage.object_store import ObjectStore

_HASH_SEED = "PYTHONHASHSEED"
"""Functions that close over sets pickle the same from run to run only under a fixed hash seed."""


_RUNNER_ERROR = re.compile(r"^(?:.*\bERROR )?spark-recovery: (.*)")
YARN_EXIT_CODE = re.compile(r"User application exited with(?: status)? (\d+)")
"""How YARN's diagnostics tell a driver's exit code."""


@dataclass(frozen=True)
class NextAttempt:
    """The parameters of an attempt that is about to be submitted.

    :ivar fresh: why nothing may be reused; empty text to resume
    :ivar previous_lost: newest epoch that was watched and found lost, so the driver need not watch it
    :ivar previous_beat: number of that epoch's last heartbeat; -1 if unknown
    :ivar run: distinguishes the DAG run from others of the same name (see :mod:`airflow_provider.core.job`)
    :ivar series: shared by tries that Airflow starts automatically (see :mod:`airflow_provider.airflow.retries`)
    """

    job: JobId
    fresh: str = ""
    previous_lost: int = 0
    previous_beat: int = -1
    run: str = ""
    series: str = ""


class SparkRecoveryHook(SparkSubmitHook):
    """Submit PySpark applications that a retry can resume; all of ``SparkSubmitHook``'s parameters work.

    :param recovery_conn_id: connection of type ``spark_recovery``: event store and options
    :param event_store: overrides the connection's event store for this job
    :param recovery_options: options for this job, which override the connection's
    :ivar recovery: where the job's state is kept, and how it is recovered
    :ivar driver_error: the runner's last error line; empty text if it wrote none
    """

    def __init__(
        self,
        *args: Any,
        recovery_conn_id: str = DEFAULT_CONN_ID,
        event_store: str | None = None,
        recovery_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._begin(RecoveryConnection(recovery_conn_id, event_store, recovery_options, self._conf))

    def _begin(self, recovery: RecoveryConnection) -> None:
        self.recovery = recovery
        self._attempt: NextAttempt | None = None
        self._output: Path | None = None
        self._loan: Loan | None = None
        self.submitted = False
        self.driver_error = ""
        self._driver_exit_code: int | None = None
        self._holds_commands = False

    @classmethod
    def adopt(cls, hook: SparkSubmitHook, recovery: RecoveryConnection) -> SparkRecoveryHook:
        """Return a recovery hook with all parameters of *hook*.

        ``SparkSubmitOperator`` creates its hook in one method that names every parameter; adopting that hook keeps
        parameters of later releases working.
        """
        adopted = cls.__new__(cls)
        adopted.__dict__.update(hook.__dict__)
        adopted._begin(recovery)
        return adopted

    @property
    def settings(self) -> RecoverySettings:
        """Where jobs keep their state, and how they are recovered.

        :raises ConfigurationError: the connection is missing, or a setting is invalid
        """
        return self.recovery.settings

    @property
    def store(self) -> ObjectStore:
        """The event store. Sends no request yet."""
        return self.recovery.store

    # -- submitting -------------------------------------------------------------------------------------------------

    @property
    def cluster_mode(self) -> bool:
        """Whether the driver runs on another machine."""
        mode = self._connection["deploy_mode"] or self._property("spark.submit.deployMode")
        return mode.lower() == "cluster"

    def _property(self, name: str) -> str:
        """Return what a property of Spark's is if ``spark-submit`` has no flag for it, empty if nothing sets it."""
        environment = {**os.environ, **(self._env_vars or {})}
        files = self._properties_file, self._connection["spark_binary"], environment
        return str(self._conf.get(name) or said_in_files(name, *files))

    @property
    def yarn_address(self) -> str:
        """Address of YARN's ResourceManager; empty text if the Spark connection has none."""
        try:
            return self._get_yarn_rm_base_url()
        except ValueError:
            return ""

    def require_recoverable(self, application: str) -> None:
        """Make sure that the application can run with recovery, before any request to the store.

        :raises ConfigurationError: it cannot, with the reason
        """
        environment = {**os.environ, **(self._env_vars or {})}
        remote = self._conf.get("spark.remote") or environment.get("SPARK_REMOTE") or ""
        require_pyspark(application, self._java_class, self._connection["master"], str(remote))
        require_deployment(self._connection["master"], cluster_mode=self.cluster_mode)
        ship(application, cluster_mode=self.cluster_mode)

    def yarn_tags(self, application_id: str) -> list[str]:
        """Return an application's tags from YARN's ResourceManager."""
        address = f"{self.yarn_address}/ws/v1/cluster/apps/{application_id}"
        answer = requests.get(address, auth=self._resolved_yarn_rm_auth, timeout=self._HTTP_TIMEOUT)
        answer.raise_for_status()
        return str(answer.json()["app"].get("applicationTags") or "").split(",")

    def prepare(self, attempt: NextAttempt) -> None:
        """Make the next :meth:`submit` an attempt at a job."""
        self._attempt = attempt
        if self.cluster_mode and not self._connection["deploy_mode"] and not self._yarn_track_via_rm_api:
            # Upstream ignores the deploy mode in conf and files: it would take any end of a driver pod as success, and
            # capture no id.
            self._connection["deploy_mode"] = "cluster"

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Submit the application, inside the runner if :meth:`prepare` was called.

        Even without the runner, the package is shipped with a Python script, which may import it.
        """
        self.submitted = True
        kwargs = {"errors": "backslashreplace", **kwargs}  # what a driver prints may be in any encoding
        if self._attempt is None:
            if application.endswith(".py"):
                self._py_files = _listed(str(build_bundle().package), self._own_py_files)
            return super().submit(application, **kwargs)
        with self._wrapped(application, self._attempt) as runner, self._credentials_lent():
            if self._output is None:
                return super().submit(runner, **kwargs)
            command = self._build_spark_submit_command(runner)
            self._submit_sp = start_detached(command, self._env, self._output)
            self._renew_credentials()
            return None

    @contextmanager
    def _credentials_lent(self) -> Iterator[None]:
        """Lend credentials to a driver on this machine; they are taken back if none is started."""
        aws = None if self.cluster_mode else self.recovery.aws
        loan = self._loan = aws.loan() if aws is not None else None
        try:
            yield
        except BaseException:
            if loan is not None and loan.process is None:
                loan.take_back()
            raise

    def _renew_credentials(self) -> None:
        """Start the process that renews what was lent to the driver that has just been started."""
        if self._loan is None or self._loan.process is not None or self._submit_sp is None:
            return
        try:
            number = self._loan.renew_during(self._submit_sp.pid, self._output)
            self.log.info("Process %d renews the driver's credentials.", number)
        except OSError as error:
            self.log.warning("Nobody renews the driver's temporary credentials: %s", error)

    def do_not_wait(self, output: Path | None) -> None:
        """Make the next :meth:`submit` return as soon as the application is started.

        In cluster mode the application is only handed to the cluster manager. Otherwise the driver is a process on this
        machine, which outlives this process.

        :param output: file for the output of a driver on this machine; none in cluster mode
        :raises ConfigurationError: the connection lacks a setting for this
        """
        self._output = output
        self._holds_commands = True
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

    def _run_post_submit_commands(self) -> None:
        if not self._holds_commands:
            super()._run_post_submit_commands()

    def run_held_commands(self) -> None:
        """Run the commands due after an application that nobody waits for: it has ended while it was submitted."""
        if self._holds_commands:
            self._holds_commands = False
            self._run_post_submit_commands()

    def on_kill(self) -> None:
        """End the application, and run the commands due after it."""
        self._holds_commands = False
        super().on_kill()

    def relay(self, lines: Iterator[str]) -> None:
        """Log a detached driver's output, as :meth:`submit` does for a driver that it waits for."""
        self._process_spark_submit_log(lines)

    @property
    def _own_py_files(self) -> str:
        """What the user ships. The flag replaces the property, so ours must have the files of both."""
        return self._py_files or self._property("spark.submit.pyFiles")

    @contextmanager
    def _wrapped(self, application: str, attempt: NextAttempt) -> Iterator[str]:
        """Replace the application by the runner while the block runs."""
        bundle = build_bundle()
        shipped = ship(application, cluster_mode=self.cluster_mode)
        arguments = tuple(str(argument) for argument in self._application_args or ())
        request = RunRequest(
            event_store=self.settings.event_store,
            application=shipped.argument,
            arguments=arguments,
            secret_parts=secret_parts(arguments),
            options=self.settings.options,
            storage=self.recovery.storage,
            supervised=True,
            **vars(attempt),
        )
        own = self._application_args, self._py_files, self._files
        self._application_args = request.to_arguments()
        self._py_files = _listed(str(bundle.package), self._own_py_files, *shipped.py_files)
        if shipped.files:
            self._files = _listed(self._files or self._property("spark.files"), *shipped.files)
        try:
            yield str(bundle.runner)
        except FileNotFoundError as error:
            if error.filename != self._connection["spark_binary"]:
                raise
            raise ConfigurationError(
                f"The program {error.filename!r} is not on the worker's PATH.",
                remedy="Install Spark on the worker (pip install pyspark brings spark-submit, in the version of the "
                "pyspark-client beside it), or set spark_binary.",
            ) from error
        finally:
            self._application_args, self._py_files, self._files = own
            self._attempt = None

    @property
    def exit_code(self) -> int | None:
        """The driver's exit code, as far as the last ``spark-submit`` reveals it; ``None`` if none has ended."""
        if self._driver_exit_code or self._spark_exit_code:
            return self._driver_exit_code or self._spark_exit_code
        return self._submit_sp.returncode if self._submit_sp is not None else None

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        if self._output is None:  # a driver that this process waits for has just been started
            self._renew_credentials()
        super()._process_spark_submit_log(self._listen(itr))

    def _listen(self, lines: Iterator[Any]) -> Iterator[Any]:
        """Pass the lines on, and note the runner's messages and YARN's about it."""
        for line in lines:
            if said := _RUNNER_ERROR.search(line):
                self.driver_error = said[1].strip()
            elif code := YARN_EXIT_CODE.search(line):
                self._driver_exit_code = int(code[1])
            yield line

    def _build_spark_submit_command(self, application: str) -> list[str]:
        if self._attempt is None:
            return super()._build_spark_submit_command(application)
        kind, mark = manager(self._connection["master"]), self.recovery.mark_of(self._attempt.job)
        self._conf = marked(self._conf, kind, mark, self._property(TAGS))
        if self.cluster_mode:
            self.log.info("The driver and its executors reach the event store with their own role.")
            if self.settings.integrity_secret:
                self.log.info("They need the connection's integrity secret in their environment: %s.", INTEGRITY_SECRET)
            names = (f"spark.yarn.appMasterEnv.{_HASH_SEED}", f"spark.kubernetes.driverEnv.{_HASH_SEED}")
            self._conf = {**dict.fromkeys(names, "0"), **self._conf}
            return super()._build_spark_submit_command(application)
        command = super()._build_spark_submit_command(application)
        log = cast("logging.Logger", self.log)
        credentials: dict[str, str] = {}
        if self._loan is not None:
            credentials = self._loan.environment
        elif self.recovery.aws is not None:
            credentials = self.recovery.aws.driver_environment(log)
        secret = self.settings.integrity_secret
        sealing = {INTEGRITY_SECRET: secret} if secret else {}
        self._env = {_HASH_SEED: "0", **credentials, **(self._env or {}), **sealing}
        return command


def _listed(*paths: str | None) -> str:
    return ",".join(path for path in paths if path)
