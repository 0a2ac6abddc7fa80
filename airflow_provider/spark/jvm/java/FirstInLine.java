package airflow_provider;

import java.util.Iterator;

import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.Pool;
import org.apache.spark.scheduler.TaskSetManager;

/** Lets jobs that have waited long enough have the next free cores; for executors.py, which says whose and why. */
public final class FirstInLine {
    private static final int FIRST = -1;
    private static final long EVERY = 100;

    private final String property;
    private final String value;

    /** @param property the local property of these jobs, and its value */
    public FirstInLine(String property) {
        this.property = property.split(" ")[0];
        this.value = property.split(" ")[1];
    }

    /** Begins to move them in a thread of its own, until the end of what is returned. */
    public Moving begin(SparkContext context, long millis) {
        Moving moving = new Moving(context.taskScheduler().rootPool(), this.property, this.value, millis);
        Thread thread = new Thread(moving, "spark-recovery-first-in-line");
        thread.setDaemon(true);
        thread.start();
        return moving;
    }

    /** Moves task sets: Spark's scheduler serves those of earlier jobs first, and no job has a number below 0. */
    public static final class Moving implements Runnable {
        private final Pool pool;
        private final String property;
        private final String value;
        private final long millis;
        private boolean over = false;

        Moving(Pool pool, String property, String value, long millis) {
            this.pool = pool;
            this.property = property;
            this.value = value;
            this.millis = millis;
        }

        public synchronized void end() {
            this.over = true;
            this.notifyAll();
        }

        public synchronized void run() {
            try {
                long due = System.nanoTime() + this.millis * 1000000;
                while (!this.over) {
                    long left = (due - System.nanoTime()) / 1000000;
                    if (left <= 0) {
                        this.move(this.pool);
                    }
                    this.wait(Math.max(left, EVERY));
                }
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        }

        private void move(Pool pool) {
            Iterator all = pool.schedulableQueue().iterator();
            while (all.hasNext()) {
                Object each = all.next();
                if (each instanceof Pool) {
                    this.move((Pool) each);
                } else if (each instanceof TaskSetManager) {
                    TaskSetManager tasks = (TaskSetManager) each;
                    java.util.Properties properties = tasks.taskSet().properties();
                    if (properties != null && this.value.equals(properties.getProperty(this.property))) {
                        tasks.priority_$eq(FIRST);
                    }
                }
            }
        }
    }
}
