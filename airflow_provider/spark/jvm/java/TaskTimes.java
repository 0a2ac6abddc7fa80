package airflow_provider;

import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import org.apache.spark.scheduler.StageInfo;

/**
 * Adds up the time of an application's tasks by stage; for task_times.py, which says what the answers mean. A stage is
 * named by the number of the shuffle that it writes, the last one of a job by the job's purpose, after =.
 */
public final class TaskTimes {
    private static final String OF_STREAM = "sql.streaming.queryId";

    private final String purpose;
    private final String ours;
    private final Map names = new HashMap();
    private final Map millis = new TreeMap();
    private final Map readers = new TreeMap();
    private final Map running = new HashMap();
    private HeardEvents tasks;
    private boolean whole;

    /** @param properties the local property with a job's purpose, and its value for jobs that do not count */
    public TaskTimes(String properties) {
        this.purpose = properties.split(" ")[0];
        this.ours = properties.split(" ")[1];
    }

    /** Counts the tasks of an application from now on, and forgets those of another one. */
    public synchronized void attach(SparkContext context) throws Exception {
        if (this.tasks == null || !this.tasks.areOf(context)) {
            this.detach();
            this.tasks = new HeardEvents(context, "spark-recovery-tasks") {
                public void heard(SparkListenerEvent event) {
                    TaskTimes.this.heard(event);
                }
            };
            this.tasks.join();
            this.whole = ((Number) Members.call(Members.call(context, "dagScheduler"), "numTotalJobs")).intValue() == 0;
        }
    }

    /** Stops counting, and forgets everything. */
    public synchronized void detach() throws Exception {
        if (this.tasks != null) {
            this.tasks.leave();
        }
        this.tasks = null;
        this.names.clear();
        this.millis.clear();
        this.readers.clear();
        this.running.clear();
    }

    // not private: Janino makes a private method static, and so its lock the class's
    synchronized void heard(SparkListenerEvent event) {
        try {
            if (event instanceof SparkListenerTaskEnd) {
                this.ended((SparkListenerTaskEnd) event);
            } else if (event instanceof SparkListenerTaskStart) {
                this.started((SparkListenerTaskStart) event);
            } else if (event instanceof SparkListenerJobStart) {
                this.begun((SparkListenerJobStart) event);
            }
        } catch (Throwable unknown) {
            this.whole = false;
        }
    }

    void begun(SparkListenerJobStart job) throws Exception {
        Properties properties = job.properties() == null ? new Properties() : job.properties();
        String served = properties.getProperty(this.purpose, "");
        if (properties.getProperty(OF_STREAM) != null || served.equals(this.ours)) {
            return;
        }
        for (Iterator all = Members.items(job.stageInfos()).iterator(); all.hasNext();) {
            StageInfo stage = (StageInfo) all.next();
            scala.Option shuffle = (scala.Option) Members.call(stage, "shuffleDepId");
            this.names.put(Integer.valueOf(stage.stageId()), shuffle.isDefined() ? shuffle.get().toString() : "=" + served);
        }
        for (Iterator all = Members.items(job.stageInfos()).iterator(); all.hasNext();) {
            StageInfo stage = (StageInfo) all.next();
            for (Iterator read = Members.items(stage.parentIds()).iterator(); read.hasNext();) {
                Object name = this.names.get(Integer.valueOf(((Number) read.next()).intValue()));
                if (name != null && !this.readers.containsKey(name)) {
                    this.readers.put(name, new TreeSet());
                }
                if (name != null) {
                    ((Set) this.readers.get(name)).add(this.names.get(Integer.valueOf(stage.stageId())));
                }
            }
        }
    }

    void started(SparkListenerTaskStart task) {
        Object name = this.names.get(Integer.valueOf(task.stageId()));
        if (name != null) {
            Long since = Long.valueOf(task.taskInfo().launchTime());
            this.running.put(Long.valueOf(task.taskInfo().taskId()), new Object[] {name, since});
        }
    }

    void ended(SparkListenerTaskEnd task) {
        boolean began = this.running.remove(Long.valueOf(task.taskInfo().taskId())) != null;
        if (began && task.taskInfo().successful() && task.taskMetrics() != null) {
            add(this.millis, this.names.get(Integer.valueOf(task.stageId())), task.taskMetrics().executorRunTime());
        }
    }

    private static void add(Map millis, Object name, long more) {
        Long before = (Long) millis.get(name);
        millis.put(name, Long.valueOf(more + (before == null ? 0 : before.longValue())));
    }

    /**
     * A line for each stage: its milliseconds so far, its name, and the names of those that read it. Empty if some of
     * the application's tasks may not have been counted.
     */
    public synchronized String stages() {
        Map soFar = new TreeMap(this.millis);
        long now = System.currentTimeMillis();
        for (Iterator all = this.running.values().iterator(); all.hasNext();) {
            Object[] task = (Object[]) all.next();
            add(soFar, task[0], Math.max(0, now - ((Long) task[1]).longValue()));
        }
        for (Iterator all = this.readers.keySet().iterator(); all.hasNext();) {
            add(soFar, all.next(), 0);
        }
        StringBuilder answer = new StringBuilder(this.whole ? "whole\n" : "");
        for (Iterator all = soFar.entrySet().iterator(); this.whole && all.hasNext();) {
            Map.Entry each = (Map.Entry) all.next();
            answer.append(each.getValue()).append(' ').append(each.getKey());
            Set read = (Set) this.readers.get(each.getKey());
            for (Iterator names = read == null ? null : read.iterator(); names != null && names.hasNext();) {
                answer.append(' ').append(names.next());
            }
            answer.append('\n');
        }
        return answer.toString();
    }
}
