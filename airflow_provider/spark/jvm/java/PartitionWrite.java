package airflow_provider;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.LinkedList;

import org.apache.commons.io.FileUtils;
import org.apache.hadoop.util.CrcComposer;
import org.apache.hadoop.util.DataChecksum;
import org.apache.spark.SparkContext;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.TaskInfo;

/**
 * Learns which tasks of a write of partitions have succeeded, and examines their files; for partition_write.py. Spark
 * posts a task's end before it goes on, so all successful tasks are known before the write returns.
 */
public final class PartitionWrite {
    /** What Hadoop's files of checksums begin with. */
    private static final int HADOOP = 0x63726300;
    private static final int PATIENCE = 100;
    private static final int PAUSE = 100;

    /** @param nothing not used */
    public PartitionWrite(String nothing) {}

    /**
     * Listens for the tasks of jobs from now on.
     *
     * @param property of the jobs that count, and its value
     * @param folder where their files appear on this machine, each part-NNNNN and the ending; empty if they do not
     */
    public Tasks hear(SparkContext context, String property, String value, String folder, String ending)
            throws Exception {
        Tasks tasks = new Tasks(context, property, value, folder, ending);
        tasks.join();
        return tasks;
    }

    public static final class Tasks extends HeardEvents {
        private final String property;
        private final String value;
        private final String folder;
        private final String ending;
        private final LinkedList succeeded = new LinkedList();
        private int stage = -1;
        private boolean ended = false;

        Tasks(SparkContext context, String property, String value, String folder, String ending) {
            super(context, "spark-recovery-write");
            this.property = property;
            this.value = value;
            this.folder = folder;
            this.ending = ending;
        }

        public void heard(SparkListenerEvent event) {
            if (event instanceof SparkListenerTaskEnd) {
                this.taskEnded((SparkListenerTaskEnd) event);
            } else if (event instanceof SparkListenerJobStart) {
                this.jobStarted((SparkListenerJobStart) event);
            }
        }

        synchronized void jobStarted(SparkListenerJobStart event) {
            if (event.properties() != null && this.value.equals(event.properties().getProperty(this.property))) {
                scala.collection.Iterator stages = event.stageIds().iterator();
                while (stages.hasNext()) { // the stage that writes is made last
                    this.stage = Math.max(this.stage, ((Number) stages.next()).intValue());
                }
            }
        }

        synchronized void taskEnded(SparkListenerTaskEnd event) {
            if (event.stageId() == this.stage && event.taskInfo().successful() && event.taskMetrics() != null) {
                TaskInfo task = event.taskInfo();
                TaskMetrics counted = event.taskMetrics();
                long rows = counted.outputMetrics().recordsWritten();
                this.succeeded.add(new long[] {task.partitionId(), task.taskId(), task.attemptNumber(), rows, task.duration()});
                this.notifyAll();
            }
        }

        /**
         * Waits for tasks that have succeeded, and returns a line for each: partition, task, how often the partition
         * was tried before, rows, milliseconds, and size and CRC-32 of its file, 0 and - if there is none. Empty at the
         * end of the write.
         */
        public String next() throws Exception {
            LinkedList all;
            synchronized (this) {
                while (this.succeeded.isEmpty() && !this.ended) {
                    this.wait();
                }
                all = new LinkedList(this.succeeded);
                this.succeeded.clear();
            }
            StringBuilder answer = new StringBuilder();
            while (!all.isEmpty()) {
                long[] task = (long[]) all.removeFirst();
                for (int i = 0; i < task.length; i++) {
                    answer.append(task[i]).append(' ');
                }
                String name = String.format("part-%05d", new Object[] {Long.valueOf(task[0])}) + this.ending;
                File file = new File(this.folder, name);
                boolean there = this.folder.length() > 0 && (task[3] == 0 ? file.exists() : appears(file));
                answer.append(there ? file.length() + " " + checksum(file) : "0 -").append('\n');
            }
            return answer.toString();
        }

        /**
         * Whether a file exists, or appears soon: another machine has made it, and a shared file system may take a
         * while.
         */
        private static boolean appears(File file) throws InterruptedException {
            for (int tries = 0; tries < PATIENCE && !file.exists(); tries++) {
                file.getParentFile().list();
                Thread.sleep(PAUSE);
            }
            return file.exists();
        }

        /** Stops listening for tasks. */
        public void end() throws Exception {
            this.leave();
            synchronized (this) {
                this.ended = true;
                this.notifyAll();
            }
        }
    }

    /**
     * The CRC-32 of a file, eight hexadecimal digits: from those of its pieces, which Hadoop has stored beside it when
     * it was written; from the file itself if there are none.
     */
    static String checksum(File file) throws IOException {
        File pieces = new File(file.getParentFile(), "." + file.getName() + ".crc");
        Integer whole = null;
        if (pieces.exists() && file.length() > 0) {
            DataInputStream stored = new DataInputStream(new BufferedInputStream(new FileInputStream(pieces), 65536));
            try {
                whole = stored.readInt() == HADOOP ? Integer.valueOf(combined(stored, file.length())) : null;
            } catch (EOFException incomplete) {
                // as if there were none
            } finally {
                stored.close();
            }
        }
        long crc = whole == null ? FileUtils.checksumCRC32(file) : whole.intValue() & 0xffffffffL;
        return String.format("%08x", new Object[] {Long.valueOf(crc)});
    }

    private static int combined(DataInputStream pieces, long length) throws IOException {
        int size = pieces.readInt();
        CrcComposer whole = CrcComposer.newCrcComposer(DataChecksum.Type.CRC32, size);
        whole.update(pieces, length / size, size);
        if (length % size > 0) {
            whole.update(pieces, 1, length % size);
        }
        return ByteBuffer.wrap(whole.digest()).getInt();
    }
}
