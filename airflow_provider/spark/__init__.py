"""The Spark driver's side: ``checkpoint`` for scripts, the runner around them.

Never imports Airflow. Importing this package costs nothing but the standard library, so a script that uses
``checkpoint`` still runs where recovery is not set up.
"""

from airflow_provider.spark.checkpoint import checkpoint

__all__ = ["checkpoint"]
