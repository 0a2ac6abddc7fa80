package airflow_provider;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedList;
import java.util.List;
import java.util.Properties;
import java.util.Set;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.MRJobConfig;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter;
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat;
import org.apache.parquet.hadoop.ParquetOutputCommitter;
import org.apache.spark.SparkContext;
import org.apache.spark.internal.config.ConfigEntry;
import org.apache.spark.internal.io.FileCommitProtocol;
import org.apache.spark.internal.io.HadoopMapReduceCommitProtocol;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.command.DataWritingCommandExec;
import org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol;
import org.apache.spark.sql.internal.SQLConf;

/**
 * The driver's side of a file write's commit protocol, which starts and commits once Python has allowed it; for
 * commit_gate.py, which says why. The protocol that the session's setting names does everything else, and executors get
 * that one: this object is serialized as it.
 *
 * <p>No setting changes. What is replaced is how Spark reads one: while a thread is served, it finds this class under
 * <code>spark.sql.sources.commitProtocolClass</code>, whatever the setting says. So does a thread that works for it:
 * Spark 4 may run a write in a pool of its own, with the local properties of the thread that waits.
 */
public final class CommitGate extends FileCommitProtocol implements java.io.Serializable {
    private static final List SERVED = new LinkedList();
    private static final ThreadLocal CHOSEN = new ThreadLocal();
    private static final String EXECUTION = "spark.sql.execution.id";
    private static final String BEGIN = "begin";
    private static final String COMMIT = "commit";
    private static final String RESUME = "resume";
    private static final String ANEW = "anew";
    private static final String ABORT = "abort";
    private static final String LEASE = "lease";
    private static final long SECOND = 1000L;

    private final FileCommitProtocol protocol;
    private final List writes;
    private final String name;
    private final String path;
    private final String execution;
    private final boolean goesOn;
    private boolean refused = false;
    private boolean clears = false;
    private boolean held = false;

    /** Spark calls this by the class's name, once for each write. */
    public CommitGate(String name, String path, boolean dynamic) {
        this.writes = served(path);
        this.path = path;
        this.execution = dynamic ? "" : this.ownExecution();
        if (!this.execution.isEmpty()) {
            runBelow(SQLExecution.getQueryExecution(Long.parseLong(this.execution)));
        }
        this.ask(BEGIN, name);
        String earlier = this.execution.isEmpty() ? "" : ((Write) this.writes.get(0)).earlier();
        this.goesOn = !earlier.isEmpty();
        this.name = this.goesOn ? earlier : name;
        this.protocol = FileCommitProtocol.instantiate((String) CHOSEN.get(), this.name, path, dynamic);
    }

    /**
     * Runs the shuffles of rows that were planned before their write was, and which else run with the tasks that write;
     * these report a failure.
     */
    private static void runBelow(QueryExecution query) {
        LinkedList pending = new LinkedList();
        if (query != null && query.executedPlan() instanceof DataWritingCommandExec) {
            pending.add(query.executedPlan());
        }
        try {
            while (!pending.isEmpty()) {
                SparkPlan plan = (SparkPlan) pending.removeFirst();
                if (plan instanceof AdaptiveSparkPlanExec) {
                    ((AdaptiveSparkPlanExec) plan).finalPhysicalPlan();
                }
                for (scala.collection.Iterator all = plan.children().iterator(); all.hasNext();) {
                    pending.add(all.next());
                }
            }
        } catch (Exception failed) {
            return;
        }
    }

    /** The number of the execution for which this thread writes to the folder that is served; empty if it does not. */
    private String ownExecution() {
        Write write = this.writes.size() == 1 ? (Write) this.writes.get(0) : null;
        if (write == null || write.location.isEmpty() || !new Path(write.location).equals(new Path(this.path))) {
            return "";
        }
        String execution = write.context.getLocalProperty(EXECUTION);
        return execution == null ? "" : execution;
    }

    /** Lets Spark find this class; returns whether it does. */
    public static boolean open() throws Exception {
        ConfigEntry setting = SQLConf.FILE_COMMIT_PROTOCOL_CLASS();
        if (!(setting.valueConverter() instanceof Chosen)) {
            converter(setting, new Chosen(setting.valueConverter()));
        }
        Write any = serve("", null);
        try {
            return CommitGate.class.getName().equals(new SQLConf().fileCommitProtocolClass());
        } finally {
            end(any);
        }
    }

    private static void converter(ConfigEntry setting, scala.Function1 converter) throws Exception {
        LeasedCommits.field(ConfigEntry.class, "valueConverter").set(setting, converter);
    }

    /**
     * Serves a write to a folder that this thread is about to make; to any folder if the location is empty.
     *
     * @param context of the application
     */
    public static Write serve(String location, SparkContext context) {
        Write write = new Write(location, context);
        synchronized (SERVED) {
            SERVED.add(write);
        }
        return write;
    }

    /** Ends what {@link #serve} has started. */
    public static void end(Write write) {
        synchronized (SERVED) {
            SERVED.remove(write);
        }
        write.end();
    }

