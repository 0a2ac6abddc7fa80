package airflow_provider;

import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.util.ArrayDeque;
import java.util.BitSet;
import java.util.Iterator;
import java.util.List;

import org.apache.spark.Dependency;
import org.apache.spark.Partition;
import org.apache.spark.rdd.CoalescedRDD;
import org.apache.spark.rdd.PartitionCoalescer;
import org.apache.spark.rdd.PartitionGroup;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.SQLExecution;

/**
 * The node of a running query that writes files, after its shuffles have ended and before the tasks that write start;
 * for running_write.py.
 */
public final class RunningWrite {
    public RunningWrite(String none) {}

    /** The node of an execution that writes, if all shuffles below it have run; null if there is none. */
    public Object find(long execution) throws Exception {
        Object node = writing(execution, "WriteFilesExec");
        return node != null && hasRun(node) ? node : null;
    }

    /** Whether the plans below a node that were made before the write was have run: only their last stages are left. */
    private static boolean hasRun(Object node) throws Exception {
        if (Members.kind(node).equals("AdaptiveSparkPlanExec")) {
            return ((Boolean) Members.call(node, "isFinalPlan")).booleanValue();
        }
        for (Iterator all = Members.items(((TreeNode) node).children()).iterator(); all.hasNext();) {
            if (!hasRun(all.next())) {
                return false;
            }
        }
        return true;
    }

    /** Spark's count of what an execution writes, which is whole when the write has returned; null if it has none. */
    public Object count(long execution, String of) throws Exception {
        Object node = writing(execution, "DataWritingCommandExec");
        scala.collection.Map counts = node == null ? null : (scala.collection.Map) Members.call(node, "metrics");
        return counts == null || !counts.contains(of) ? null : counts.apply(of);
    }

    private static Object writing(long execution, String wanted) throws Exception {
        Object query = SQLExecution.getQueryExecution(execution);
        Object node = query == null ? null : Members.call(query, "executedPlan");
        while (node != null && !Members.kind(node).equals(wanted)) {
            String kind = Members.kind(node);
            if (kind.equals("AdaptiveSparkPlanExec")) {
                node = Members.call(node, "executedPlan");
            } else if (kind.equals("ResultQueryStageExec")) {
                node = Members.call(node, "plan");
            } else {
                node = kind.equals("DataWritingCommandExec") ? Members.call(node, "child") : null;
            }
        }
        return node;
    }

    /**
     * Whether floating-point numbers are added up below the last shuffles of a plan, in any order: what such a sum
     * decides, such as the partition that a row goes to, may differ in its last digit.
     */
    public boolean addsUpFloats(Object plan) throws Exception {
        ArrayDeque pending = new ArrayDeque();
        pending.push(plan);
        boolean below;
        while (!pending.isEmpty()) {
            Object node = pending.pop();
            below = isShuffle(Members.kind(node));
            for (Iterator all = Members.below(node).iterator(); all.hasNext();) {
                Object next = all.next();
                if (!below) {
                    pending.push(next);
                } else if (hasFloatSums(next)) {
                    return true;
                }
            }
        }
        return false;
    }

    private static boolean isShuffle(String kind) {
        return kind.equals("ShuffleExchangeExec") || kind.equals("ShuffleQueryStageExec");
    }

    private static boolean hasFloatSums(Object plan) throws Exception {
        ArrayDeque pending = new ArrayDeque();
        pending.push(plan);
        while (!pending.isEmpty()) {
            Object node = pending.pop();
            String kind = Members.kind(node);
            if (kind.contains("Window") && isFloat(Members.call(node, "schema"))) {
                return true;
            }
            if (kind.endsWith("AggregateExec") && isFloat(Members.call(node, "schema")) && hasResults(node)) {
                return true;
            }
            pending.addAll(Members.below(node));
        }
        return false;
    }

    private static boolean isFloat(Object type) throws Exception {
        String text = (String) Members.call(type, "catalogString");
        return text.contains("double") || text.contains("float");
    }

