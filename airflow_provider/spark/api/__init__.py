"""The functions that scripts import from ``airflow_provider.spark``. Cheap to import."""
