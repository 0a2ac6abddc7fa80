package airflow_provider;

import java.lang.ref.WeakReference;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;

import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreePattern;

/**
 * Searches a running plan for its shuffles; for exchanges.py, which says what they are. Creates nothing by asking: a
 * shuffle whose tasks are not planned yet does not count.
 */
public final class ShuffleSearch {
    private final Set stages;

    /** @param stages the classes of query stages, separated by blanks */
    public ShuffleSearch(String stages) {
        this.stages = new HashSet(Arrays.asList(stages.split(" ")));
    }

    /** A shuffle, as long as something holds its plan. */
    public static final class Held {
        private final WeakReference exchange;
        private final WeakReference dependency;
        private final WeakReference canonical;

        Held(Object exchange, Object dependency, Object canonical) {
            this.exchange = new WeakReference(exchange);
            this.dependency = new WeakReference(dependency);
            this.canonical = new WeakReference(canonical);
        }

        public Object exchange() {
            return this.exchange.get();
        }

        public Object dependency() {
            return this.dependency.get();
        }

        public Object canonical() {
            return this.canonical.get();
        }
    }

    /** What one search has found. */
    public static final class Found {
        private final StringBuilder lines = new StringBuilder();
        private final List shuffles = new ArrayList();

        /** For each shuffle its number, and that of the cached frame's plan that contains it; - if none does. */
        public String lines() {
            return this.lines.toString();
        }

        /** The exchange, dependency or canonical form of a shuffle. */
        public Object part(int shuffle, int part) {
            return ((Object[]) this.shuffles.get(shuffle))[part];
        }

        public Held held(int shuffle) {
            return new Held(this.part(shuffle, 0), this.part(shuffle, 1), this.part(shuffle, 2));
        }

        void add(Integer number, Object cached, Object exchange, Object dependency, Object canonical) {
            this.lines.append(number).append(' ').append(cached).append('\n');
            this.shuffles.add(new Object[] {exchange, dependency, canonical});
        }
    }

    /** A node that is still to be examined; below a stage it has a canonical form of its own. */
    private static final class Node {
        final Object plan;
        final Object canonical;
        final boolean mayHoldPlans;
        final Object cached;

        Node(Object plan, Object canonical, boolean mayHoldPlans, Object cached) {
            this.plan = plan;
            this.canonical = canonical;
            this.mayHoldPlans = mayHoldPlans;
            this.cached = cached;
        }
    }

    /**
     * Searches a physical plan; its adaptive parts are seen as they are now.
     *
     * @param known numbers of shuffles that are left out, with everything below them
     */
    public Found search(Object root, Object session, String known) throws Exception {
        Found found = new Found();
        Set seen = new HashSet();
        String[] numbers = known.isEmpty() ? new String[0] : known.split(" ");
        for (int i = 0; i < numbers.length; i++) {
            seen.add(Integer.valueOf(numbers[i]));
        }
        Object manager = Members.call(Members.call(session, "sharedState"), "cacheManager");
        boolean nothingCached = is(manager, "isEmpty");
        ArrayDeque pending = new ArrayDeque();
        pending.push(new Node(root, null, true, "-"));
        while (!pending.isEmpty()) {
            Node node = (Node) pending.pop();
            String kind = Members.kind(node.plan);
            if (kind.equals("ShuffleQueryStageExec")) {
                Object canonical = Members.call(node.plan, "_canonicalized");
                pending.push(new Node(Members.call(node.plan, "plan"), canonical, true, node.cached));
            } else if (this.stages.contains(kind)) {
                pending.push(new Node(Members.call(node.plan, "plan"), null, true, node.cached));
            } else if (kind.equals("AdaptiveSparkPlanExec") && nothingCached && this.reuses(node.plan)) {
                this.stagesMade(node, found, seen);
            } else if (kind.equals("AdaptiveSparkPlanExec")) {
                pending.push(new Node(Members.call(node.plan, "executedPlan"), null, true, node.cached));
            } else if (kind.equals("ReusedExchangeExec")) {
                pending.push(new Node(Members.call(node.plan, "child"), node.canonical, true, node.cached));
            } else if (kind.equals("InMemoryTableScanExec")) {
                Object plan = Members.call(Members.call(node.plan, "relation"), "cachedPlan");
                pending.push(new Node(plan, null, true, Members.call(plan, "id")));
            } else if (kind.equals("CommandResultExec")) {
                pending.push(new Node(Members.call(node.plan, "commandPhysicalPlan"), null, true, node.cached));
            } else if (!kind.equals("ShuffleExchangeExec")
                    || this.add(node.plan, node.canonical, node.cached, found, seen)) {
                this.below(node, pending);
            }
        }
        return found;
    }

    private boolean reuses(Object adaptive) throws Exception {
        return is(Members.call(adaptive, "conf"), "exchangeReuseEnabled");
    }

    /**
     * The shuffle stages made so far of an adaptive plan and its subqueries, without walking the plan. Cached frames in
     * it have stages of their own.
     */
    private void stagesMade(Node adaptive, Found found, Set seen) throws Exception {
        Object cache = Members.call(Members.call(adaptive.plan, "context"), "stageCache");
        scala.collection.Iterator made = ((scala.collection.Map) cache).valuesIterator();
        while (made.hasNext()) {
            Object stage = made.next();
            if (Members.kind(stage).equals("ShuffleQueryStageExec")) {
                Object exchange = Members.call(stage, "plan");
                if (Members.kind(exchange).equals("ShuffleExchangeExec")) {
                    this.add(exchange, Members.call(stage, "_canonicalized"), adaptive.cached, found, seen);
                }
            }
        }
    }

