"""What operator, trigger, links and page share on Airflow's side. Knows Airflow; never imports Spark."""
