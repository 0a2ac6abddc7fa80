package airflow_provider;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Map;
import java.util.Set;

import org.apache.spark.MapOutputTrackerMaster;
import org.apache.spark.ShuffleStatus;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.status.AppStatusStore;
import org.apache.spark.status.api.v1.StageData;
import org.apache.spark.status.api.v1.TaskData;
import org.apache.spark.status.api.v1.TaskMetrics;
import org.apache.spark.storage.RDDInfo;

/**
 * Examines all shuffles of an application, or the tasks of a stage, in one call each; for map_output_tracker.py and
 * stage_metrics.py, which say what the answers mean. Reads existing fields, and changes nothing.
 */
public final class ShuffleLook {
    /** @param nothing not used */
    public ShuffleLook(String nothing) {}

    /** Nanoseconds of CPU that this thread has used; -1 if they are not counted. */
    public long ownTime() {
        return java.lang.management.ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    /** For each shuffle: its number, and how many of its map outputs are available. */
    public String shuffles(MapOutputTrackerMaster tracker) {
        StringBuilder answer = new StringBuilder();
        scala.collection.Iterator entries = ((scala.collection.Iterable) tracker.shuffleStatuses()).iterator();
        while (entries.hasNext()) {
            scala.Tuple2 entry = (scala.Tuple2) entries.next();
            answer.append(entry._1()).append(' ');
            answer.append(((ShuffleStatus) entry._2()).numAvailableMapOutputs()).append('\n');
        }
        return answer.toString();
    }

    /** For each available map output: index, map id, checksum, host and executor. */
    public String outputs(MapOutputTrackerMaster tracker, int shuffle) throws Exception {
        StringBuilder answer = new StringBuilder();
        scala.Option status = ((scala.collection.Map) tracker.shuffleStatuses()).get(Integer.valueOf(shuffle));
        MapStatus[] outputs = status.isDefined() ? ((ShuffleStatus) status.get()).mapStatuses() : new MapStatus[0];
        for (int i = 0; i < outputs.length; i++) {
            MapStatus output = outputs[i];
            if (output != null) {
                Method checksum = Members.method(output.getClass(), "checksumValue", 0);
                answer.append(i).append(' ').append(output.mapId()).append(' ');
                answer.append(checksum == null ? "0" : Members.call(output, checksum, new Object[0])).append(' ');
                answer.append(output.location().host()).append(' ').append(output.location().executorId()).append('\n');
            }
        }
        return answer.toString();
    }

    /** The newest of the stages whose tasks count a metric; -1 if none does. */
    public int stageThatCounts(Map stages, String metric) throws Exception {
        int newest = -1;
        Iterator all = stages.values().iterator();
        while (all.hasNext()) {
            Object stage = all.next();
            if (((Map) Members.field(stage, "taskMetrics")).containsKey(Long.valueOf(metric))) {
                newest = Math.max(newest, ((Integer) Members.field(stage, "stageId")).intValue());
            }
        }
        return newest;
    }

    /** The newest of the stages that compute an RDD and have ended tasks; -1 if there is none. */
    public int stageThatComputes(AppStatusStore status, int rdd) throws Exception {
        Set stages = stagesThatCompute(status, rdd, 1);
        return stages.isEmpty() ? -1 : ((Integer) Collections.max(stages)).intValue();
    }

    /** The numbers of the stages that compute an RDD. */
    public String allThatCompute(AppStatusStore status, int rdd) throws Exception {
        StringBuilder answer = new StringBuilder();
        Iterator all = stagesThatCompute(status, rdd, 0).iterator();
        while (all.hasNext()) {
            answer.append(all.next()).append(' ');
        }
        return answer.toString();
    }

    /** For each of the stages whose query Spark knows: its number, and that of the query. */
    public String queriesThatRan(Object store, String stages) throws Exception {
        StringBuilder answer = new StringBuilder();
        String[] wanted = stages.trim().split(" ");
        Iterator all = Members.items(Members.call(store, "executionsList")).iterator();
        while (all.hasNext()) {
            Object query = all.next();
            scala.collection.Set ran = (scala.collection.Set) Members.call(query, "stages");
            for (int i = 0; i < wanted.length; i++) {
                if (wanted[i].length() > 0 && ran.contains(Integer.valueOf(wanted[i]))) {
                    answer.append(wanted[i]).append(' ').append(Members.call(query, "executionId")).append('\n');
                }
            }
        }
        return answer.toString();
    }

    /** The numbers of the stages that compute an RDD and of which that many tasks have ended. */
    private static Set stagesThatCompute(AppStatusStore status, int rdd, int ended) throws Exception {
        Set found = new HashSet();
        for (Object live : running(status)) {
            StageInfo info = (StageInfo) Members.field(live, "info");
            if (((Integer) Members.field(live, "completedTasks")).intValue() >= ended && computes(info, rdd)) {
                found.add(Integer.valueOf(info.stageId()));
            }
        }
        Iterator stored =
                Members.items(status.stageList(new ArrayList(), false, false, new double[0], new ArrayList())).iterator();
        while (stored.hasNext()) {
            StageData stage = (StageData) stored.next();
            if (stage.numCompleteTasks() >= ended && stage.rddIds().contains(Integer.valueOf(rdd))) {
                found.add(Integer.valueOf(stage.stageId()));
            }
        }
        return found;
    }

    private static boolean computes(StageInfo stage, int rdd) {
        Iterator all = Members.items(stage.rddInfos()).iterator();
        while (all.hasNext()) {
            if (((RDDInfo) all.next()).id() == rdd) {
                return true;
            }
        }
        return false;
    }

    /** How many tasks of a stage have ended, the milliseconds that they took, and how many it runs, which may be some. */
    public String ended(AppStatusStore status, int stage) throws Exception {
        Object newest = null;
        int attempt = -1;
        for (Object live : running(status)) {
            StageInfo info = (StageInfo) Members.field(live, "info");
            if (info.stageId() == stage && info.attemptNumber() > attempt) {
                newest = live;
                attempt = info.attemptNumber();
            }
        }
        if (newest == null) {
            StageData stored = status.lastStageAttempt(stage);
            return stored.numCompleteTasks() + " " + stored.executorRunTime() + " " + stored.numTasks();
        }
        Object tasks = Members.field(newest, "completedTasks");
        long millis = ((TaskMetrics) Members.field(newest, "metrics")).executorRunTime();
        return tasks + " " + millis + " " + ((StageInfo) Members.field(newest, "info")).numTasks();
    }

    /** The running stages, as Spark's listener knows them: its store is as old as its last update. */
    private static Collection running(AppStatusStore status) throws Exception {
        scala.Option listener = status.listener();
        return listener.isDefined() ? ((Map) Members.field(listener.get(), "liveStages")).values() : new ArrayList();
    }

    /** For each task of a stage that has ended: its index, and what it has counted of each metric. */
    public String counts(Map stages, int stage, int tasks, String metrics) throws Exception {
        StringBuilder answer = new StringBuilder();
        Object live = stages.get(Integer.valueOf(stage));
        if (live == null || ((Integer) Members.field(live, "numTasks")).intValue() != tasks) {
            return "";
        }
        Map counted = (Map) Members.field(live, "taskMetrics");
        String[] ids = metrics.split(" ");
        long[][] values = new long[ids.length][];
        for (int i = 0; i < ids.length; i++) {
            values[i] = (long[]) counted.get(Long.valueOf(ids[i]));
            if (values[i] == null) {
                return "";
            }
        }
        scala.collection.Iterator ended =
                ((scala.collection.Iterable) Members.field(live, "completedIndices")).iterator();
        while (ended.hasNext()) {
            int index = ((Integer) ended.next()).intValue();
            if (index >= values[0].length || index >= values[values.length - 1].length) {
                continue;
            }
            answer.append(index);
            for (int i = 0; i < ids.length; i++) {
                answer.append(' ').append(values[i][index]);
            }
            answer.append('\n');
        }
        return answer.toString();
    }

    /** For each ended task of a stage, in whichever of its attempts: its partition, and how many records it has written. */
    public String records(AppStatusStore status, int stage) {
        StringBuilder answer = new StringBuilder();
        int last = status.lastStageAttempt(stage).attemptId();
        for (int attempt = 0; attempt <= last; attempt++) {
            Iterator all = Members.items(status.taskList(stage, attempt, Integer.MAX_VALUE)).iterator();
            while (all.hasNext()) {
                TaskData task = (TaskData) all.next();
                if (task.status().equals("SUCCESS") && task.taskMetrics().isDefined()) {
                    TaskMetrics metrics = (TaskMetrics) task.taskMetrics().get();
                    answer.append(task.partitionId()).append(' ');
                    answer.append(metrics.shuffleWriteMetrics().recordsWritten()).append('\n');
                }
            }
        }
        return answer.toString();
    }
}
