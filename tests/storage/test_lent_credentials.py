"""A driver uses what its worker lends it, and what the worker has renewed since."""

from __future__ import annotations

import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from botocore.credentials import ReadOnlyCredentials

from airflow_provider.storage.lent_credentials import LENT_CREDENTIALS, write_credentials
from airflow_provider.storage.s3.s3_client import _new_session


class Session:
    """A worker's session, whose role gives other keys from time to time."""

    def __init__(self) -> None:
        self.number = 1

    def get_credentials(self) -> SimpleNamespace:
        keys = ReadOnlyCredentials(f"AKID{self.number}", f"secret-{self.number}", f"token-{self.number}")
        return SimpleNamespace(get_frozen_credentials=lambda: keys)


def test_a_driver_goes_on_with_renewed_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its session, made once, signs with the newest keys; the environment's own keys are none of the store's. Nobody
    else can read the file.
    """
    worker, masked, file = Session(), list[str](), tmp_path / "credentials"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-job")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-job")
    monkeypatch.setenv(LENT_CREDENTIALS, str(file))
    write_credentials(worker, file, masked.append)  # type: ignore[arg-type]
    found = _new_session().get_credentials()
    assert found is not None
    assert found.get_frozen_credentials()[:3] == ("AKID1", "secret-1", "token-1")
    worker.number = 2
    write_credentials(worker, file, masked.append)  # type: ignore[arg-type]
    assert found.get_frozen_credentials()[:3] == ("AKID2", "secret-2", "token-2")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.unlink()
    assert found.get_frozen_credentials()[:3] == ("AKID2", "secret-2", "token-2"), "nobody renews them, the keys last"
    assert masked == ["secret-1", "token-1", "secret-2", "token-2"]
