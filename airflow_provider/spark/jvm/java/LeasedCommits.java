package airflow_provider;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Field;
import java.util.Arrays;
import java.util.Iterator;
import java.util.Map;

import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.scheduler.OutputCommitCoordinator;

/**
 * The driver's coordinator of task commits, which Spark's tasks ask, wherever they run, before they commit. While a
 * write runs whose tasks move files into place themselves, they may do so only as long as the driver's lease lasts; for
 * commit_gate.py.
 *
 * <p>A refused task runs again, after a pause: an outage of the event store may be over soon. Spark's own coordinator
 * decides everything else, and keeps its state.
 */
public final class LeasedCommits extends OutputCommitCoordinator {
    private static final Object LEASE = new Object();
    private static final long PATIENCE = 30000000000L;
    private static final long MILLISECOND = 1000000L;
    private static long end = 0;
    private static int writes = 0;

    private final OutputCommitCoordinator coordinator;

    private LeasedCommits(SparkConf conf, OutputCommitCoordinator coordinator) {
        super(ARGUMENTS);
        this.coordinator = coordinator;
    }

    /** Makes the tasks of an application ask an object of this class; returns whether they do. */
    public static boolean open(SparkContext context) throws Throwable {
        Object environment = context.env();
        // Uses a handle: listing the methods of SparkEnv in 4.3 finds one that names a class which its jars lack.
        Object rpc = MethodHandles.publicLookup()
                .findVirtual(SparkEnv.class, "rpcEnv", MethodType.methodType(RpcEnv.class))
                .invokeWithArguments(Arrays.asList(new Object[] {environment}));
        Object dispatcher = field(rpc.getClass(), "dispatcher").get(rpc);
        Map endpoints = (Map) field(dispatcher.getClass(), "endpointRefs").get(dispatcher);
        for (Iterator all = endpoints.keySet().iterator(); all.hasNext();) {
            Object endpoint = all.next();
            Field asks = coordinatorOf(endpoint);
            if (asks != null) {
                OutputCommitCoordinator asked = (OutputCommitCoordinator) asks.get(endpoint);
                if (!(asked instanceof LeasedCommits)) {
                    asks.set(endpoint, new LeasedCommits(context.getConf(), asked));
                }
                return true;
            }
        }
        return false;
    }

    /** A private field; the other class that Spark finds by its name uses this, too. */
    static Field field(Class owner, String name) throws NoSuchFieldException {
        Field field = owner.getDeclaredField(name);
        field.setAccessible(true);
        return field;
    }

    /** The field of the coordinator's endpoint that holds the coordinator; null for any other endpoint. */
    private static Field coordinatorOf(Object endpoint) {
        if (!endpoint.getClass().getName().endsWith("OutputCommitCoordinatorEndpoint")) {
            return null;
        }
        Field[] fields = endpoint.getClass().getDeclaredFields();
        for (int i = 0; i < fields.length; i++) {
            if (OutputCommitCoordinator.class.isAssignableFrom(fields[i].getType())) {
                fields[i].setAccessible(true);
                return fields[i];
            }
        }
        return null;
    }

    /** The current time of the clock by which the end of the lease is given. */
    public static long now() {
        return System.nanoTime();
    }

    /** Sets the end of the lease: a time of {@link #now}. */
    public static void lasts(long until) {
        synchronized (LEASE) {
            end = until;
            LEASE.notifyAll();
        }
    }

    /** Adds to the number of running writes whose task commits are final. */
    public static void count(int more) {
        synchronized (LEASE) {
            writes += more;
            LEASE.notifyAll();
        }
    }

    /** Whether the end of the lease matters now. */
    static boolean isAsked() {
        synchronized (LEASE) {
            return writes > 0;
        }
    }

    public boolean handleAskPermissionToCommit(int stage, int stageAttempt, int partition, int attempt) {
        return owns() && this.coordinator.handleAskPermissionToCommit(stage, stageAttempt, partition, attempt);
    }

    private static boolean owns() {
        synchronized (LEASE) {
            while (writes > 0 && end - System.nanoTime() <= 0) {
                long left = end + PATIENCE - System.nanoTime();
                if (left <= 0) {
                    return false;
                }
                try {
                    LEASE.wait(left / MILLISECOND + 1);
                } catch (InterruptedException interrupted) {
                    Thread.currentThread().interrupt();
                    return false;
                }
            }
            return true;
        }
    }
}
