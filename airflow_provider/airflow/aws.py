"""Use Airflow's AWS connection: a session for the worker, defaults for the store, credentials for the driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowException, AirflowNotFoundException, BaseHook, mask_secret

from airflow_provider.core.errors import ConfigurationError, StoreUnavailable
from airflow_provider.core.options import ACCESS_KEY, SECRET_KEY, SESSION_TOKEN, StorageOptions

if TYPE_CHECKING:
    import logging

    import boto3
    from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook
    from airflow.providers.amazon.aws.utils.connection_wrapper import AwsConnectionWrapper
    from botocore.credentials import ReadOnlyCredentials

    from airflow_provider.airflow.renewing import Loan


class AwsAccess:
    """Access to S3 through one AWS connection. AWS is contacted only when needed.

    :param conn_id: the connection
    :param named_by: the connection that refers to this one, for messages
    :param region: overrides the connection's region; empty text to keep it
    """

    def __init__(self, conn_id: str, named_by: str, region: str = "") -> None:
        self._conn_id = conn_id
        self._named_by = named_by
        self._region = region

    @cached_property
    def _hook(self) -> AwsBaseHook:
        try:
            from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook
        except ImportError as error:
            raise ConfigurationError(
                f"The AWS connection {self._conn_id!r} needs the Amazon provider, which is not installed.",
                remedy="pip install apache-airflow-providers-amazon, or leave aws_conn_id empty to use the "
                "machine's own credentials.",
            ) from error
        try:
            BaseHook.get_connection(self._conn_id)
        except AirflowNotFoundException as error:
            raise ConfigurationError(
                f"The AWS connection {self._conn_id!r}, named by {self._named_by!r}, does not exist.",
                remedy=f"Create it: airflow connections add {self._conn_id} --conn-type aws, "
                "or leave aws_conn_id empty.",
            ) from error
        return AwsBaseHook(aws_conn_id=self._conn_id, client_type="s3", region_name=self._region or None)

    @cached_property
    def session(self) -> boto3.Session:
        """The connection's session.

        :raises ConfigurationError: the connection exists but gives no session: a profile or a role is wrong
        :raises StoreUnavailable: AWS did not answer; trying again may help
        """
        hook = self._hook
        with self._in_our_terms():
            return hook.get_session(region_name=self._region or None)

    @cached_property
    def _config(self) -> AwsConnectionWrapper:
        """What the connection says; :raises ConfigurationError: Airflow's hook cannot make anything of it."""
        hook = self._hook
        with self._in_our_terms():
            return hook.conn_config

    @contextmanager
    def _in_our_terms(self) -> Iterator[None]:
        """Name the connection in whatever Airflow's hook and boto3 raise for what it says."""
        from botocore.exceptions import BotoCoreError, ClientError

        from airflow_provider.storage.s3_retry import worth_repeating

        try:
            yield
        except (BotoCoreError, ClientError) as error:
            kind = StoreUnavailable if worth_repeating(error) else ConfigurationError
            raise kind(
                f"The AWS connection {self._conn_id!r} gives no credentials ({error}).",
                remedy="Correct its keys, profile or role.",
            ) from error
        except (AirflowException, AttributeError, NotImplementedError, TypeError, ValueError) as error:
            raise ConfigurationError(
                f"The AWS connection {self._conn_id!r} cannot be used ({type(error).__name__}: {error}).",
                remedy="Correct its extra.",
            ) from error

    @property
    def storage_defaults(self) -> StorageOptions:
        """The connection's S3 settings: endpoint, region, addressing style and CA bundle.

        :raises ConfigurationError: see :attr:`session`
        """
        config = self._config
        s3 = getattr(config.botocore_config, "s3", None) or {}
        return StorageOptions.from_mapping(
            {
                "endpoint_url": config.get_service_endpoint_url("s3"),
                "region": self.session.region_name,
                "addressing_style": s3.get("addressing_style"),
                "ca_bundle": config.verify if isinstance(config.verify, str) else "",
            }
        )

    def loan(self) -> Loan | None:
        """Return temporary credentials for a driver on this machine; ``None`` if there is nothing to renew."""
        if self._own_keys() is None:
            return None
        from botocore.credentials import RefreshableCredentials

        from airflow_provider.airflow.renewing import Loan

        if not isinstance(self.session.get_credentials(), RefreshableCredentials):
            return None
        return Loan(self.session, BaseHook.get_connection(self._conn_id), self._region, mask_secret)

    def _own_keys(self) -> ReadOnlyCredentials | None:
        """Return the connection's credentials as they are now, ``None`` if it holds none of its own."""
        config = self._config
        if not (config.aws_access_key_id or config.role_arn or config.profile_name):
            return None
        found = self.session.get_credentials()
        return found.get_frozen_credentials() if found is not None else None

    def driver_environment(self, log: logging.Logger) -> dict[str, str]:
        """Return the environment that gives the connection's credentials to a driver on this machine, and to nobody
        else.

        The variables have names of our own: Spark would take ``AWS_ACCESS_KEY_ID`` and the like as S3 credentials for
        everything that the job reads and writes (``SparkHadoopUtil.appendS3CredentialsFromEnvironment``), and those are
        up to the script.

        Empty if the connection holds no credentials of its own: the driver then finds the worker's through boto3's own
        chain, and can renew them; copies could not be renewed.
        """
        keys = self._own_keys()
        if keys is not None and keys.token:
            log.info(
                "The driver gets temporary credentials of the AWS connection %r, which nobody can renew: it holds a "
                "session token in place of a role. If they end before the job does, its next write fails.",
                self._conn_id,
            )
        return _environment(keys)


def _environment(keys: ReadOnlyCredentials | None) -> dict[str, str]:
    """Return the environment that gives a driver these keys, and mask them in Airflow's logs."""
    if keys is None:
        return {}
    for secret in (keys.secret_key, keys.token):
        if secret:
            mask_secret(secret)
    values = {ACCESS_KEY: keys.access_key, SECRET_KEY: keys.secret_key, SESSION_TOKEN: keys.token}
    return {name: value for name, value in values.items() if value}