    /** The served writes of this thread: its own, and those of a thread that waits for it. */
    private static List served() {
        List found = new ArrayList();
        synchronized (SERVED) {
            for (Iterator all = SERVED.iterator(); all.hasNext();) {
                Write write = (Write) all.next();
                if (write.thread == Thread.currentThread() || write.isWaitedFor()) {
                    found.add(write);
                }
            }
        }
        return found;
    }

    /**
     * The served write to a folder; all of them if the folder is none of theirs: files may be moved to theirs later.
     */
    private static List served(String path) {
        List served = served();
        for (int i = 0; i < served.size(); i++) {
            String location = ((Write) served.get(i)).location;
            if (!location.isEmpty() && new Path(location).equals(new Path(path))) {
                return served.subList(i, i + 1);
            }
        }
        return served;
    }

    private void ask(String step) {
        this.ask(step, this.name);
    }

    private void ask(String step, String name) {
        this.refused = true;
        for (int i = 0; i < this.writes.size(); i++) {
            ((Write) this.writes.get(i)).ask(step + " " + name + " " + this.execution);
        }
        this.refused = false;
    }

    public void setupJob(JobContext job) {
        this.protocol.setupJob(job);
        Object committer = this.hadoops();
        this.clears = clearsInsteadOf(committer);
        if (this.goesOn) {
            this.ask(this.clears && keepsTasksPending(committer) ? RESUME : ANEW);
        }
        this.hold(!keepsTasksPending(committer)); // last: Spark aborts no write whose setup has failed
    }

    /** Hadoop's committer of files, if it is one of the two known ones; null otherwise. */
    private Object hadoops() {
        Class kind = this.protocol.getClass();
        if (kind != SQLHadoopMapReduceCommitProtocol.class && kind != HadoopMapReduceCommitProtocol.class) {
            return null;
        }
        try {
            Object committer = LeasedCommits.field(HadoopMapReduceCommitProtocol.class, "committer").get(this.protocol);
            Class of = committer == null ? null : committer.getClass();
            return of == FileOutputCommitter.class || of == ParquetOutputCommitter.class ? committer : null;
        } catch (Exception unknown) {
            return null;
        }
    }

    /**
     * Whether this object removes what is pending. Hadoop's committers delete all of it when they end, whoever writes
     * to the folder: a driver that is paused right before that, and replaced, would delete what its successor's tasks
     * have committed. Other committers may work elsewhere.
     */
    private static boolean clearsInsteadOf(Object committer) {
        try {
            Field skips = LeasedCommits.field(FileOutputCommitter.class, "skipCleanup");
            if (committer == null || skips.getBoolean(committer)) {
                return false;
            }
            skips.setBoolean(committer, true);
            return true;
        } catch (Exception unknown) {
            return false;
        }
    }

    /** Whether committed tasks move into place only when the job commits, by Hadoop's algorithm 1. */
    private static boolean keepsTasksPending(Object committer) {
        try {
            return committer != null && LeasedCommits.field(FileOutputCommitter.class, "algorithmVersion").getInt(committer) == 1;
        } catch (Exception unknown) {
            return false;
        }
    }

    /** Ties the commits of tasks to the lease, or stops doing so. */
    private void hold(boolean holds) {
        if (holds != this.held) {
            LeasedCommits.count(holds ? 1 : -1);
            this.held = holds;
        }
    }

    public void commitJob(JobContext job, SEQ tasks) throws IOException {
        this.hold(false);
        List pending = this.pending(job);
        this.ask(COMMIT);
        this.protocol.commitJob(job, tasks);
        if (this.clears && !this.isShared()) {
            this.clear(job, pending);
        }
    }

    /** Whether another thread writes to the folder: its write clears what is pending when it ends. */
    private boolean isShared() {
        Thread own = this.writes.isEmpty() ? null : ((Write) this.writes.get(0)).thread;
        synchronized (SERVED) {
            for (Iterator all = SERVED.iterator(); all.hasNext();) {
                Write write = (Write) all.next();
                boolean there = !write.location.isEmpty() && new Path(write.location).equals(new Path(this.path));
                if (there && write.thread != own) {
                    return true;
                }
            }
        }
        return false;
    }

    /** A write that may not commit, or that is replaced in the middle of its commit, removes only its own files. */
    public void abortJob(JobContext job) throws IOException {
        this.hold(false);
        List pending = this.pending(job);
        if (!this.refused) {
            try {
                this.ask(ABORT);
            } catch (IllegalStateException replaced) {
                // asked, and refused
            }
        }
        if (this.refused) {
            Configuration conf = job.getConfiguration();
            pending.clear();
            pending.add(new Path(this.parent(job), String.valueOf(conf.getInt(MRJobConfig.APPLICATION_ATTEMPT_ID, 0))));
        }
        if (this.refused || this.clears) {
            this.clear(job, pending);
        } else {
            this.protocol.abortJob(job);
        }
    }

    private Path parent(JobContext job) {
        Path output = FileOutputFormat.getOutputPath(job);
        return new Path(output == null ? new Path(this.path) : output, FileOutputCommitter.PENDING_DIR_NAME);
    }

