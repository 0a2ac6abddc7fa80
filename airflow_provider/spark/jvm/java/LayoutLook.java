package airflow_provider;

import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.spark.Partition;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.trees.TreeNode;

/**
 * Describes how each node of a physical plan, from the top down, is split into partitions; for layout.py, which says
 * what that means. Nothing below a shuffle or a broadcast is examined, unless who has written a row counts.
 */
public final class LayoutLook {
    private static final int SHOWN = 1000;

    private final Set lists = new HashSet();
    private final Map through = new HashMap();

    /** @param tables lines of words: a list's name, then its entries, separated by blanks */
    public LayoutLook(String tables) {
        String[] lines = tables.split("\n");
        for (int i = 0; i < lines.length; i++) {
            String[] words = lines[i].split(" ");
            if (words[0].equals("through")) {
                this.through.put(words[1], words[2]);
            } else {
                this.lists.add(lines[i]);
            }
        }
    }

    /**
     * Describes a plan without shuffles, or one whose shuffles have run.
     *
     * @param maps whether the plan is that of map tasks: then what is below a shuffle counts if its rows are read by the
     *     tasks that have written them, or if these are tasks that read files and deal rows out; partitions of a
     *     lake's table are told apart by what they cover, and those of a cached frame by those of its plan
     */
    public Answer look(Object plan, boolean maps) throws Exception {
        Answer answer = new Answer();
        ArrayDeque pending = new ArrayDeque();
        pending.push(plan);
        while (!pending.isEmpty()) {
            Object node = pending.pop();
            String kind = Members.kind(node);
            if (this.through.containsKey(kind)) {
                pending.push(Members.call(node, (String) this.through.get(kind)));
            } else if (kind.equals("AQEShuffleReadExec")) {
                boolean split = this.read(node, answer);
                this.below(maps, split, Members.call(node, "child"), pending);
            } else if (kind.equals("ReusedExchangeExec") && this.is("broadcast", Members.call(node, "child"))) {
                pending.push(Members.call(node, "child"));
            } else if (this.is("exchange", node)) {
                this.shuffle(node, answer);
                this.below(maps, false, node, pending);
            } else if (maps && kind.equals("InMemoryTableScanExec")) { // filled by the tasks that read it
                answer.say("cached");
                pending.push(Members.call(Members.call(node, "relation"), "cachedPlan"));
            } else {
                answer.say("node", kind);
                if (!this.is("broadcast", node)) {
                    List children = Members.items(((TreeNode) node).children());
                    this.cut((TreeNode) node, kind, children.isEmpty(), maps, answer);
                    for (int i = children.size() - 1; i >= 0; i--) {
                        pending.push(children.get(i));
                    }
                }
            }
        }
        return answer.end();
    }

    private boolean is(String what, Object node) {
        return this.lists.contains(what + " " + Members.kind(node));
    }

    private void cut(TreeNode node, String kind, boolean leaf, boolean maps, Answer answer) throws Exception {
        List covered = maps && kind.equals("BatchScanExec") ? LakeScan.covered(node) : null;
        if (kind.equals("FileSourceScanExec")) {
            Iterator rdds = Members.items(Members.call(node, "inputRDDs")).iterator();
            while (rdds.hasNext()) {
                Partition[] partitions = ((RDD) rdds.next()).partitions();
                for (int i = 0; i < partitions.length; i++) {
                    Object files = Members.call(partitions[i], "files");
                    answer.say("files", scala.runtime.ScalaRunTime$.MODULE$.stringOf(files));
                }
            }
        } else if (this.is("shown", node)) {
            answer.say("shown", node.simpleString(SHOWN));
        } else if (this.is("sliced", node)) {
            answer.say("sliced", slices(node, kind));
            answer.say(node.simpleString(SHOWN));
        } else if (kind.equals("RDDScanExec") || kind.equals("RowDataSourceScanExec")
                && Members.kind(Members.call(node, "relation")).equals("JDBCRelation")) { // as its identity says
            answer.say("rows", String.valueOf(((RDD) Members.call(node, "rdd")).getNumPartitions()));
        } else if (covered != null) {
            answer.say("covered", String.valueOf(covered.size()));
            for (int i = 0; i < covered.size(); i++) {
                answer.say((String) covered.get(i));
            }
        } else if (leaf && !this.is("named", node)) {
            answer.say("leaf");
        }
    }

    /**
     * How many slices a leaf has. A range makes RDDs whenever it is asked for them, and Spark draws by their numbers:
     * it is asked for what it declares instead.
     */
    private static String slices(TreeNode node, String kind) throws Exception {
        if (kind.equals("RangeExec")) {
            return String.valueOf(Members.call(Members.call(node, "outputPartitioning"), "numPartitions"));
        }
        StringBuilder slices = new StringBuilder();
        Iterator rdds = Members.items(Members.call(node, "inputRDDs")).iterator();
        while (rdds.hasNext()) {
            slices.append(((RDD) rdds.next()).getNumPartitions()).append(rdds.hasNext() ? ", " : "");
        }
        return slices.toString();
    }

    /** A shuffle that is not read by exactly one task for each reducer; returns whether some read a part of one. */
    private boolean read(Object node, Answer answer) throws Exception {
        scala.collection.Seq specs = (scala.collection.Seq) Members.call(node, "partitionSpecs");
        answer.say("read", specs.mkString(";"));
        answer.say(String.valueOf(specs.size()));
        this.shuffle(Members.call(node, "child"), answer);
        Iterator each = Members.items(specs).iterator();
        while (each.hasNext()) {
            if (!Members.kind(each.next()).equals("CoalescedPartitionSpec")) {
                return true;
            }
        }
        return false;
    }

    private void shuffle(Object node, Answer answer) throws Exception {
        Object partitioning = Members.call(node, "outputPartitioning");
        answer.say("shuffle", Members.kind(partitioning));
        answer.say(String.valueOf(Members.call(partitioning, "numPartitions")), partitioning.toString());
    }

    /** Which task gets a row that is dealt out, or is read by map output, follows from how the writing tasks are cut. */
    private void below(boolean maps, boolean split, Object node, ArrayDeque pending) throws Exception {
        Object partitioning = Members.call(node, "outputPartitioning");
        if (maps && (split || Members.kind(partitioning).equals("RoundRobinPartitioning"))) {
            Object child = Members.items(((TreeNode) Members.unwrapped(node)).children()).get(0);
            if (split || Members.readsFiles(child)) {
                pending.push(child);
            }
        }
    }
}
