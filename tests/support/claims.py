"""Claims of drivers that look as if they ran on another machine."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from airflow_provider.storage.claims import Claims, claim_key
from airflow_provider.storage.object_store import ObjectStore


def claim_elsewhere(store: ObjectStore, prefix: str, epoch: int) -> None:
    """Let a claim look as if its driver ran on another machine, out of reach."""
    claim = Claims(store, prefix).get(epoch)
    assert claim is not None
    other = replace(claim, host="elsewhere", boot_id="another")
    store.put(claim_key(prefix, epoch), json.dumps(asdict(other)).encode())
