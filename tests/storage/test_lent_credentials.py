"""A driver uses what its worker lends it, and what the worker has renewed since."""

from __future__ import annotations

import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from botocore.credentials import ReadOnlyCredentials

from airflow_provider.storage.lent_credentials import LENT_CREDENTIALS, lent
from airflow_provider.storage.s3.s3_client import _new_session
from tests.support.waiting import wait_until


class Session:
    """A worker's session, whose role gives other keys from time to time."""

    def __init__(self) -> None:
        self.number = 1

    def get_credentials(self) -> SimpleNamespace:
        keys = ReadOnlyCredentials(f"AKID{self.number}", f"secret-{self.number}", f"token-{self.number}")
        return SimpleNamespace(get_frozen_credentials=lambda: keys)


def test_a_driver_goes_on_with_renewed_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its session, made once, signs with the newest keys; the environment's own keys are none of the store's."""
    worker, masked = Session(), list[str]()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-job")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-job")
    with lent(worker, masked.append, every=0.01) as environment:  # type: ignore[arg-type]
        monkeypatch.setenv(LENT_CREDENTIALS, environment[LENT_CREDENTIALS])
        found = _new_session().get_credentials()
        assert found is not None
        assert found.get_frozen_credentials()[:3] == ("AKID1", "secret-1", "token-1")
        worker.number = 2
        wait_until(lambda: found.get_frozen_credentials().access_key == "AKID2", "the driver to use the new keys")
    assert found.get_frozen_credentials()[:3] == ("AKID2", "secret-2", "token-2"), "the worker is gone, the keys last"
    assert masked == ["secret-1", "token-1", "secret-2", "token-2"]


def test_nobody_else_can_read_the_file() -> None:
    """It belongs to this user alone, and goes with the driver."""
    with lent(Session(), lambda _: None) as environment:  # type: ignore[arg-type]
        file = Path(environment[LENT_CREDENTIALS])
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert not file.parent.exists()
