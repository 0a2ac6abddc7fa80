"""All 35 rows, in order."""

from __future__ import annotations

from tests.ablation.rows_of_failover import FAILOVER
from tests.ablation.rows_of_finished_tasks import FINISHED_TASKS
from tests.ablation.rows_of_job_recovery import JOB_RECOVERY
from tests.ablation.rows_of_partition_tracking import PARTITION_TRACKING

ROWS = (*JOB_RECOVERY, *FAILOVER, *FINISHED_TASKS, *PARTITION_TRACKING)
