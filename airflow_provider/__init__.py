"""Airflow provider that makes Spark jobs recoverable: a retry goes on from where the last driver died.

The rings, from below (see ``CONTRIBUTING.md``): ``core`` (pure, standard library only), ``storage`` (object stores),
``job`` (one attempt), and on top two sides that never import each other: ``spark`` (the driver, never imports Airflow)
and Airflow's side (``airflow``, ``operators``, ``hooks`` and the other folders that Airflow discovers). This file
imports nothing that needs more than Python: it is loaded on machines that have neither Airflow nor Spark.

A driver has the lower rings and ``spark`` from the zip that travels with the job. Where the whole package is installed
as well, as on a worker, the rest comes from there: a script that imports Airflow makes it look for its providers.
"""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
__version__ = "0.1.0"
