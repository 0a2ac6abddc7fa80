"""Rows 20 to 27: how a task ends, and what fails over."""

from __future__ import annotations

from tests.ablation.mechanisms import Edit, Row, Switch

_RESTARTS = "spark/test_restarts_in_spark.py"
_ACTIONS = "spark/test_restarted_actions.py"
_AUTO = "spark/auto/test_failover_in_auto_mode.py"

FAILOVER = (
    Row(
        20,
        "a task ends FINISHED, CANCELED or FAILED; CREATED, SCHEDULED, DEPLOYING, RUNNING before; RECONCILING becomes any",
        "one state machine for the executions of a vertex, entered by each recovery point; an illegal move is an error",
        ("core/executions.py",),
        (
            Switch(
                "every move is legal",
                (
                    Edit(
                        "core/executions.py",
                        "        if state not in LEGAL_MOVES[self._states[version.vertex]]:\n",
                        "        if False:\n",
                    ),
                ),
                ("core/test_executions.py::test_every_move_is_legal_or_an_error_and_never_half_done",),
            ),
            Switch(
                "what is cancelled ends as failed",
                (
                    Edit(
                        "core/executions.py",
                        "cancelled = state is ExecutionState.CANCELING\n",
                        "cancelled = False\n",
                    ),
                ),
                ("core/test_executions.py::test_a_cancelled_execution_has_not_failed",),
            ),
            Switch(
                "the try of an action that has failed counts as one that has finished",
                (Edit("spark/auto/mode.py", "        self.context.occurrences.failed(execution)\n", ""),),
                (f"{_AUTO}::test_a_try_that_failed_is_no_time_of_its_own[collect]",),
            ),
        ),
        missing="RECONCILING of a task: no Spark task outlives its driver; executions of actions and kept shuffles: their "
        "states are Spark's, and a restart cancels none of them",
    ),
    Row(
        21,
        "`handleTaskFailure` gives `FailureHandlingResult(verticesToRestart, delay, error, global)`",
        "the same shape, recorded before the restart; the region is then computed inside the application, even if an "
        "action has failed: a query or a write that has had no effect yet",
        ("core/failover.py", "spark/points/restarting.py", "spark/points/restarted_actions.py", "spark/sinks/tries.py"),
        (
            Switch(
                "every failure ends the attempt",
                (Edit("core/failover.py", '        refused = ""\n', '        refused = "it failed"\n'),),
                ("core/test_failover.py::test_a_region_is_one_vertex",),
            ),
            Switch(
                "what is decided is not done",
                (
                    Edit(
                        "spark/points/restarting.py",
                        "                if not result.can_restart:\n",
                        "                if True:\n",
                    ),
                ),
                (f"{_RESTARTS}::test_what_failed_by_chance_is_restarted_and_what_was_stored_is_kept",),
                error="PySparkException",
            ),
            Switch(
                "an action that has failed ends the attempt",
                (
                    Edit(
                        "spark/points/restarted_actions.py",
                        "    if not of_a_job(trace_of(error)):\n",
                        "    if True:\n",
                    ),
                ),
                (
                    f"{_ACTIONS}::test_an_action_that_fails_by_chance_is_restarted[collect]",
                    f"{_ACTIONS}::test_a_write_that_fails_is_made_again[append-1]",
                    f"{_AUTO}::test_a_task_that_fails_once[exponential-delay-region]",
                ),
                error="PySparkException",
            ),
            Switch(
                "an action runs again whatever has come of it",
                (Edit("spark/points/restarted_actions.py", "        if refused:\n", "        if False:\n"),),
                (
                    f"{_ACTIONS}::test_what_gives_more_than_rows_is_not_restarted",
                    f"{_ACTIONS}::test_a_write_that_was_about_to_commit_is_not_made_again",
                ),
            ),
            Switch(
                "what a task of a failed write commits late stays",
                (
                    Edit(
                        "spark/sinks/tries.py",
                        "late = [file for file in now if self.failed and write_of(file[0]) in self.failed]",
                        "late = list[OutputFile]()",
                    ),
                ),
                (f"{_ACTIONS}::test_a_task_that_commits_behind_its_failed_job_leaves_nothing",),
            ),
        ),
        missing="a global failure (lost random rows from which others are derived), and failures of an action that may "
        "have had effects on the script or outside: these end the attempt, and the next one handles them from the "
        "top",
    ),
    Row(
        22,
        "an unrecoverable error is not answered by a restart",
        "the chain of causes is examined, including what a Python worker raised; the attempt ends at once, and the "
        "Airflow task without retries",
        ("core/failure.py", "operators/conclusion.py"),
        (
            Switch(
                "every error may be chance",
                (Edit("core/failure.py", "            return cause\n", "            continue\n"),),
                (
                    "core/test_failure.py::test_unrecoverable",
                    f"{_RESTARTS}::test_what_cannot_be_fixed_is_not_restarted",
                    f"{_AUTO}::test_a_function_that_raises[fixed-delay-region]",
                ),
            ),
            Switch(
                "Airflow retries all the same",
                (Edit("operators/conclusion.py", "    if newest.unrecoverable:\n", "    if False:\n"),),
                ("airflow_side/test_execute.py::test_a_failure_is_told_in_the_drivers_own_words",),
            ),
        ),
    ),
    Row(
        23,
        "`RestartAll` and `RestartPipelinedRegion`",
        "`full` and `region`; a region lies between two materialised boundaries, so it is one vertex, and an input "
        "that cannot be read pulls in its producer; an action is one, too. `full` includes the shuffles that auto "
        "mode has kept",
        ("core/failover.py", "spark/auto/mode.py"),
        (
            Switch(
                "there is no `full`",
                (Edit("core/failover.py", '    if strategy == "full":\n', "    if False:\n"),),
                (
                    "core/test_failover.py::test_full_restarts_everything_that_was_reached",
                    f"{_RESTARTS}::test_full_restarts_all_that_the_attempt_has_come_to",
                    f"{_AUTO}::test_full_gives_up_kept_shuffles_of_other_actions_too[full-0]",
                ),
            ),
            Switch(
                "there is no `region`",
                (Edit("core/failover.py", '    if strategy == "full":\n', "    if True:\n"),),
                ("core/test_failover.py::test_a_region_is_one_vertex",),
            ),
            Switch(
                "an input that cannot be read pulls in nothing",
                (Edit("core/failover.py", "for identity in before if identity in lost)", "for identity in ())"),),
                ("core/test_failover.py::test_an_input_that_cannot_be_read_pulls_in_its_producer",),
            ),
            Switch(
                "with `region` an action begins with nothing",
                (
                    Edit(
                        "spark/auto/mode.py",
                        'return self.context.master.request.options.failover_strategy == "full"',
                        "return True",
                    ),
                ),
                (f"{_AUTO}::test_a_task_that_fails_once[exponential-delay-region]",),
            ),
        ),
        missing="a kept shuffle as a region of its own: Spark itself runs map tasks again whose outputs are lost; `full` "
        "leaves running actions of other threads alone",
    ),
    Row(
        24,
        "fixed-delay, failure-rate, exponential-delay (with jitter and reset), none",
        "the same four with Flink's parameters and defaults; the counters are recorded, so they survive the driver",
        ("core/restart_strategy.py",),
        (
            Switch(
                "`none` restarts",
                (Edit("core/restart_strategy.py", "        return False\n", "        return True\n"),),
                (
                    "core/test_restart_strategy.py::test_none_never_restarts",
                    f"{_RESTARTS}::test_other_strategies[none]",
                ),
            ),
            Switch(
                "`fixed-delay` has no end",
                (
                    Edit(
                        "core/restart_strategy.py",
                        "        return memory.failures <= self.attempts\n",
                        "        return True\n",
                    ),
                ),
                ("core/test_restart_strategy.py::test_fixed_delay_counts_over_the_life_of_the_job",),
            ),
            Switch(
                "`failure-rate` looks at no interval",
                (
                    Edit(
                        "core/restart_strategy.py",
                        "        return memory.times[-1] - memory.times[0] > self.interval\n",
                        "        return True\n",
                    ),
                ),
                ("core/test_restart_strategy.py::test_failure_rate_looks_at_an_interval",),
            ),
            Switch(
                "`exponential-delay` does not grow",
                (Edit("core/restart_strategy.py", "memory.backoff * self.backoff_multiplier", "memory.backoff"),),
                ("core/test_restart_strategy.py::test_exponential_delay_grows_is_capped_and_starts_over",),
            ),
            Switch(
                "each driver counts from zero",
                (
                    Edit(
                        "core/graph.py",
                        "        self.attempts[event.epoch] = Attempt(\n",
                        "        self.coordinators.pop(RESTART_STRATEGY, None)\n        self.attempts[event.epoch] = Attempt(\n",
                    ),
                ),
                (
                    f"{_RESTARTS}::test_a_bug_fails_the_job_after_the_restarts_that_are_allowed_and_the_count_survives_the_driver",
                ),
            ),
        ),
    ),
    Row(
        25,
        "`ExecutionVertexVersion`: a restart that was overtaken is ignored",
        "each restart is a new version of its vertex; reports of an older one change nothing and seal nothing: the "
        "thread that ran it waits for the restart, and takes its result",
        ("core/executions.py ExecutionVersion", "spark/points/materialize.py"),
        (
            Switch(
                "late reports count",
                (
                    Edit(
                        "spark/points/materialize.py", "                if not counts:\n", "                if False:\n"
                    ),
                ),
                ("spark/test_job_master.py::test_a_late_report_of_an_overtaken_execution_is_ignored",),
            ),
            Switch(
                "what is cancelled is sealed",
                (
                    Edit(
                        "core/executions.py",
                        "            self._check(version, ExecutionState.FINISHED)\n            yield\n",
                        "            yield\n",
                    ),
                ),
                (
                    "core/test_executions.py::test_a_restart_waits_for_the_report_or_the_end_that_is_being_recorded",
                    f"{_RESTARTS}::test_what_a_restart_cancels_between_storing_and_sealing_is_not_sealed",
                ),
            ),
            Switch(
                "an older version moves the newest one",
                (
                    Edit(
                        "core/executions.py",
                        "            if self._newest.get(version.vertex) != version:\n                return False\n",
                        "",
                    ),
                ),
                ("core/test_executions.py::test_an_overtaken_execution_changes_nothing",),
            ),
        ),
    ),
    Row(
        26,
        "cancel first, restart after the cancellation and the delay",
        "Spark jobs of the region that other threads run are cancelled by their tags until each of these threads "
        "reports that its job has ended; then the delay passes, in which the attempt asks whether it still owns the "
        "job",
        ("spark/points/restarting.py",),
        (
            Switch(
                "running jobs go on",
                (
                    Edit(
                        "spark/points/restarting.py",
                        "            session.sparkContext.cancelJobsWithTag(tag_of(execution))\n",
                        "",
                    ),
                ),
                (f"{_RESTARTS}::test_jobs_of_the_region_are_cancelled_before_the_restart",),
            ),
            Switch(
                "the restart waits for nobody",
                (
                    Edit(
                        "spark/points/restarting.py",
                        "        context.executions.wait_until_ended(vertices, _CANCEL_AGAIN)\n",
                        "        return\n",
                    ),
                ),
                (f"{_RESTARTS}::test_a_restart_waits_until_what_it_cancels_has_ended",),
            ),
            Switch(
                "no delay passes",
                (Edit("spark/points/restarting.py", "    _wait(context, result.delay)\n", ""),),
                (f"{_RESTARTS}::test_a_restart_comes_after_its_delay",),
            ),
        ),
        missing="Spark ends a cancelled job before its last task has noticed; what that task still reports is ignored "
        "(25)",
    ),
    Row(
        27,
        "`notifyCoordinatorsAboutTaskFailure` and `subtaskReset`: a source hands its splits out again",
        "a retry compares the pinned files of a source with what is there: if one is gone or was changed, the listing "
        "is pinned anew, and what reads it starts over. A `checkpoint` that finds this out in the middle of an "
        "attempt does the same at once, and tells the script (`on_reset`)",
        ("spark/api/source.py", "spark/points/pinned_sources.py"),
        (
            Switch(
                "a pin is kept whatever has become of its files",
                (
                    Edit(
                        "spark/api/source.py",
                        "    if gone := what_is_gone(pinned, listed):\n",
                        "    if gone := what_is_gone(pinned, pinned):\n",
                    ),
                ),
                ("spark/test_finished_tasks.py::test_a_pin_that_cannot_be_kept_is_renewed[changed]",),
            ),
            Switch(
                "it is left to the next attempt",
                (
                    Edit(
                        "spark/points/restarting.py",
                        "if resets := to_reset(context, point.df) if file_gone(causes(error)) else {}:",
                        "if resets := {}:",
                    ),
                ),
                (
                    "spark/test_source_resets.py::test_a_source_is_pinned_anew_in_the_middle_of_an_attempt",
                    "spark/test_source_resets.py::test_what_has_read_the_source_is_computed_again",
                ),
                error="Py4JJavaError",
            ),
            Switch(
                "the script is not told",
                (
                    Edit(
                        "spark/points/pinned_sources.py",
                        "        _tell(application.sources[name], said)\n",
                        "        pass\n",
                    ),
                ),
                ("spark/test_source_resets.py::test_a_script_that_is_told_has_looked_at_its_own_risk",),
            ),
            Switch(
                "rows of the old files may be elsewhere",
                (
                    Edit(
                        "spark/points/pinned_sources.py",
                        "    if source.on_reset is None and application.looks != source.looks:\n",
                        "    if False:\n",
                    ),
                ),
                ("spark/test_source_resets.py::test_what_may_be_elsewhere_already_takes_another_attempt[rows]",),
            ),
        ),
        missing="the same if a script has seen rows and does not want to be told, if something is cached, and in auto "
        "mode: there the next attempt does it, from the top",
    ),
)
