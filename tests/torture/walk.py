"""Job after job, on one store after another, until enough drivers were killed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from tests.support.disks import small_disk
from tests.support.http_faults import FaultyServer
from tests.support.moto_server import moto_server
from tests.support.s3_gateway import s3_gateway
from tests.torture.torture import Job, Outcome, Store

STORES = ("file", "moto", "gateway")
DISTURBANCES = 5
"""Of one job."""
DISK = 512
"""Mebibytes of the disk that is filled; a job and what it stores take a tenth of it."""


def walk(
    folder: Path, seed: int, kills: int, stores: Sequence[str] = STORES, say: Callable[[str], None] = print
) -> Outcome:
    """Torture jobs until so many drivers were killed; those that were found wrong stay in *folder*.

    :param stores: of :data:`STORES`; ``gateway`` is Ceph's
    """
    outcome = Outcome()
    with ExitStack() as stack:
        started = [_started(name, folder, stack) for name in stores]
        for number in count():
            if outcome.kills >= kills:
                return outcome
            found = len(outcome.findings)
            store = started[number % len(started)]
            job = Job((store.disk or folder) / f"job-{seed + number}", store, seed + number, outcome, say)
            job.torture(DISTURBANCES)
            if len(outcome.findings) > found and store.disk is not None:
                shutil.copytree(job.folder, folder / job.folder.name, symlinks=True, ignore_dangling_symlinks=True)
            if len(outcome.findings) == found or store.disk is not None:
                shutil.rmtree(job.folder, ignore_errors=True)
    return outcome


def _started(name: str, folder: Path, stack: ExitStack) -> Store:
    if name == "file":
        disk = stack.enter_context(small_disk(folder / "disk", DISK))
        return Store(f"file://{disk or folder}/store", disk=disk)
    server = stack.enter_context(moto_server() if name == "moto" else s3_gateway())
    proxy = stack.enter_context(FaultyServer(server.endpoint).running())
    os.environ.update(server.environment)  # one user for both; this process looks into the stores, too
    options = {"endpoint-url": proxy.endpoint, "addressing-style": "path"}
    return Store(f"s3://{server.create_bucket('torture')}", options, server.environment, proxy)
