"""``python -m airflow_provider.cli`` is ``spark-recovery``."""

import sys

from airflow_provider.cli.main import main

sys.exit(main())
