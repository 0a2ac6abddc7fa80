"""Rows 1 to 19: FLIP-383, the recovery of a job whose master is lost."""

from __future__ import annotations

from tests.ablation.mechanisms import Edit, Row, Switch

JOB_RECOVERY = (
    Row(
        1,
        "`ExecutionJobVertexInitializedEvent`: job vertex, parallelism, inputs",
        "name, fingerprint, parallelism, layout, schema and upstream of a vertex are recorded before it runs; a retry "
        "cuts it as before, even on a cluster of another size",
        ("core/events.py VertexInitialized", "spark/points/cut.py"),
        (
            Switch(
                "a retry cuts rows as its own cluster does",
                (
                    Edit(
                        "spark/points/materialize.py",
                        "if known and known.initialized.deterministic else None",
                        "if False else None",
                    ),
                ),
                (
                    "spark/test_layout.py::test_a_retry_with_another_number_of_cores_computes_only_what_is_missing[shuffle]",
                ),
            ),
            Switch(
                "how a kept shuffle was cut does not count",
                (Edit("spark/auto/shuffle_vertex.py", "cut = layout.identity(tasks)", 'cut = "any"'),),
                ("spark/auto/test_traps_partial.py::test_map_outputs_of_another_cut_are_not_mixed",),
            ),
            Switch(
                "a kept shuffle has no inputs",
                (Edit("spark/auto/shuffle_vertex.py", "return self._upstream(), self", "return (), self"),),
                ("spark/auto/test_kept_graph.py::test_what_a_shuffle_reads_is_known_in_each_attempt",),
            ),
        ),
    ),
    Row(
        2,
        "`ExecutionVertexFinishedEvent`: attempt, location, metrics, snapshots of coordinators",
        "index, attempt, key, rows, bytes, checksum and duration of each stored partition; compared with a listing, "
        "the event adds which of several results counts, and what is lost",
        ("core/events.py PartitionFinished",),
        (
            Switch(
                "the event is not written",
                (
                    Edit(
                        "job/recorded_vertices.py",
                        "self._record.add(finished_event(partition, self.epoch, time.time()))",
                        "pass",
                    ),
                ),
                ("spark/test_job_master.py::test_of_two_results_of_a_partition_the_recorded_one_is_reused",),
            ),
        ),
    ),
    Row(
        3,
        "`ExecutionVertexResetEvent`",
        "partitions are reset, with the reason, before they are computed again",
        ("core/events.py PartitionsReset",),
        (
            Switch(
                "a reset changes nothing",
                (
                    Edit(
                        "core/graph.py",
                        "        vertex = self.vertices.get(event.vertex)\n        if vertex is None:\n            return\n"
                        "        if not event.indexes:",
                        "        return\n        if not event.indexes:",
                    ),
                ),
                (
                    "core/test_graph.py::test_reset_partitions_are_missing_again",
                    "spark/test_checkpoint.py::test_a_lost_partition_alone_is_computed_again",
                ),
            ),
            Switch(
                "a map output that Spark has computed again counts as it was stored",
                (
                    Edit(
                        "spark/auto/keeping.py",
                        "again = [index for index, task in vertex.tasks.items() if now.get(index) != task]",
                        "again = []",
                    ),
                ),
                ("spark/auto/test_traps_partial.py::test_a_task_that_spark_has_run_again_is_stored_again",),
            ),
        ),
    ),
    Row(
        4,
        "write buffer of 1 MB, flush interval of 1 s, one writer thread, nothing blocks the scheduler",
        "the same on an object store: each flush is one new object, and nothing is written if nothing is pending",
        ("storage/event_writer.py",),
        (
            Switch(
                "whoever appends waits for the store",
                (
                    Edit(
                        "storage/event_writer.py",
                        "with self._overhead.on(STORING):\n                    taken = self._put",
                        "with self._changed:\n                    taken = self._put",
                    ),
                ),
                ("storage/test_event_writer.py::test_appending_never_waits_for_the_store",),
            ),
            Switch(
                "the buffer has no size",
                (Edit("storage/event_writer.py", " or self._pending_bytes >= self._options.write_buffer_size", ""),),
                ("storage/test_event_writer.py::test_a_full_buffer_is_written_at_once",),
            ),
            Switch(
                "there is no interval",
                (
                    Edit(
                        "storage/event_writer.py",
                        "return self._pending[0][0] + self._options.write_buffer_flush_interval - time.monotonic()",
                        "return None",
                    ),
                ),
                ("storage/test_event_writer.py::test_an_event_waits_no_longer_than_the_interval",),
            ),
        ),
    ),
    Row(
        5,
        "`cutBlock` when a job vertex is finished",
        "the block is sealed and the store has confirmed it before the vertex counts as finished",
        ("job/recorded_vertices.py vertex_finished",),
        (
            Switch(
                "a vertex is finished as soon as that is said",
                (
                    Edit(
                        "job/recorded_vertices.py",
                        "        confirmed = self._record.flush(self.request.options.ownership_timeout)\n"
                        "        fault_point(AFTER_VERTEX_FINISHED)",
                        "        confirmed = True\n        fault_point(AFTER_VERTEX_FINISHED)",
                    ),
                ),
                ("spark/test_job_master.py::test_a_vertex_is_finished_only_when_the_store_has_its_events",),
            ),
        ),
    ),
    Row(
        6,
        "contiguous numbers, nothing is overwritten",
        "zero-padded keys, create-only; so a driver that was replaced cannot write after its successor, and a gap is "
        "visible",
        ("storage/event_writer.py", "storage/event_log.py"),
        (
            Switch(
                "blocks may be overwritten",
                (Edit("storage/event_writer.py", "self._store.put_new(key, body)", "self._store.put(key, body)"),),
                ("storage/test_fenced_writers.py::test_a_zombie_is_fenced_by_its_successors_first_block[file]",),
            ),
            Switch(
                "nobody looks for gaps",
                (
                    Edit(
                        "storage/event_log.py",
                        "self.numbers = range(start, self.next_block)",
                        "self.numbers = [number for number in present if number >= start]",
                    ),
                ),
                ("storage/test_event_log.py::test_a_missing_block_is_said_and_the_rest_is_read",),
            ),
        ),
    ),
    Row(
        7,
        "a record is its type, its length and a payload, without checksum or version",
        "lines of JSON, each with a checksum and its version, and only known fields",
        ("storage/blocks.py", "core/events.py decode_event"),
        (
            Switch(
                "no checksum is compared",
                (Edit("storage/blocks.py", "len(checksum) != 8 or int(checksum, 16) != zlib.crc32(body)", "False"),),
                ("storage/test_blocks.py::test_a_changed_byte_is_noticed_wherever_it_is",),
            ),
            Switch(
                "no version is compared",
                (Edit("core/events.py", "if version > cls.VERSION:", "if False:"),),
                ("storage/test_blocks.py::test_a_record_that_cannot_be_understood_ends_the_block",),
            ),
        ),
    ),
    Row(
        8,
        "a truncated tail is dropped and the next file read; a record that cannot be read fails the replay",
        "a torn tail is dropped; what a lost block may have recorded is computed again or found by listing, never "
        "trusted",
        ("storage/blocks.py", "core/loss.py"),
        (
            Switch(
                "a torn block is dropped whole",
                (
                    Edit(
                        "storage/blocks.py",
                        "return replace(block, events=tuple(events))",
                        "return replace(block, events=() if block.problem else tuple(events))",
                    ),
                ),
                (
                    "storage/test_blocks.py::test_a_torn_tail_keeps_the_whole_lines_before_it",
                    "storage/test_event_log.py::test_a_torn_block_gives_the_lines_before_the_tear",
                ),
            ),
            Switch(
                "a loss gives nothing up",
                (
                    Edit(
                        "core/graph.py",
                        "            if (vertex := self.vertices[identity]).partitions\n",
                        "            if False\n",
                    ),
                    Edit(
                        "core/graph.py",
                        "        given_up = [\n            vertex\n",
                        "        given_up = [\n            self.vertices[identity]\n",
                    ),
                ),
                (
                    "core/test_loss.py::test_what_is_not_deterministic_is_given_up_with_all_that_reads_it",
                    "spark/test_job_master.py::test_a_lost_block_of_the_last_attempt_costs_nothing_that_is_deterministic",
                ),
            ),
        ),
    ),
    Row(
        9,
        "a write error stops the recording, the job goes on",
        "the same, with a warning; while the store merely does not answer, events wait in memory",
        ("storage/event_writer.py",),
        (
            Switch(
                "no event waits for a store that is away",
                (
                    Edit(
                        "storage/event_writer.py",
                        "                if not self._may_wait(error, pause):\n                    raise\n",
                        "                raise\n",
                    ),
                ),
                ("storage/test_event_writer_failures.py::test_events_wait_for_a_store_that_does_not_answer",),
            ),
            Switch(
                "recording goes on behind what was lost",
                (Edit("storage/event_writer.py", "            self._broken = error\n", ""),),
                (
                    "storage/test_event_writer_failures.py::test_a_store_that_fails_for_good_ends_the_recording_and_says_so",
                ),
            ),
        ),
    ),
    Row(
        10,
        "recovery if the store is not empty: CREATED, RECONCILING, RUNNING",
        "the same states, recorded and logged; in between, the recorded graph is reconciled with what is stored",
        ("core/graph.py JobState", "job/reconciling.py"),
        (
            Switch(
                "an attempt runs at once",
                (Edit("job/job_master.py", "        if self.epoch > 1:\n", "        if False:\n"),),
                (
                    "spark/test_job_master.py::test_an_attempt_reconciles_before_it_runs",
                    "spark/test_job_master.py::test_a_partition_that_comes_after_failure_is_kept",
                ),
            ),
            Switch(
                "the state is not told",
                (
                    Edit(
                        "job/job_master.py",
                        "        self._record.add(ev.JobStateChanged(**self._now, state=JobState.RECONCILING))\n",
                        "",
                    ),
                ),
                ("spark/test_job_master.py::test_an_attempt_reconciles_before_it_runs",),
            ),
        ),
    ),
    Row(
        11,
        "snapshots of operator coordinators, at least 3 min apart or at a vertex's end",
        "snapshots of the whole graph and of what only the driver knows (pinned listings, results of steps, states of "
        "queries, counters of restarts), when a vertex ends or after the pause; a replay starts from the newest good "
        "one. A block that is lost, or of a newer format, costs what it contained, and if rows may therefore be added "
        "again, a warning says so",
        ("core/snapshot.py", "storage/snapshots.py", "core/loss.py"),
        (
            Switch(
                "a replay reads all blocks",
                (
                    Edit(
                        "storage/event_log.py",
                        "            snapshot, problems = snapshots.newest(numbers)\n",
                        "            snapshot, problems = None, []\n",
                    ),
                ),
                ("storage/test_snapshots.py::test_replay_starts_from_the_newest_snapshot[file]",),
            ),
            Switch(
                "no snapshot is taken",
                (Edit("job/recording.py", "            writer.snapshot(self.graph.copy())\n", ""),),
                ("spark/test_job_master.py::test_a_loss_is_dealt_with_once",),
            ),
            Switch(
                "a snapshot leaves out what the driver alone knows",
                (Edit("core/snapshot.py", '"gap", "coordinators")', '"gap")'),),
                ("core/test_snapshot.py::test_what_coordinators_know_is_kept",),
            ),
            Switch(
                "a lost block costs all that the driver alone knows",
                (
                    Edit(
                        "core/graph.py",
                        "        self.coordinators[LOST] = state_of_loss(loss, newest)\n",
                        "        self.coordinators.clear()\n        self.coordinators[LOST] = state_of_loss(loss, newest)\n",
                    ),
                ),
                (
                    "core/test_loss.py::test_what_is_lost_costs_what_it_held",
                    "spark/test_lost_blocks.py::test_what_is_known_is_not_done_again",
                ),
            ),
            Switch(
                "nobody says that rows may be there twice",
                (
                    Edit(
                        "spark/sinks/unknown_sinks.py",
                        "        why = may_be_outdated(self._master.graph.coordinators, known)\n",
                        '        why = ""\n',
                    ),
                ),
                ("spark/test_lost_blocks.py::test_rows_may_not_be_there_twice",),
            ),
        ),
    ),
    Row(
        12,
        "finished events behind the last snapshot are dropped where a coordinator needs it",
        "a source whose listing was not pinned is listed again, and what reads it starts over if it lists other files",
        ("spark/api/source.py", "spark/jvm/sources.py"),
        (
            Switch(
                "the files that a source lists are no part of what reads it",
                (Edit("spark/jvm/sources.py", "identity = digest(*how, files.digest)", "identity = digest(*how)"),),
                ("spark/test_finished_tasks.py::test_without_a_pin_a_new_file_changes_the_input",),
            ),
        ),
    ),
    Row(
        13,
        "a coordinator without snapshots: an unfinished vertex resets all its tasks, a finished one is restarted whole once",
        "readers of a source without a version (JDBC, an RDD) start over if they are unfinished. Finished ones are "
        "kept whole for attempts that Airflow starts by itself, and read anew when somebody has cleared the task, or "
        "if that is not known. The same applies to what Python functions make of files and services that they read by "
        "themselves. The option `source_version`, or `version=`, vouches for such a source: then it is like any other",
        (
            "airflow/retries.py",
            "core/graph.py only_retried_since",
            "spark/points/recover.py",
            "spark/jvm/sources.py",
            "spark/identity/functions/outside.py",
        ),
        (
            Switch(
                "an RDD counts as the same whatever it holds",
                (
                    Edit(
                        "spark/jvm/sources.py",
                        'return replace(_opaque("an RDD cannot be fingerprinted"), made=rdd)',
                        'return _rows("any")',
                    ),
                ),
                ("spark/test_checkpoint.py::test_an_rdd_is_never_reused",),
            ),
            Switch(
                "what has finished is read anew by each attempt",
                (
                    Edit(
                        "spark/points/recover.py",
                        "    return same if context.master.series else ()\n",
                        "    return ()\n",
                    ),
                ),
                (
                    "spark/test_unversioned_sources.py::"
                    "test_what_was_finished_is_kept_for_automatic_retries_alone[jdbc]",
                ),
            ),
            Switch(
                "each attempt counts as Airflow's own",
                (
                    Edit(
                        "core/graph.py",
                        '        return len(series) == 1 and "" not in series\n',
                        "        return True\n",
                    ),
                ),
                (
                    "core/test_graph.py::test_automatic_retries_are_known_by_their_series",
                    "spark/test_unversioned_sources.py::"
                    "test_what_was_finished_is_kept_for_automatic_retries_alone[jdbc]",
                ),
            ),
            Switch(
                "a clearing is not seen",
                (
                    Edit(
                        "airflow/retries.py",
                        '    cleared = getattr(context.get("dag_run"), "clear_number", None)\n',
                        "    cleared = 0\n",
                    ),
                ),
                ("airflow_side/test_retries.py::test_a_clearing_begins_another_series",),
            ),
            Switch(
                "what functions read by themselves does not count",
                (
                    Edit(
                        "spark/identity/functions/outside.py",
                        "        _add(self.reads, reading(path, attributes), where)\n",
                        "",
                    ),
                    Edit("spark/identity/functions/outside.py", "        if found.opens:\n", "        if False:\n"),
                ),
                (
                    "spark/test_read_by_functions.py::test_a_recovery_point_is_kept_for_automatic_retries_alone",
                    "spark/test_read_by_functions.py::test_an_output_is_written_again_once_the_task_was_cleared[overwrite]",
                    "spark/test_functions_reading.py::test_what_a_function_reads_is_found[open]",
                ),
            ),
            Switch(
                "a version does not count",
                (Edit("spark/identity/plan_identity.py", "        if asked and version:\n", "        if False:\n"),),
                ("spark/test_unversioned_sources.py::test_with_a_version_it_is_an_ordinary_source[jdbc]",),
                error="KeyError",
            ),
            Switch(
                "a version does not count in auto mode",
                (
                    Edit(
                        "spark/identity/plan_identity.py",
                        "version = self._known.source_version\n",
                        'version = self._known.source_version if self._name_draws else ""\n',
                    ),
                ),
                (
                    "spark/test_unversioned_sources.py::"
                    "test_with_a_version_auto_mode_keeps_what_is_shuffled_of_it[jdbc]",
                ),
            ),
        ),
        missing="shuffles of auto mode over such a source without `source_version`: if an executor loses part of one, "
        "Spark computes that part from the source as it is then, and would mix it with what was kept; other "
        "sources than a JDBC table, a table of Spark's second interface, or an RDD of Python functions over rows "
        "of the driver cannot be described, and are not kept",
    ),
    Row(
        14,
        "`ShuffleMaster.getAllPartitionWithMetrics`: partitions and their bytes",
        "all survivors of a job with rows, bytes and checksum from one paged listing, no request per object",
        ("storage/partition_store.py", "core/partitions.py"),
        (
            Switch(
                "each object is asked for",
                (
                    Edit(
                        "storage/partition_store.py",
                        "            elif (partition := StoredPartition.from_key(key, info.size)) is not None:",
                        "            elif self._store.exists(info.key) and (partition := StoredPartition.from_key(key, info.size)):",
                    ),
                ),
                ("storage/test_partition_store.py::test_survivors_cost_one_listing",),
            ),
            Switch(
                "sizes are not told",
                (
                    Edit(
                        "storage/partition_store.py",
                        "StoredPartition.from_key(key, info.size)",
                        "StoredPartition.from_key(key, 0)",
                    ),
                ),
                ("storage/test_partition_store.py::test_what_was_put_survives_with_its_size[file]",),
            ),
        ),
    ),
    Row(
        15,
        "RESERVE, RELEASE and OPTIONAL partitions",
        "the same three. A finished vertex is optional, whatever it has lost since, if all its known readers are "
        "finished or optional themselves; outputs are readers, too. It is computed when another vertex that reads it "
        "is. A vertex that another one has superseded is released when the next attempt begins",
        ("core/classify.py", "job/reconciling.py", "spark/points/restarting.py"),
        (
            Switch(
                "nothing is superseded",
                (
                    Edit(
                        "core/classify.py",
                        "    return later and newer.reached_by.isdisjoint(older.reached_by)",
                        "    return False",
                    ),
                ),
                (
                    "core/test_classify.py::test_a_vertex_with_new_code_supersedes_the_old_one",
                    "spark/test_job_master.py::test_a_vertex_whose_place_another_has_taken_is_released",
                ),
            ),
            Switch(
                "nothing is optional",
                (Edit("core/classify.py", "                optional.add(identity)\n", "                pass\n"),),
                (
                    "core/test_classify.py::test_a_vertex_whose_readers_are_all_finished_is_optional",
                    "spark/test_optional.py::test_what_is_lost_is_not_computed_if_all_that_reads_it_is_finished[arrow]",
                ),
            ),
            Switch(
                "what has lost a partition is optional no more",
                (Edit("core/classify.py", "        if vertex.has_finished\n", "        if vertex.finished\n"),),
                (
                    "core/test_classify.py::test_what_only_an_optional_vertex_reads_is_optional[abc]",
                    "spark/test_optional.py::test_what_is_lost_is_not_computed_if_all_that_reads_it_is_finished[arrow]",
                ),
            ),
            Switch(
                "no output is a reader",
                (Edit("core/classify.py", "        if isinstance(reads, list):\n", "        if False:\n"),),
                (
                    "core/test_classify.py::test_an_output_is_needed_however_many_vertices_have_read_the_same",
                    "spark/test_optional.py::test_what_only_a_written_output_reads_is_not_computed[native]",
                ),
            ),
            Switch(
                "what is optional is never completed",
                (
                    Edit(
                        "spark/points/restarting.py",
                        "    point = _with_what_was_left(context, point)\n",
                        "",
                    ),
                ),
                ("spark/test_optional.py::test_a_new_reader_completes_what_it_reads[arrow]",),
            ),
        ),
        missing="readers of a vertex that no attempt has reached. If such a reader is an action or an output, it computes "
        "all of an optional vertex that is lost in part, within its own plan",
    ),
    Row(
        16,
        "wait up to the timeout for the previous workers; late reports are released",
        "the heartbeats of all earlier drivers are watched up to the timeout before the first block is written; "
        "unusable remains of theirs are swept",
        ("job/claiming.py", "job/survivors.py"),
        (
            Switch(
                "no earlier driver is waited for",
                (Edit("job/claiming.py", "    wait_for_end(watched, log)\n", ""),),
                ("storage/test_liveness.py::test_an_attempt_that_died_while_it_waited_hides_nobody",),
            ),
            Switch(
                "nothing is swept",
                (Edit("job/survivors.py", "            self._partitions.delete(useless)\n", ""),),
                ("spark/test_job_master.py::test_what_a_fresh_start_gave_up_is_deleted",),
            ),
        ),
        missing="workers that register again: Spark's executors end with their driver, so the driver is watched, and the "
        "store is asked what is stored",
    ),
    Row(
        17,
        "a missing partition is a region failover from its producer",
        "a stored partition that cannot be read is given up, and its own vertex computes it again before the reader: another "
        "recovery point, a query or a write",
        ("spark/points/restarting.py",),
        (
            Switch(
                "what cannot be read is not looked for",
                (Edit("spark/points/restarting.py", "for key in unreadable_partitions(error)", "for key in ()"),),
                (
                    "spark/test_restarts_in_spark.py::test_a_lost_input_is_computed_again_by_its_own_vertex[native-deleted]",
                ),
                error="Py4JJavaError",
            ),
            Switch(
                "an action reads what was lost once more",
                (
                    Edit(
                        "spark/points/restarted_actions.py",
                        "        current = up_to_date(context, frame)\n        lead(frame, renewed(frame) if current is frame "
                        "else current)\n",
                        "        lead(frame, renewed(frame))\n",
                    ),
                ),
                (
                    "spark/test_restarted_actions.py::"
                    "test_a_lost_partition_that_an_action_reads_is_computed_again_by_its_own_vertex[collect]",
                    "spark/auto/test_failover_in_auto_mode.py::test_a_lost_partition_file[fixed-delay-region]",
                ),
                error="Py4JJavaError",
            ),
            Switch(
                "a shuffle that has lost a map output runs again as a whole",
                (Edit("spark/auto/restored_plan.py", "        if not there:\n", "        if not complete:\n"),),
                ("spark/auto/test_failover_in_auto_mode.py::test_a_lost_map_output[fixed-delay-region]",),
            ),
        ),
        missing="the same for a SQL statement, whose text is read anew, and for random rows: the next attempt computes "
        "what is missing",
    ),
    Row(
        18,
        "where recovery fails, events are deleted and the job starts from scratch, which counts as a restart",
        "the same, with a warning; nothing is deleted, a fresh start follows the older events",
        ("core/loss.py", "core/graph.py", "job/recording.py"),
        (
            Switch(
                "what cannot be trusted is resumed",
                (
                    Edit(
                        "job/recording.py",
                        "graph.must_start_afresh(claim.epoch) or contradiction(graph)",
                        '""',
                    ),
                ),
                ("spark/test_job_master.py::test_a_lost_start_abandons_recovery_loudly",),
            ),
            Switch(
                "it is not counted",
                (Edit("core/graph.py", 'restarts.get("failures", 0) + 1}', 'restarts.get("failures", 0)}'),),
                (
                    "core/test_failover.py::test_a_start_from_scratch_because_recovery_was_abandoned_counts_as_a_failure",
                ),
            ),
        ),
    ),
    Row(
        19,
        "events are deleted only when the job is globally terminal",
        "partitions are deleted when a success has been acknowledged, the rest of a job when nothing of it has "
        "changed for the retention",
        ("storage/discarding.py", "storage/garbage.py"),
        (
            Switch(
                "age does not count",
                (Edit("storage/garbage.py", "    if idle < older_than:\n", "    if False:\n"),),
                ("storage/test_garbage.py::test_only_what_is_older_than_the_retention_goes",),
            ),
            Switch(
                "a success keeps its partitions",
                (
                    Edit(
                        "storage/discarding.py",
                        "            release_all(store, prefix, up_to=epoch)\n",
                        "            pass\n",
                    ),
                ),
                ("storage/test_discarding.py::test_partitions_go_before_the_success_is_noted",),
            ),
        ),
    ),
)
