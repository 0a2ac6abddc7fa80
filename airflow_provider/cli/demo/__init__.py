"""``spark-recovery demo``: a Spark job on a real Airflow loses its driver, and the retry resumes it.

An application on top of everything else. It uses Airflow, Spark and the object store as a user would: through their
command lines, their REST API and the event store. It never imports Airflow or Spark.
"""

from airflow_provider.cli.demo.command import main

__all__ = ["main"]
