"""The Spark driver's side: ``checkpoint`` and the other functions for scripts, and the runner around the script.

Never imports Airflow. Importing this package needs only the standard library, so a script that uses ``checkpoint``
still runs where recovery is not set up.
"""

from airflow_provider.core.failure import UnrecoverableError
from airflow_provider.spark.api.checkpoint import checkpoint
from airflow_provider.spark.api.source import source
from airflow_provider.spark.api.step import step
from airflow_provider.spark.api.streaming import streaming

__all__ = ["UnrecoverableError", "checkpoint", "source", "step", "streaming"]
