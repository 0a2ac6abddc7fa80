"""Code shared by operator, trigger, links and page. Knows Airflow; never imports Spark."""
