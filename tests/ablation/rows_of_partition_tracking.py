"""Rows 32 to 35: FLINK-12612, the tracking of stored partitions."""

from __future__ import annotations

from tests.ablation.mechanisms import Edit, Row, Switch

_MASTER = "spark/test_job_master.py"

PARTITION_TRACKING = (
    Row(
        32,
        "`ResultPartitionTable`: in progress, finished, released; failing removes",
        "a tracker of each attempt's partitions with these states, shared by threads; an illegal move is an error. A "
        "vertex is released while the job runs (35), which is recorded before its objects are deleted, or when the "
        "job has ended",
        ("core/partition_tracker.py", "job/unneeded.py"),
        (
            Switch(
                "objects go before the store knows that they are released",
                (Edit("job/unneeded.py", "if owned > 0 and self._record.flush():", "if owned > 0:"),),
                (f"{_MASTER}::test_a_vertex_is_released_in_the_store_before_its_objects_go",),
            ),
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
    ),
    Row(
        33,
        "partitions that finish when the job was cancelled are released at once (the flag `isActive`)",
        "a partition that arrives after the attempt's success is deleted; after its failure it is kept for the next "
        "one; a fenced attempt leaves it to the owner. The result of a cancelled execution is deleted when its "
        "successor is stored",
        ("core/partition_tracker.py", "job/recorded_vertices.py partition_finished"),
        (
            Switch(
                "an attempt is active for ever",
                (Edit("core/partition_tracker.py", "            self._active = False\n", "            pass\n"),),
                (
                    "core/test_partition_tracker.py::test_what_finishes_after_the_attempt_is_over_is_released_at_once",
                    f"{_MASTER}::test_a_partition_that_comes_after_success_is_released",
                ),
            ),
            Switch(
                "the result of a cancelled execution stays",
                (
                    Edit(
                        "spark/points/materialize.py",
                        "                if not counts:\n                    self.master.partition_replaced(partition)\n",
                        "                if not counts:\n",
                    ),
                ),
                (f"{_MASTER}::test_the_result_of_a_cancelled_execution_goes_when_its_successor_is_stored",),
            ),
        ),
    ),
    Row(
        34,
        "the job manager is lost: partitions in progress are left to their tasks, finished ones are released unless "
        "recovery is on",
        "the driver is lost: finished partitions are kept for the retention; uploads in progress are aborted. A task "
        "is lost: what it has stored, and its upload in progress, are deleted when its successor is stored",
        ("job/survivors.py", "job/unneeded.py"),
        (
            Switch(
                "what a failed task has stored stays",
                (Edit("job/unneeded.py", "            if vertex in self._ran_again:\n", "            if False:\n"),),
                (f"{_MASTER}::test_what_a_failed_task_has_stored_goes_when_its_successor_is_stored",),
            ),
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
        "while the job runs, a stored vertex is deleted when all its readers are committed and the script can no "
        "longer name it, and a kept shuffle when its output is written; a driver that may be fenced deletes nothing. "
        "All of a job's objects are deleted only when no driver is running: whoever removes the job claims it first, "
        "and stops at a newer claim",
        ("spark/points/releasing.py", "core/expendable.py", "job/unneeded.py", "storage/garbage.py"),
        (
            Switch(
                "nothing goes while the job runs",
                (
                    Edit(
                        "job/recorded_vertices.py",
                        "return [] if self.request.keep_partitions else needed_no_more(self.graph)",
                        "return []",
                    ),
                ),
                (
                    "spark/test_releasing.py::test_a_chain_is_found_again_by_its_last_one",
                    "spark/test_ten_steps.py::test_a_job_of_ten_steps_never_holds_more_than_three_steps_data",
                ),
            ),
            Switch(
                "a retry computes before it has let go of anything",
                (Edit("spark/points/releasing.py", "        if first == 1:\n", "        if False:\n"),),
                ("spark/test_releasing.py::test_what_a_killed_attempt_has_left_goes_before_anything_is_computed",),
            ),
            Switch(
                "what the script can still name goes",
                (
                    Edit("spark/points/releasing.py", "in filter(plans.dropped, wanted):", "in wanted:"),
                    Edit(
                        "spark/points/releasing.py",
                        "application.plans.dropped(vertex) and vertex not in",
                        "vertex not in",
                    ),
                ),
                ("spark/test_releasing.py::test_what_the_script_can_read_or_a_retry_asks_for_stays[view]",),
            ),
            Switch(
                "what an action has given rows of goes",
                (Edit("spark/points/releasing.py", "        given_out(context, call.owner)\n", "        pass\n"),),
                ("spark/test_releasing.py::test_what_the_script_can_read_or_a_retry_asks_for_stays[counted]",),
            ),
            Switch(
                "what could not be made again goes",
                (
                    Edit(
                        "core/expendable.py",
                        "and vertex.finished and same\n",
                        "and vertex.finished\n",
                    ),
                ),
                ("core/test_expendable.py::test_what_could_not_be_made_again_as_it_is_stays",),
            ),
            Switch(
                "a kept shuffle stays until the job ends",
                (
                    Edit(
                        "job/recorded_vertices.py",
                        "found = [] if self.request.keep_partitions else shuffles_of_written_outputs(self.graph)",
                        "found = list[str]()",
                    ),
                ),
                ("spark/auto/test_releasing_shuffles.py::test_what_was_kept_for_an_output_goes_when_that_is_written",),
            ),
            Switch(
                "a driver that may be fenced deletes",
                (Edit("job/unneeded.py", "if owned > 0 and self._record.flush():", "if self._record.flush():"),),
                (f"{_MASTER}::test_an_attempt_that_cannot_confirm_that_it_owns_the_job_deletes_nothing",),
            ),
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
        missing="a graph whose consumers are all known from the start: results that an action has given to the script, "
        "that are not deterministic, that functions make of what they read by themselves, or whose version only "
        "the script knows, stay until the job has ended",
    ),
)
