"""Airflow provider that makes Spark jobs recoverable: a retry goes on from where the last driver died.

The package has three rings (see ``CONTRIBUTING.md``): ``recovery`` (pure, standard library only),
``storage`` (object stores) on top of it, and on top of that two sides that never meet: ``spark``
(the driver, never imports Airflow) and the Airflow folders ``operators`` and ``hooks``.
This file must stay free of imports: it is loaded on machines that have neither Airflow nor Spark.
"""

__version__ = "0.1.0"
