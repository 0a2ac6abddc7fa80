"""How long a new driver takes from its claim to RUNNING where 100,000 partitions have survived on S3."""

from __future__ import annotations

import http.client
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote, urlsplit

from airflow_provider.core.graph import JobState
from airflow_provider.job.job_master import JobMaster
from benchmarks import jobs, s3
from tests.support.s3_gateway import S3Server

VERTICES, PARTITIONS = 1_000, 100
GOALS = {"seconds": 10.0, "HeadObject per partition": 0.0}
BODY = b"x"
BUCKET = "reconcile"


def compare(rounds: int) -> dict[str, Any]:
    """Return seconds and requests by kind."""
    singles: list[dict[str, float]] = []
    kinds: list[dict[str, int]] = []
    with s3.local_s3() as (name, server):
        store, _ = s3.counted_store(server, BUCKET)
        _fill(server)
        with jobs.recording(store) as record:
            jobs.tell(record, VERTICES, PARTITIONS, len(BODY))
        for number in range(1, rounds + 1):
            store, requests = s3.counted_store(server, BUCKET)
            master = JobMaster(jobs.request(store.uri), store, on_fenced=jobs.never)
            began, cpu = time.perf_counter(), time.process_time()
            assert master.start()
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            kinds.append(requests.count())
            assert master.graph.attempts[master.epoch].state is JobState.RUNNING
            found = sum(len(master.survivors(identity)) for identity in master.graph.vertices)
            assert found == VERTICES * PARTITIONS, found
            master.failed("the benchmark ends the attempt here")
            heads = kinds[-1].get("HeadObject", 0) / found
            singles.append(
                {
                    "seconds": seconds,
                    "cpu_seconds": cpu,
                    "requests": sum(kinds[-1].values()),
                    "HeadObject per partition": heads,
                }
            )
            print(f"  round {number}: {seconds:.2f} s, {kinds[-1]}", file=sys.stderr)
    return {
        "title": f"Claim to RUNNING with {VERTICES * PARTITIONS:,} surviving partitions",
        "rounds": rounds,
        "cases": {f"S3 ({name})": jobs.summary(singles, GOALS)},
        "requests": kinds[-1],
        "all_rounds": [{**single, **kind} for single, kind in zip(singles, kinds, strict=True)],
    }


def _fill(server: S3Server) -> None:
    """Store all partitions, anonymously: requests without a signature take a fraction of the time."""
    server.session().client("s3", endpoint_url=server.endpoint).put_bucket_acl(Bucket=BUCKET, ACL="public-read-write")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: _fill_vertex(server, number), range(VERTICES)))


def _fill_vertex(server: S3Server, number: int) -> None:
    connection = http.client.HTTPConnection(urlsplit(server.endpoint).netloc, timeout=30)
    vertex = jobs.initialized(number, PARTITIONS)
    for index in range(PARTITIONS):
        key = f"store/{jobs.JOB.prefix}/{jobs.stored(vertex, index, len(BODY)).key}"
        connection.request("PUT", quote(f"/{BUCKET}/{key}"), BODY)
        answer = connection.getresponse()
        said = answer.read()
        assert answer.status == 200, said
    connection.close()