    /** Adds the shuffle of an exchange, if its tasks are planned; returns whether it is new. */
    private boolean add(Object exchange, Object canonical, Object cached, Found found, Set seen) throws Exception {
        Object dependency = Members.field(exchange, "shuffleDependency");
        if (dependency == null) {
            return true;
        }
        Integer number = (Integer) Members.call(dependency, "shuffleId");
        if (!seen.add(number)) {
            return false;
        }
        Object form = canonical == null ? Members.call(exchange, "canonicalized") : canonical;
        found.add(number, cached, exchange, dependency, form);
        return true;
    }

    private void below(Node node, ArrayDeque pending) throws Exception {
        // it holds none, and Spark 3.5 locks it while it runs
        boolean writes = Members.kind(node.plan).equals("DataWritingCommandExec");
        boolean mayHoldPlans = node.mayHoldPlans
                && (writes || ((TreeNode) node.plan).containsPattern(TreePattern.PLAN_EXPRESSION())); // or further down
        if (mayHoldPlans && !writes) {
            Iterator subqueries = Members.items(Members.call(node.plan, "subqueries")).iterator();
            while (subqueries.hasNext()) {
                pending.push(new Node(subqueries.next(), null, true, node.cached));
            }
        }
        Iterator children = Members.items(((TreeNode) node.plan).children()).iterator();
        while (children.hasNext()) {
            pending.push(new Node(children.next(), null, mayHoldPlans, node.cached));
        }
    }

    /** Whether a plan involves Python functions, cached frames, subqueries and what it shares with others included. */
    public boolean callsFunctions(Object canonical) throws Exception {
        ArrayDeque pending = new ArrayDeque();
        pending.push(canonical);
        while (!pending.isEmpty()) {
            Object node = pending.pop();
            String kind = Members.kind(node);
            if (Members.saysFunctions(kind)) {
                return true;
            }
            if (kind.equals("InMemoryTableScanExec")) {
                pending.push(Members.call(Members.call(node, "relation"), "cachedPlan"));
            }
            pending.addAll(Members.below(node));
        }
        return false;
    }

    /** The names by which functions see the columns of their rows, of all below a node; a canonical plan has none. */
    public String namesSeen(Object plan) throws Exception {
        StringBuilder names = new StringBuilder();
        ArrayDeque pending = new ArrayDeque();
        pending.push(plan);
        while (!pending.isEmpty()) {
            Object node = pending.pop();
            String kind = Members.kind(node);
            List below = Members.below(node);
            if (kind.equals("InMemoryTableScanExec")) {
                pending.push(Members.call(Members.call(node, "relation"), "cachedPlan"));
            } else if (kind.contains("MapIn") || kind.startsWith("FlatMap") || kind.contains("UDTF")) {
                for (Iterator all = below.iterator(); all.hasNext();) {
                    for (Iterator row = Members.items(Members.call(all.next(), "output")).iterator(); row.hasNext();) {
                        String name = (String) Members.call(row.next(), "name");
                        names.append(name.length()).append(' ').append(name);
                    }
                    names.append('\n');
                }
            }
            pending.addAll(below);
        }
        return names.toString();
    }

    /**
     * Whether the tasks of a plan may get other rows in a retry though all rows together are the same.
     *
     * Spark deals rows out in an order of their bytes, from a place that follows from the number of the task that does
     * it (ShuffleExchangeExec). So a row comes to the same task again if each of those has the same rows, to the last
     * bit: if it reads files, no sums of shuffled numbers, and calls no Python functions.
     */
    public boolean mayBeSpreadOtherwise(Object plan) throws Exception {
        ArrayDeque pending = new ArrayDeque();
        pending.push(plan);
        while (!pending.isEmpty()) {
            Object node = Members.unwrapped(pending.pop());
            String kind = Members.kind(node);
            List children = Members.items(((TreeNode) node).children());
            if (kind.equals("CoalesceExec")) {
                return true;
            }
            if (kind.equals("AQEShuffleReadExec") && (is(node, "isLocalRead") || is(node, "hasSkewedPartition"))) {
                Object read = Members.unwrapped(Members.call(node, "child")); // by the tasks that have written it
                pending.addAll(Members.items(((TreeNode) read).children()));
            }
            if (!kind.equals("ShuffleExchangeExec")) {
                pending.addAll(kind.equals("BroadcastExchangeExec") ? new ArrayList() : children);
            } else if (Members.kind(Members.call(node, "outputPartitioning")).equals("RoundRobinPartitioning")
                    && (!is(Members.call(node, "conf"), "sortBeforeRepartition")
                            || !Members.readsFiles(children.get(0))
                            || this.callsFunctions(node))) {
                return true;
            }
        }
        return false;
    }

    private static boolean is(Object owner, String name) throws Exception {
        return ((Boolean) Members.call(owner, name)).booleanValue();
    }
}
