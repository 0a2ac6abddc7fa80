"""Everything that a plain driver imports by and by, so that a process which is forked from this one has it."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import boto3

from airflow_provider.storage.uris import open_store
from tests.storage.plain_driver import request_for, run_job

with contextlib.suppress(Exception), tempfile.TemporaryDirectory() as folder:
    uri = f"file://{folder}/store"
    run_job(open_store(uri), request_for(uri, {}), Path(folder, "computed"))
    boto3.Session("key", "secret", region_name="us-east-1").client("s3")
