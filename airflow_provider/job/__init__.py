"""One attempt at a job, whoever drives it: claim, reconcile, record, end. Knows neither Spark nor Airflow."""
