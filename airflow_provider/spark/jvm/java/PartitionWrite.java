package airflow_provider;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.LinkedList;
import java.util.zip.CRC32;

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
    private static final int LARGEST = 256;
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
        long crc = -1;
        if (pieces.exists()) {
            DataInputStream stored = new DataInputStream(new BufferedInputStream(new FileInputStream(pieces), 65536));
            try {
                crc = stored.readInt() == 0x63726300 ? combined(stored, stored.readInt(), file.length()) : -1;
            } catch (EOFException incomplete) {
                // as if there were none
            } finally {
                stored.close();
            }
        }
        return String.format("%08x", new Object[] {Long.valueOf(crc >= 0 ? crc : read(file))});
    }

    private static long combined(DataInputStream pieces, int size, long length) throws IOException {
        int[][] whole = null;
        int crc = 0;
        for (long left = length; left > 0; left -= size) {
            if (left < size) {
                crc = shifted(shift((int) left), crc);
            } else {
                whole = whole == null ? shift(size) : whole;
                crc = shifted(whole, crc);
            }
            crc ^= pieces.readInt();
        }
        return crc & 0xffffffffL;
    }

    /** What a CRC becomes when that many zero bytes follow: for each of its four bytes, and each of their values. */
    private static int[][] shift(int bytes) {
        int[] table = new int[LARGEST];
        for (int i = 0; i < LARGEST; i++) {
            table[i] = i;
            for (int bit = 0; bit < 8; bit++) {
                table[i] = (table[i] >>> 1) ^ ((table[i] & 1) == 0 ? 0 : 0xedb88320);
            }
        }
        int[][] result = new int[4][LARGEST];
        for (int place = 0; place < 4; place++) {
            for (int value = 0; value < LARGEST; value++) {
                int crc = value << (8 * place);
                for (int i = 0; i < bytes; i++) {
                    crc = (crc >>> 8) ^ table[crc & 0xff];
                }
                result[place][value] = crc;
            }
        }
        return result;
    }

    private static int shifted(int[][] by, int crc) {
        return by[0][crc & 0xff] ^ by[1][(crc >>> 8) & 0xff] ^ by[2][(crc >>> 16) & 0xff] ^ by[3][crc >>> 24];
    }

    private static long read(File file) throws IOException {
        CRC32 crc = new CRC32();
        byte[] buffer = new byte[65536];
        InputStream content = new FileInputStream(file);
        try {
            for (int count = content.read(buffer); count >= 0; count = content.read(buffer)) {
                crc.update(buffer, 0, count);
            }
        } finally {
            content.close();
        }
        return crc.getValue();
    }
}
