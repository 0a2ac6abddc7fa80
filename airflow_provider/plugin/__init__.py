"""The recovery page in Airflow's UI: what survived of a Spark job, and buttons that decide what the next try reuses."""
