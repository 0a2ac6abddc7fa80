"""Airflow provider that makes Spark jobs recoverable: a retry goes on from where the last driver died.

The rings, from below (see ``CONTRIBUTING.md``): ``core`` (pure, standard library only), ``storage`` (object stores),
``job`` (one attempt), and on top two sides that never import each other: ``spark`` (the driver, never imports Airflow)
and Airflow's side (``airflow``, ``operators``, ``hooks`` and the other folders that Airflow discovers). This file must
not import anything: it is loaded on machines that have neither Airflow nor Spark.
"""

__version__ = "0.1.0"
