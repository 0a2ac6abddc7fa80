"""Rows 32 to 35: FLINK-12612, the tracking of stored partitions."""

from __future__ import annotations

from tests.ablation.mechanisms import Edit, Row, Switch

_MASTER = "spark/test_job_master.py"

PARTITION_TRACKING = (
    Row(
        32,
        "`ResultPartitionTable`: in progress, finished, released; failing removes",
        "a tracker of each attempt's partitions with these states, which threads share; an illegal move is an error",
        ("core/partition_tracker.py",),
        (
            Switch(
                "what never began may finish",
                (
                    Edit(
                        "core/partition_tracker.py",
                        "            if state not in (PartitionState.IN_PROGRESS, PartitionState.FINISHED):\n",
                        "            if False:\n",
                    ),
                ),
                ("core/test_partition_tracker.py::test_every_move_from_every_state",),
                error="KeyError",
            ),
            Switch(
                "failing removes nothing",
                (
                    Edit(
                        "core/partition_tracker.py",
                        "                states.pop(index, None)\n",
                        "                pass\n",
                    ),
                ),
                ("core/test_partition_tracker.py::test_every_move_from_every_state",),
            ),
        ),
        missing="a vertex that is released while the job runs: nothing of the product asks the tracker for that, "
        "partitions go when the job has ended",
    ),
    Row(
        33,
        "partitions that finish when the job was cancelled are released at once (the flag `isActive`)",
        "a partition that comes after the attempt's success is deleted; after its failure it is kept for the next one; a "
        "fenced attempt leaves it to the owner",
        ("core/partition_tracker.py", "job/job_master.py partition_finished"),
        (
            Switch(
                "an attempt is active for ever",
                (Edit("core/partition_tracker.py", "            self._active = False\n", "            pass\n"),),
                (
                    "core/test_partition_tracker.py::test_what_finishes_after_the_attempt_is_over_is_released_at_once",
                    f"{_MASTER}::test_a_partition_that_comes_after_success_is_released",
                ),
            ),
        ),
    ),
    Row(
        34,
        "the job manager is lost: partitions in progress are left to their tasks, finished ones are released unless "
        "recovery is on",
        "the driver is lost: finished partitions are kept for the retention; uploads in progress are aborted",
        ("job/survivors.py",),
        (
            Switch(
                "uploads in progress stay",
                (Edit("job/survivors.py", "aborted = self._partitions.abort_uploads(epoch - 1)", "aborted = 0"),),
                (f"{_MASTER}::test_unfinished_uploads_of_dead_attempts_are_aborted",),
            ),
            Switch(
                "finished partitions of other attempts are given up",
                (Edit("job/survivors.py", "[p for p in found if p.epoch >= graph.base_epoch]", "[]"),),
                (f"{_MASTER}::test_a_partition_that_comes_after_failure_is_kept",),
            ),
        ),
    ),
    Row(
        35,
        "a worker closes its connection to the job manager only when its partitions are released",
        "a job's objects go only when nobody is at work on it: whoever removes it claims it first, and stops at a newer "
        "claim",
        ("storage/garbage.py",),
        (
            Switch(
                "whoever holds the job is pushed aside",
                (
                    Edit(
                        "storage/garbage.py",
                        "claim = Claims(store, job.prefix).take(job.epoch + 1, lease=options.lease)",
                        "claim = Claims(store, job.prefix).claim(options.lease)",
                    ),
                ),
                ("storage/test_garbage.py::test_a_job_that_somebody_has_taken_up_meanwhile_is_left_alone",),
            ),
            Switch(
                "a heartbeat that moves does not count",
                (Edit("storage/garbage.py", ".wait() is Life.ALIVE:", ".wait() is None:"),),
                ("storage/test_garbage.py::test_an_old_job_whose_heartbeat_moves_is_at_work",),
            ),
            Switch(
                "nobody looks for newer claims",
                (Edit("storage/garbage.py", "            heartbeat.check()\n", ""),),
                ("storage/test_garbage.py::test_a_driver_that_comes_during_a_removal_stops_it",),
            ),
        ),
        missing="consumers that release what they have read while the job runs",
    ),
)
