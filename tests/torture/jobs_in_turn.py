"""Job after job, on one store after another, until enough drivers were killed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from tests.support.disks import small_disk
from tests.support.http_faults import FaultyServer
from tests.support.moto_server import moto_server
from tests.support.s3_gateway import s3_gateway
from tests.torture.torture import Job, Outcome, Store, plain_runs

STORES = ("file", "moto", "gateway")
DISTURBANCES = 8
"""Half of them or more are kills."""
DISK = 512
"""Mebibytes of the disk that is filled; a job and what it stores take a tenth of it."""
PLAIN_RUNS = 8
"""In one driver."""


def walk(
    folder: Path,
    seed: int,
    kills: int,
    stores: Sequence[str] = STORES,
    say: Callable[[str], None] = print,
    options: Mapping[str, str] | None = None,
    outcome: Outcome | None = None,
    disturbances: int = DISTURBANCES,
) -> Outcome:
    """Torture jobs until so many drivers were killed; those that were found wrong stay in *folder*.

    :param stores: of :data:`STORES`; ``gateway`` is Ceph's
    :param options: of the drivers' command line, beside those that they always have
    :param outcome: gets the numbers as they come; the one that is returned
    :param disturbances: of one job
    """
    outcome = outcome or Outcome()
    with ExitStack() as stack:
        started = [_started(name, folder, stack) for name in stores]
        for number in count(seed):
            if outcome.kills >= kills:
                break
            if not (folder / f"plain-{number}").exists():
                plain_runs(folder, range(number, number + min(PLAIN_RUNS, 1 + (kills - outcome.kills) // disturbances)))
            store, plain, found = started[number % len(started)], folder / f"plain-{number}", len(outcome.findings)
            job = Job((store.disk or folder) / f"job-{number}", plain, store, number, outcome, say, options or {})
            try:
                job.torture(disturbances)
            finally:
                _put_away(job, folder, wrong=len(outcome.findings) > found)
    return outcome


def _put_away(job: Job, folder: Path, *, wrong: bool) -> None:
    if wrong and job.store.disk is not None:
        shutil.copytree(job.folder, folder / job.folder.name, symlinks=True, ignore_dangling_symlinks=True)
    if not wrong or job.store.disk is not None:
        shutil.rmtree(job.folder, ignore_errors=True)
    if not wrong:
        shutil.rmtree(job.plain, ignore_errors=True)


def _started(name: str, folder: Path, stack: ExitStack) -> Store:
    if name == "file":
        disk = stack.enter_context(small_disk(folder / "disk", DISK))
        return Store(f"file://{disk or folder}/store", disk=disk)
    server = stack.enter_context(moto_server() if name == "moto" else s3_gateway())
    proxy = stack.enter_context(FaultyServer(server.endpoint).running())
    os.environ.update(server.environment)  # one user for both; this process looks into the stores, too
    options = {"endpoint-url": proxy.endpoint, "addressing-style": "path"}
    return Store(f"s3://{server.create_bucket('torture')}", options, server.environment, proxy)
