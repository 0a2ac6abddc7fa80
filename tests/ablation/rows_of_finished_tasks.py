"""Rows 28 to 31: FLIP-147, what becomes of tasks that have finished."""

from __future__ import annotations

from tests.ablation.mechanisms import Edit, Row, Switch

_FINISHED = "spark/test_finished_tasks.py"

FINISHED_TASKS = (
    Row(
        28,
        "a checkpoint of the running tasks; finished ones are marked finished, and never run again",
        "a vertex, step or streaming query that has finished is not run again, however often the rest restarts, "
        "unless it has another identity; a snapshot may be taken at any mix of states",
        ("spark/api/step.py", "spark/api/streaming.py", "spark/points/recover.py"),
        (
            Switch(
                "a step runs at each attempt",
                (
                    Edit(
                        "spark/api/step.py",
                        "        if known is not None and not opaque and known",
                        "        if False and known",
                    ),
                ),
                (f"{_FINISHED}::test_a_step_runs_once_per_job",),
            ),
            Switch(
                "a query is started at each attempt",
                (Edit("spark/api/streaming.py", 'known.get("status") == "FINISHED"', "False"),),
                (f"{_FINISHED}::test_a_query_that_finished_is_not_started_again_and_one_that_ran_goes_on",),
            ),
            Switch(
                "an edited query counts as the same",
                (
                    Edit(
                        "spark/api/streaming.py",
                        'if opaque or known.get("identity") in (None, "", identity):',
                        "if True:",
                    ),
                ),
                (f"{_FINISHED}::test_an_edited_query_runs_again",),
            ),
            Switch(
                "a vertex is computed at each attempt",
                (
                    Edit(
                        "job/recorded_vertices.py",
                        "        return self._survivors.of(self.graph, identity, layout, parallelism, deterministic)",
                        "        return {}",
                    ),
                ),
                (
                    "spark/test_checkpoint.py::test_a_second_attempt_reuses_everything",
                    "spark/auto/test_restoring.py::test_a_retry_takes_a_complete_shuffle_and_runs_no_map_task",
                ),
            ),
        ),
        missing="the state of a running task: a task of a Spark batch job has no state to keep, so it runs again from its "
        "input",
    ),
    Row(
        29,
        "an operator in a checkpoint is fully finished, partially finished or running, which is validated on restore",
        "the same three; a history in which a vertex has finished, in full or in part, while one of its inputs never "
        "finished in full is not resumed: a fresh start that says so",
        ("core/classify.py", "job/recording.py"),
        (
            Switch(
                "nothing contradicts itself",
                (Edit("core/classify.py", "if producer is not None and not producer.has_finished:", "if False:"),),
                ("core/test_finished.py::test_what_is_fully_finished_reads_only_what_was",),
            ),
            Switch(
                "a part of a vertex may come before what it reads",
                (
                    Edit(
                        "core/classify.py",
                        "        if status is FinishedStatus.RUNNING:\n",
                        "        if status is not FinishedStatus.FULLY_FINISHED:\n",
                    ),
                ),
                (
                    "core/test_finished.py::test_what_is_partially_finished_reads_only_what_was",
                    "spark/test_job_master.py::test_a_history_that_cannot_be_true_abandons_recovery[part]",
                ),
            ),
            Switch(
                "nobody asks before an attempt resumes",
                (Edit("job/recording.py", " or contradiction(graph)", ""),),
                ("spark/test_job_master.py::test_a_history_that_cannot_be_true_abandons_recovery",),
            ),
        ),
    ),
    Row(
        30,
        "g(I, ΔR + ΔF) = g(I, ΔR): the result is that of a run which kept the states of finished tasks",
        "whatever the moment of the crash and whatever has changed since, the rows are those of an uninterrupted run",
        (),
        (
            Switch(
                "a vertex is what has its name",
                (
                    Edit(
                        "core/vertex_token.py",
                        '    return f"{encode_segment(name)}-{digest[:32]}"',
                        '    return f"{encode_segment(name)}-0"',
                    ),
                ),
                (
                    "spark/test_random_pipelines.py::test_a_retry_gives_the_right_rows_whatever_happened[8]",
                    "spark/test_random_pipelines.py::test_so_does_auto_mode[8]",
                ),
            ),
            Switch(
                "what reads random numbers does not say which",
                (
                    Edit(
                        "spark/points/recover.py",
                        "point.token(told))\n",
                        "point.token())\n",
                    ),
                ),
                ("spark/test_random_pipelines.py::test_what_was_derived_from_lost_random_numbers_goes_with_them",),
            ),
        ),
    ),
    Row(
        31,
        "a final checkpoint before a task exits",
        "the end is flushed and confirmed before the driver says that it has succeeded, and before anything is released",
        ("job/job_master.py finished",),
        (
            Switch(
                "a success need not be in the store",
                (
                    Edit(
                        "job/job_master.py",
                        "        confirmed = self._record.flush(self.request.options.ownership_timeout)\n"
                        "        fault_point(AFTER_JOB_FINISHED)",
                        "        confirmed = True\n        fault_point(AFTER_JOB_FINISHED)",
                    ),
                ),
                ("spark/test_job_master.py::test_a_success_that_is_not_in_the_store_is_no_success_of_the_job",),
            ),
        ),
    ),
)
