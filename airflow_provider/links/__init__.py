"""Links of a task instance in Airflow's UI."""
