package airflow_provider;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedList;
import java.util.List;
import java.util.Set;

import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.spark.internal.config.ConfigEntry;
import org.apache.spark.internal.io.FileCommitProtocol;
import org.apache.spark.sql.internal.SQLConf;

/**
 * The driver's side of a file write's commit protocol, which begins and commits when Python has allowed it; for
 * commit_gate.py, which says why. All else is done by the protocol that the session's setting names, and executors get
 * that one: this object is serialized as it.
 *
 * <p>No setting changes. What is replaced is how Spark reads one: while a thread is served, it finds this class under
 * <code>spark.sql.sources.commitProtocolClass</code>, whatever stands there.
 */
public final class CommitGate extends FileCommitProtocol implements java.io.Serializable {
    private static final ThreadLocal SERVED = new ThreadLocal();
    private static final ThreadLocal CHOSEN = new ThreadLocal();
    private static final String BEGIN = "begin";
    private static final String COMMIT = "commit";

    private final FileCommitProtocol protocol;
    private final Write write;
    private final String name;

    /** What Spark makes of the name of a class: one for each write. */
    public CommitGate(String name, String path, boolean dynamic) {
        this.protocol = FileCommitProtocol.instantiate((String) CHOSEN.get(), name, path, dynamic);
        this.write = served(path);
        this.name = name;
        if (this.write != null) {
            this.write.ask(BEGIN, name);
        }
    }

    /** Lets Spark find this class; whether it does. */
    public static boolean open() throws Exception {
        ConfigEntry setting = SQLConf.FILE_COMMIT_PROTOCOL_CLASS();
        if (!(setting.valueConverter() instanceof Chosen)) {
            converter(setting, new Chosen(setting.valueConverter()));
        }
        SERVED.set(new ArrayList());
        try {
            ((List) SERVED.get()).add(new Write(""));
            return CommitGate.class.getName().equals(new SQLConf().fileCommitProtocolClass());
        } finally {
            SERVED.remove();
        }
    }

    private static void converter(ConfigEntry setting, scala.Function1 converter) throws Exception {
        Field field = ConfigEntry.class.getDeclaredField("valueConverter");
        field.setAccessible(true);
        field.set(setting, converter);
    }

    /** Serves a write to a folder that this thread is about to make. */
    public static Write serve(String location) {
        if (SERVED.get() == null) {
            SERVED.set(new ArrayList());
        }
        Write write = new Write(location);
        ((List) SERVED.get()).add(write);
        return write;
    }

    /** Ends what this thread has begun with {@link #serve}. */
    public static void end(Write write) {
        List served = (List) SERVED.get();
        if (served != null) {
            served.remove(write);
            if (served.isEmpty()) {
                SERVED.remove();
            }
        }
        write.end();
    }

    /** A statement may write to several folders; of one write alone the folder may be one that is moved later. */
    private static Write served(String path) {
        List served = (List) SERVED.get();
        if (served == null || served.isEmpty()) {
            return null;
        }
        for (int i = 0; i < served.size(); i++) {
            Write write = (Write) served.get(i);
            if (new Path(write.location).equals(new Path(path))) {
                return write;
            }
        }
        return served.size() == 1 ? (Write) served.get(0) : null;
    }

    public void commitJob(JobContext job, SEQ tasks) {
        if (this.write != null) {
            this.write.ask(COMMIT, this.name);
        }
        this.protocol.commitJob(job, tasks);
    }

    public void setupJob(JobContext job) {
        this.protocol.setupJob(job);
    }

    public void abortJob(JobContext job) {
        this.protocol.abortJob(job);
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

    /** A write that is served, between the thread that makes it and the one that answers for it. */
    public static final class Write {
        private final String location;
        private final LinkedList asked = new LinkedList();
        private final Set allowed = new HashSet();
        private String refusal = "";
        private boolean ended = false;

        Write(String location) {
            this.location = location;
        }

        /** Asks whether a step of it may be taken, and waits for the answer. */
        synchronized void ask(String step, String name) {
            String question = step + " " + name;
            this.asked.add(question);
            this.notifyAll();
            while (!this.allowed.contains(question) && this.refusal.isEmpty() && !this.ended) {
                try {
                    this.wait();
                } catch (InterruptedException interrupted) {
                    Thread.currentThread().interrupt();
                    throw new IllegalStateException("interrupted while it waited to be allowed: " + step);
                }
            }
            if (!this.allowed.contains(question)) {
                throw new IllegalStateException(this.refusal.isEmpty() ? "nobody allows it: " + step : this.refusal);
            }
        }

        /** The next question, when there is one: a step and the name of the write; empty text at its end. */
        public synchronized String next() throws InterruptedException {
            while (this.asked.isEmpty() && !this.ended) {
                this.wait();
            }
            return this.asked.isEmpty() ? "" : (String) this.asked.removeFirst();
        }

        /** Answers a question. */
        public synchronized void allow(String question) {
            this.allowed.add(question);
            this.notifyAll();
        }

        /** Answers whatever is asked from now on: the write fails. */
        public synchronized void refuse(String why) {
            this.refusal = why;
            this.notifyAll();
        }

        synchronized void end() {
            this.ended = true;
            this.notifyAll();
        }
    }

    /** Reads the setting as Spark does, and takes this class's name for it where a thread is served. */
    public static final class Chosen extends scala.runtime.AbstractFunction1 {
        private final scala.Function1 before;

        Chosen(scala.Function1 before) {
            this.before = before;
        }

        public Object apply(Object value) {
            Object chosen = this.before.apply(value);
            if (SERVED.get() == null) {
                return chosen;
            }
            CHOSEN.set(chosen);
            return CommitGate.class.getName();
        }
    }
}
