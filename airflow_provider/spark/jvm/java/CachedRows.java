package airflow_provider;

import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;

import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;

/**
 * Looks at cached frames, down to the shuffles and broadcasts below each; for cached_frames.py.
 *
 * Other queries read a cached frame, too, and a retry fills it anew. So it counts whether it then holds the same rows,
 * to the last bit, if these shuffles and broadcasts do.
 */
public final class CachedRows {
    private final Set exact;

    /** @param names classes of aggregates that give the same in any order, separated by blanks */
    public CachedRows(String names) {
        this.exact = new HashSet(Arrays.asList(names.split(" ")));
    }

    /** A node that is still to be examined. */
    private static final class Node {
        final Object plan;
        final boolean cached;

        Node(Object plan, boolean cached) {
            this.plan = plan;
            this.cached = cached;
        }
    }

    /** Why the cached frames may hold other rows; empty if they hold the same, null if the plan's tasks read none. */
    public String doubt(Object root) throws Exception {
        ArrayDeque pending = new ArrayDeque();
        pending.push(new Node(root, false));
        boolean any = false;
        while (!pending.isEmpty()) {
            Node node = (Node) pending.pop();
            String kind = Members.kind(node.plan);
            if (kind.equals("AdaptiveSparkPlanExec")) {
                pending.push(new Node(Members.call(node.plan, "executedPlan"), node.cached));
            } else if (kind.equals("TableCacheQueryStageExec") || kind.equals("ResultQueryStageExec")) {
                pending.push(new Node(Members.call(node.plan, "plan"), node.cached));
            } else if (kind.equals("InMemoryTableScanExec")) {
                any = true;
                pending.push(new Node(Members.call(Members.call(node.plan, "relation"), "cachedPlan"), true));
            } else if (!kind.endsWith("QueryStageExec") && !kind.endsWith("ExchangeExec")) {
                String doubt = node.cached ? doubtOf((QueryPlan) node.plan, kind) : "";
                doubt = node.cached && doubt.isEmpty() ? this.inexact((QueryPlan) node.plan) : doubt;
                if (!doubt.isEmpty()) {
                    return doubt;
                }
                Iterator children = Members.items(((TreeNode) node.plan).children()).iterator();
                while (children.hasNext()) {
                    pending.push(new Node(children.next(), node.cached));
                }
            }
        }
        return any ? "" : null;
    }

    /** Why the last bits of rows of cached frames, wherever a plan reads them, may be others; empty if they may not. */
    public String doubtOfBits(Object root) throws Exception {
        ArrayDeque pending = new ArrayDeque();
        pending.push(new Node(root, false));
        while (!pending.isEmpty()) {
            Node node = (Node) pending.pop();
            String kind = Members.kind(node.plan);
            String doubt = node.cached ? this.inexact((QueryPlan) node.plan) : "";
            if (!doubt.isEmpty()) {
                return doubt;
            }
            if (kind.equals("InMemoryTableScanExec")) {
                pending.push(new Node(Members.call(Members.call(node.plan, "relation"), "cachedPlan"), true));
            }
            boolean cached = node.cached && !kind.endsWith("ExchangeExec");
            Iterator below = Members.below(node.plan).iterator();
            while (below.hasNext()) {
                pending.push(new Node(below.next(), cached));
            }
        }
        return "";
    }

    /**
     * Lets adaptive execution find the stages of an adaptive plan that read cached frames, as soon as it looks for them.
     * It keeps them under the stages of the frames, which it does not have yet then.
     */
    public void offer(scala.collection.mutable.Map stages) throws Exception {
        Iterator made = Members.items(stages.values().toSeq()).iterator();
        while (made.hasNext()) {
            Object stage = made.next();
            TreeNode canonical = (TreeNode) Members.call(stage, "_canonicalized");
            TreeNode planned = planned(canonical);
            if (planned != canonical) {
                stages.put(planned, stage);
            }
        }
    }

    /** A canonical plan, with cached frames in place of their stages. */
    private static TreeNode planned(TreeNode node) throws Exception {
        if (Members.kind(node).equals("TableCacheQueryStageExec")) {
            return ((QueryPlan) Members.call(node, "plan")).canonicalized();
        }
        List children = Members.items(node.children());
        boolean changed = false;
        for (int i = 0; i < children.size(); i++) {
            TreeNode child = planned((TreeNode) children.get(i));
            changed |= child != children.get(i);
            children.set(i, child);
        }
        return changed ? node.withNewChildren(scala.collection.JavaConverters.asScalaBuffer(children).toSeq()) : node;
    }

    private static String doubtOf(QueryPlan node, String kind) throws Exception {
        if (Members.saysFunctions(kind)) {
            return "calls a Python function";
        }
        return Members.items(Members.call(node, "subqueries")).isEmpty() ? "" : "has a subquery";
    }

    private String inexact(QueryPlan node) throws Exception {
        ArrayDeque pending = new ArrayDeque(Members.items(node.expressions()));
        while (!pending.isEmpty()) {
            Object expression = pending.pop();
            List children = Members.items(((TreeNode) expression).children());
            if (expression instanceof AggregateFunction && !this.isExact((TreeNode) expression, children)) {
                return "has a result of " + Members.kind(expression) + ", whose last bits depend on the order of rows";
            }
            pending.addAll(children);
        }
        return "";
    }

    /** Sums of floating-point numbers are not exact, nor are averages but those of decimals: they add up doubles. */
    private boolean isExact(TreeNode function, List children) throws Exception {
        String kind = Members.kind(function);
        if (kind.equals("Sum") || kind.equals("Average")) {
            Object type = Members.call(children.get(0), "dataType");
            boolean floats = type instanceof DoubleType || type instanceof FloatType;
            return kind.equals("Sum") ? !floats : type instanceof DecimalType;
        }
        return this.exact.contains(kind);
    }
}
