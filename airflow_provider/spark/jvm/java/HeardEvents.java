package airflow_provider;

import java.util.List;

import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.AsyncEventQueue;
import org.apache.spark.scheduler.LiveListenerBus;
import org.apache.spark.scheduler.LiveListenerBusMetrics;
import org.apache.spark.scheduler.SparkListenerEvent;

/**
 * A queue of Spark's event bus without listeners, so that a script finds none of ours among its own. It passes each
 * event on in the thread that has posted it.
 */
public abstract class HeardEvents extends AsyncEventQueue {
    private final LiveListenerBus bus;

    /** @param name that no other queue of the bus has */
    public HeardEvents(SparkContext context, String name) {
        super(name, context.getConf(), new LiveListenerBusMetrics(context.getConf()), context.listenerBus());
        this.bus = context.listenerBus();
    }

    /** Handles an event. Must not throw, nor take long: Spark waits for it. */
    public abstract void heard(SparkListenerEvent event);

    /** Whether these are the events of an application. */
    public boolean areOf(SparkContext context) {
        return this.bus == context.listenerBus();
    }

    /** Starts to receive events. */
    public void join() throws Exception {
        ((List) Members.field(this.bus, "queues")).add(this);
    }

    /** Stops receiving events. */
    public void leave() throws Exception {
        List queues = (List) Members.field(this.bus, "queues");
        synchronized (this.bus) { // as the bus does when it adds and removes queues
            for (int i = queues.size() - 1; i >= 0; i--) {
                if (queues.get(i) == this) {
                    queues.remove(i);
                }
            }
        }
    }

    public void post(SparkListenerEvent event) {
        this.heard(event);
    }

    public void start(SparkContext context) {}

    public void stop() {}

    public boolean waitUntilEmpty(long deadline) {
        return true;
    }

    /** Equal to no other: the bus drops a queue without listeners when a script removes a listener of its own. */
    public boolean equals(Object other) {
        return false;
    }

    public int hashCode() {
        return System.identityHashCode(this);
    }
}