    /**
     * What is pending now, if this object removes it. Listed before permission is asked: once it is given, nothing of
     * it is a successor's.
     */
    private List pending(JobContext job) throws IOException {
        List found = new ArrayList();
        if (!this.clears) {
            return found;
        }
        Path parent = this.parent(job);
        try {
            FileStatus[] all = parent.getFileSystem(job.getConfiguration()).listStatus(parent);
            for (int i = 0; i < all.length; i++) {
                found.add(all[i].getPath());
            }
        } catch (FileNotFoundException none) {
            // nothing is pending
        }
        return found;
    }

    private void clear(JobContext job, List pending) throws IOException {
        Path parent = this.parent(job);
        FileSystem system = parent.getFileSystem(job.getConfiguration());
        system.delete(FileCommitProtocol.getStagingDir(this.path, this.name), true);
        for (int i = 0; i < pending.size(); i++) {
            system.delete((Path) pending.get(i), true);
        }
        try {
            if (system.listStatus(parent).length == 0) {
                system.delete(parent, false);
            }
        } catch (IOException gone) {
            // nobody else writes there, or another writer has just started to
        }
    }

    public void setupTask(TaskAttemptContext task) {
        this.protocol.setupTask(task);
    }

    public String newTaskTempFile(TaskAttemptContext task, scala.Option folder, String extension) {
        return this.protocol.newTaskTempFile(task, folder, extension);
    }

    public String newTaskTempFileAbsPath(TaskAttemptContext task, String folder, String extension) {
        return this.protocol.newTaskTempFileAbsPath(task, folder, extension);
    }

    public FileCommitProtocol.TaskCommitMessage commitTask(TaskAttemptContext task) {
        return this.protocol.commitTask(task);
    }

    public void abortTask(TaskAttemptContext task) {
        this.protocol.abortTask(task);
    }

    public boolean deleteWithJob(FileSystem system, Path path, boolean recursive) {
        return this.protocol.deleteWithJob(system, path, recursive);
    }

    public void onTaskCommit(FileCommitProtocol.TaskCommitMessage task) {
        this.protocol.onTaskCommit(task);
    }

    public Object writeReplace() {
        return this.protocol;
    }

    /** A served write, between the thread that makes it and the one that answers for it. */
    public static final class Write {
        private final String location;
        private final Thread thread = Thread.currentThread();
        private final SparkContext context;
        private final Properties properties;
        private final LinkedList asked = new LinkedList();
        private final Set allowed = new HashSet();
        private String refusal = "";
        private String earlier = "";
        private boolean ended = false;

        Write(String location, SparkContext context) {
            this.location = location;
            this.context = context;
            this.properties = context == null ? null : context.getLocalProperties();
        }

        /** Whether this thread works for the execution that the serving thread waits for. */
        boolean isWaitedFor() {
            String execution = this.context == null ? null : this.context.getLocalProperty(EXECUTION);
            return execution != null && execution.equals(this.properties.getProperty(EXECUTION));
        }

        /** Asks for permission to take a step, and waits for the answer. */
        synchronized void ask(String question) {
            this.asked.add(question);
            this.notifyAll();
            while (!this.allowed.contains(question) && this.refusal.isEmpty() && !this.ended) {
                try {
                    this.wait();
                } catch (InterruptedException interrupted) {
                    Thread.currentThread().interrupt();
                    throw new IllegalStateException("interrupted while it waited to be allowed: " + question);
                }
            }
            if (!this.allowed.contains(question)) {
                throw new IllegalStateException(this.refusal.isEmpty() ? "nobody allows it: " + question : this.refusal);
            }
        }

        /** Lets it continue an earlier attempt's write, whose name it gets; none if the name is empty. */
        public synchronized void goOnAs(String name) {
            this.earlier = name;
        }

        synchronized String earlier() {
            return this.earlier;
        }

        /**
         * The next question, once there is one: a step, the name of the write, and the number of its execution if it
         * writes to the folder that is served and to no staging folder; or how long the lease lasts, repeatedly while
         * that matters; empty at the write's end.
         */
        public synchronized String next() throws InterruptedException {
            while (this.asked.isEmpty() && !this.ended) {
                this.wait(SECOND);
                if (this.asked.isEmpty() && !this.ended && LeasedCommits.isAsked()) {
                    return LEASE;
                }
            }
            return this.asked.isEmpty() ? "" : (String) this.asked.removeFirst();
        }

        /** Answers a question. */
        public synchronized void allow(String question) {
            this.allowed.add(question);
            this.notifyAll();
        }

        /** Refuses everything that is asked from now on: the write fails. */
        public synchronized void refuse(String why) {
            this.refusal = why;
            this.notifyAll();
        }

        synchronized void end() {
            this.ended = true;
            this.notifyAll();
        }
    }

    /** Reads the setting as Spark does, but returns this class's name where a thread is served. */
    public static final class Chosen extends scala.runtime.AbstractFunction1 {
        private final scala.Function1 before;

        Chosen(scala.Function1 before) {
            this.before = before;
        }

        public Object apply(Object value) {
            Object chosen = this.before.apply(value);
            if (served().isEmpty()) {
                return chosen;
            }
            CHOSEN.set(chosen);
            return CommitGate.class.getName();
        }
    }
}
