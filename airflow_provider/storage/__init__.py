"""Storage of a job's state: object stores, the job event store, claims and heartbeats, the partition store.

Builds on ``core``; knows botocore and tenacity; never imports Spark or Airflow.
"""
