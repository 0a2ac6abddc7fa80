"""A page in Airflow's UI: what survived of a Spark job, and the buttons that steer it."""
