"""Run ``spark-recovery`` as ``python -m airflow_provider.cli``."""

import sys

from airflow_provider.cli.main import main

sys.exit(main())
