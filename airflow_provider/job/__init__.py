"""One attempt at a job, independent of its driver: claim, reconcile, record, end. Knows neither Spark nor Airflow."""
