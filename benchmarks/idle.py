"""What a job costs that does nothing: the requests of its heartbeat."""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

from airflow_provider.job.job_master import JobMaster
from benchmarks import jobs, s3

GOALS = {"requests_per_second": 0.2}
BEAT = "PutObject"
"""The request that begins each beat."""


def compare(rounds: int) -> dict[str, Any]:
    """Return requests per second, counted from one beat to the next; each beat is a round."""
    with s3.local_s3() as (name, server):
        store, requests = s3.counted_store(server, "idle")
        asked = jobs.request(store.uri)
        master = JobMaster(asked, store, on_fenced=jobs.never)
        assert master.start()
        time.sleep(2 * asked.options.write_buffer_flush_interval)  # what starting has told is stored by then
        started = time.monotonic()
        while len(beats := _beats(requests, started)) <= rounds:
            time.sleep(0.1)
        sent = list(requests.sent)
        master.failed("the benchmark ends the attempt here")
    singles = []
    for begin, end in itertools.pairwise(beats[: rounds + 1]):
        within = [kind for moment, kind in sent if begin <= moment < end]
        singles.append({"requests_per_second": len(within) / (end - begin)})
        print(f"  {within} in {end - begin:.2f} s", file=sys.stderr)
    return {
        "title": f"A job that does nothing, over {beats[rounds] - beats[0]:.0f} s",
        "rounds": rounds,
        "cases": {f"S3 ({name})": jobs.summary(singles, GOALS)},
        "all_rounds": singles,
    }


def _beats(requests: s3.Requests, since: float) -> list[float]:
    return [moment for moment, kind in list(requests.sent) if kind == BEAT and moment >= since]