    /** Whether an aggregate returns results, rather than partial ones for another aggregate. */
    private static boolean hasResults(Object aggregate) throws Exception {
        List expressions = Members.items(Members.call(aggregate, "aggregateExpressions"));
        for (int i = 0; i < expressions.size(); i++) {
            String mode = Members.call(expressions.get(i), "mode").toString();
            if (mode.equals("Final") || mode.equals("Complete")) {
                return true;
            }
        }
        return false;
    }

    /**
     * Makes a write compute some partitions of a plan, and find the others empty. Returns how many there are, or why
     * that is impossible, and then nothing has changed.
     *
     * @param plan whose rows are written: the child of the write, or another one that is split differently
     * @param empty the partitions that are not computed
     */
    public String leaveOut(Object write, Object plan, int[] empty) {
        try {
            RDD rows = (RDD) Members.call(plan, "execute");
            BitSet left = new BitSet();
            for (int i = 0; i < empty.length; i++) {
                left.set(empty[i]);
            }
            int all = rows.getNumPartitions();
            if (left.length() > all) {
                return "it has " + all + " tasks only";
            }
            scala.reflect.ClassTag rowsOfSpark = scala.reflect.ClassTag$.MODULE$.apply(
                    Class.forName("org.apache.spark.sql.catalyst.InternalRow"));
            Object rest = scan(plan, new CoalescedRDD(rows, all, new scala.Some(new Rest(rows, left)), rowsOfSpark));
            Field child = write.getClass().getDeclaredField("child");
            child.setAccessible(true);
            child.set(write, rest);
            return String.valueOf(all);
        } catch (Exception unable) {
            return unable.toString();
        }
    }

    private static Object scan(Object plan, RDD rows) throws Exception {
        Object[] known = new Object[] {
            Members.call(plan, "output"),
            rows,
            "of what no earlier attempt has written",
            Members.call(plan, "outputPartitioning"),
            Members.call(plan, "outputOrdering"),
            scala.None$.MODULE$ // of a stream, from Spark 4.0 on
        };
        Constructor constructor = RDDScanExec.class.getConstructors()[0];
        Object[] arguments = new Object[constructor.getParameterCount()];
        System.arraycopy(known, 0, arguments, 0, arguments.length);
        return constructor.newInstance(arguments);
    }

    /**
     * Makes partitions of an RDD from the same ones of another RDD, or from none. Spark asks it on the driver only;
     * tasks get nothing of it, and need not know its class. It is a dependency only to count as serializable in each
     * version of Scala.
     */
    public static final class Rest extends Dependency implements PartitionCoalescer {
        private final RDD rows;
        private final BitSet empty;

        Rest(RDD rows, BitSet empty) {
            this.rows = rows;
            this.empty = empty;
        }

        public RDD rdd() {
            return this.rows;
        }

        public PartitionGroup[] coalesce(int most, RDD parent) {
            Partition[] partitions = parent.partitions();
            PartitionGroup[] groups = new PartitionGroup[partitions.length];
            for (int i = 0; i < partitions.length; i++) {
                try {
                    groups[i] = this.empty.get(i)
                            ? new PartitionGroup(scala.Option.empty())
                            : groupOf(parent, partitions[i]);
                } catch (Exception unexpected) {
                    throw new IllegalStateException(unexpected);
                }
            }
            return groups;
        }

        private static PartitionGroup groupOf(RDD rows, Partition partition) throws Exception {
            Object[] argument = new Object[] {partition};
            List hosts = Members.items(
                    Members.call(rows, Members.method(rows.getClass(), "preferredLocations", 1), argument));
            PartitionGroup group = new PartitionGroup(
                    hosts.isEmpty() ? scala.Option.empty() : scala.Option.apply(hosts.get(0)));
            Object members = group.partitions();
            Members.call(members, Members.method(members.getClass(), "$plus$eq", 1), argument);
            return group;
        }

        public Object writeReplace() {
            return null;
        }
    }
}
