"""``spark-recovery demo``: a Spark job on a real Airflow loses its driver and goes on from where it died.

An application on top of everything else. It talks to Airflow, Spark and the object store as a user would: through
their command lines, their REST API and the event store. It never imports Airflow or Spark.
"""

from airflow_provider.cli.demo.command import main

__all__ = ["main"]
