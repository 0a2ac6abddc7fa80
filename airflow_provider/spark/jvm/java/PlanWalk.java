package airflow_provider;

import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

import org.apache.hadoop.fs.FileStatus;
import org.apache.spark.sql.catalyst.ScalaReflection$;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.runtime.AbstractFunction1;

/**
 * Walks a plan from the top down and writes what it is made of; for plan_walk.py, which says what the words mean.
 *
 * One call from Python replaces the hundreds that asking each node takes. Creates nothing by asking: it reads the
 * parameters of nodes. Compiled by the Janino that generates Spark's own code: no lambdas, no generics.
 */
public final class PlanWalk {
    private static final Object CLOSE = new Object();
    private static final String LAZY = "$lzycompute";

    private final Set lists = new HashSet();
    private final Map through = new HashMap();
    private final List planTypes = new ArrayList();
    private final Map parameters = new HashMap();
    private String vertex;

    /** @param tables lines of words: a list's name, then its entries, separated by blanks */
    public PlanWalk(String tables) {
        String[] lines = tables.split("\n");
        for (int i = 0; i < lines.length; i++) {
            String[] words = lines[i].split(" ");
            if (words[0].equals("through")) {
                this.through.put(words[1], words[2]);
            } else if (words[0].equals("vertex")) {
                this.vertex = words[1];
            } else if (words[0].equals("plan-type")) {
                this.planTypes.add(words[1]);
            } else {
                this.lists.add(lines[i]);
            }
        }
    }

    /** What was found of one plan. */
    public static final class Walked {
        final Answer words = new Answer();
        final ArrayList values = new ArrayList();
        final ArrayList sources = new ArrayList();

        /** Sources that only Python can examine: for each, its value and the node that holds it. */
        public Object[] source(int index) {
            return (Object[]) this.sources.get(index);
        }

        /** Words, and the values, serialized. */
        public Answer answer() {
            return this.words;
        }

        void value(Object value, boolean positional) throws IOException {
            this.values.add(value);
            this.words.say("value", positional ? "1" : "0");
        }
    }

    /** A node of a plan that is still to be examined; of an exchange that ends the tasks' plan only the rows count. */
    private static final class Node {
        final Object node;
        final boolean positional;
        final boolean ofTasks;

        Node(Object node, boolean positional, boolean ofTasks) {
            this.node = node;
            this.positional = positional;
            this.ofTasks = ofTasks;
        }
    }

    /** The contents of a node or an expression: values, expressions, and perhaps plans in these. */
    private static final class Held {
        final Object value;
        final boolean positional;
        final String order;

        Held(Object value, boolean positional, String order) {
            this.value = value;
            this.positional = positional;
            this.order = order;
        }
    }

    /** A value that is serialized as a whole. */
    private static final class Whole {
        final Object value;
        final boolean positional;

        Whole(Object value, boolean positional) {
            this.value = value;
            this.positional = positional;
        }
    }

    /**
     * Walks a plan.
     *
     * @param tasks whether only what the tasks of an exchange run counts: nothing below the exchanges that they read,
     *     except for those of subqueries
     */
    public Walked walk(Object root, boolean tasks) throws Exception {
        Walked out = new Walked();
        boolean subqueries = ((TreeNode) root).containsPattern(TreePattern.PLAN_EXPRESSION());
        ArrayDeque pending = new ArrayDeque();
        pending.push(new Node(root, ((QueryPlan) root).isCanonicalizedPlan(), false));
        while (!pending.isEmpty()) {
            Object item = pending.pop();
            List parts = new ArrayList();
            if (item instanceof Node) {
                Node node = (Node) item;
                this.node(node, node.node == root ? tasks : node.ofTasks, subqueries, out, parts);
            } else if (item instanceof Held) {
                this.held((Held) item, out, parts);
            } else if (item instanceof Whole) {
                out.value(((Whole) item).value, ((Whole) item).positional);
            } else if (item instanceof String[]) {
                String[] words = (String[]) item;
                for (int i = 0; i < words.length; i++) {
                    out.words.say(words[i]);
                }
            } else {
                out.words.say("close");
            }
            for (int i = parts.size() - 1; i >= 0; i--) {
                pending.push(parts.get(i));
            }
        }
        out.words.end(out.values);
        return out;
    }

    private void node(Node given, boolean ofTasks, boolean anySubqueries, Walked out, List parts) throws Exception {
        QueryPlan node = (QueryPlan) given.node;
        boolean positional = given.positional;
        String kind = Members.kind(node);
        if (this.through.containsKey(kind)) {
            Object next = Members.call(node, (String) this.through.get(kind));
            // Spark leaves this one as it is in canonical forms.
            boolean unchanged = positional && kind.equals("TableCacheQueryStageExec");
            parts.add(new Node(unchanged ? ((QueryPlan) next).canonicalized() : next, positional, ofTasks));
            return;
        }
        parts.add(new String[] {"node", node.getClass().getName()});
        String vertex = this.vertexBelow(node);
        if (vertex != null) {
            parts.add(new String[] {"vertex", vertex});
            parts.add(new Whole(Members.call(node, "output"), positional));
        } else if (kind.equals("EmptyRelationExec") || given.ofTasks && kind.endsWith("ExchangeExec")) {
            parts.add(new Whole(Members.call(node, "output"), positional));
        } else {
            boolean subqueries = anySubqueries && !((scala.collection.Seq) node.subqueries()).isEmpty();
            this.parameters(node, kind, positional, ofTasks, subqueries, out, parts);
            if (kind.equals("InMemoryTableScanExec")) {
                parts.add(new Whole(Members.call(Members.call(node, "relation"), "output"), positional));
            }
        }
        parts.add(CLOSE);
    }

    /** The parts of a node. */
    private void parameters(
            QueryPlan node,
            String kind,
            boolean positional,
            boolean ofTasks,
            boolean subqueries,
            Walked out,
            List parts)
            throws Exception {
        String[] names = this.parametersOf(node.getClass());
        int count = ((scala.Product) node).productArity();
        for (int i = count; i < names.length; i++) {
            if (!this.lists.contains("left-out-of-node " + kind + " " + names[i])) {
                parts.add(new String[] {"unseen", kind, names[i]});
                break;
            }
        }
        List run = new ArrayList();
        for (int i = 0; i < count; i++) {
            Object value = ((scala.Product) node).productElement(i);
            if (positional && kind.equals("SortAggregateExec") && names[i].equals("resultExpressions")) {
                value = placed(node, Members.items(value));
            }
            boolean leftOut = this.lists.contains("left-out-of-node " + kind + " " + names[i]);
            List special = leftOut ? new ArrayList() : this.special(node, kind, names[i], value, positional, ofTasks, out);
            if (special == null && subqueries) {
                special = new ArrayList();
                special.add(new Held(value, positional, ""));
            }
            if (special == null) {
                run.add(value);
                continue;
            }
            if (!run.isEmpty()) {
                parts.add(new Whole(run.toArray(), positional));
                run = new ArrayList();
            }
            parts.addAll(special);
        }
        if (!run.isEmpty()) {
            parts.add(new Whole(run.toArray(), positional));
        }
    }

    /**
     * The results of a canonical node that sorts to aggregate. Spark leaves the ids of its aggregates there as they
     * were counted; here they become positions after those of what is read, as in a node that hashes.
     *
     * A node's aggregates are in the order in which its results name them first, unless one is distinct. If one
     * expression is the first to name two of them, their order is unknown, since sides may have been exchanged: they
     * stay.
     */
    private static Object[] placed(QueryPlan node, List results) throws Exception {
        Object[] unchanged = results.toArray();
        int read = Members.items(((QueryPlan) Members.call(node, "child")).output()).size();
        List aggregates = Members.items(Members.call(node, "aggregateExpressions"));
        for (int i = 0; i < aggregates.size(); i++) {
            if (((Boolean) Members.call(aggregates.get(i), "isDistinct")).booleanValue()) {
                return unchanged;
            }
        }
        Map places = new HashMap();
        for (int i = 0; i < unchanged.length; i++) {
            Set named = new HashSet();
            if (((TreeNode) unchanged[i]).containsPattern(TreePattern.PLAN_EXPRESSION())) {
                return unchanged;
            }
            if (unchanged[i] instanceof Alias) {
                counted((TreeNode) unchanged[i], read, named);
            }
            named.removeAll(places.keySet());
            if (named.size() > 1) {
                return unchanged;
            }
            if (named.size() == 1) {
                places.put(named.iterator().next(), Long.valueOf(read + places.size()));
            }
        }
        if (places.size() != aggregates.size()) {
            return unchanged;
        }
        Object[] placed = new Object[unchanged.length];
        for (int i = 0; i < placed.length; i++) {
            placed[i] = new Placing(places).apply(unchanged[i]);
        }
        return placed;
    }

    /** Adds the ids of attributes in an expression that are no positions. */
    private static void counted(TreeNode expression, int positions, Set ids) {
        if (expression instanceof AttributeReference && ((AttributeReference) expression).exprId().id() >= positions) {
            ids.add(Long.valueOf(((AttributeReference) expression).exprId().id()));
        }
        List below = Members.items(expression.children());
        for (int i = 0; i < below.size(); i++) {
            counted((TreeNode) below.get(i), positions, ids);
        }
    }

    /** Gives attributes in an expression other ids. */
    private static final class Placing extends AbstractFunction1 {
        private final Map places;

        Placing(Map places) {
            this.places = places;
        }

        public Object apply(Object expression) {
            if (expression instanceof AttributeReference) {
                ExprId id = ((AttributeReference) expression).exprId();
                Long place = (Long) this.places.get(Long.valueOf(id.id()));
                return place == null
                        ? expression
                        : ((AttributeReference) expression).withExprId(new ExprId(place.longValue(), id.jvmId()));
            }
            return ((TreeNode) expression).mapChildren(this);
        }
    }

    /** Represents a parameter that is not a plain value; null if it is one. */
    private List special(
            QueryPlan node,
            String kind,
            String parameter,
            Object value,
            boolean positional,
            boolean ofTasks,
            Walked out)
            throws Exception {
        List found = new ArrayList();
        String key = " " + kind + " " + parameter;
        if (this.holdsPlan(node.getClass().getDeclaredField(parameter).getType().getName())) {
            found.add(new Node(value, positional, ofTasks));
        } else if (value instanceof CaseInsensitiveStringMap) {
            found.add(new Whole(new TreeMap(((CaseInsensitiveStringMap) value).asCaseSensitiveMap()), positional));
        } else if (this.lists.contains("plans" + key)) {
            scala.collection.Iterator plans = ((scala.collection.Seq) value).iterator();
            while (plans.hasNext()) {
                found.add(new Node(plans.next(), positional, ofTasks));
            }
        } else if (this.lists.contains("source" + key)) {
            this.source(node, kind, value, out, found);
        } else if (this.lists.contains("cached" + key)) {
            Object builder = kind.equals("InMemoryTableScanExec") ? Members.call(value, "cacheBuilder") : value;
            QueryPlan plan = (QueryPlan) Members.call(builder, "cachedPlan");
            if (ofTasks && Members.kind(plan).equals("AdaptiveSparkPlanExec")) {
                plan = (QueryPlan) Members.call(plan, "initialPlan"); // with its exchanges, which its canonical form lacks
            }
            found.add(new String[] {"cached"});
            found.add(new Node(positional ? plan.canonicalized() : plan, positional, ofTasks));
        } else if (this.lists.contains("numbered" + key)) {
            found.add(new String[] {"number", String.valueOf(value)});
        } else if (this.lists.contains("seed" + key)) {
            Object seed = value instanceof scala.Option
                    ? (((scala.Option) value).isDefined() ? ((scala.Option) value).get() : "")
                    : value;
            found.add(new String[] {"seed", String.valueOf(seed)});
        } else {
            return null;
        }
        return found;
    }

    private boolean holdsPlan(String type) {
        for (int i = 0; i < this.planTypes.size(); i++) {
            if (type.endsWith((String) this.planTypes.get(i))) {
                return true;
            }
        }
        return false;
    }

    /** Takes apart what holds a plan, down to the plan; whatever holds none is serialized as a whole. */
    private void held(Held held, Walked out, List parts) throws Exception {
        Object value = held.value;
        boolean positional = held.positional;
        if (value instanceof QueryPlan) {
            parts.add(new Node(value, positional, false));
        } else if (value instanceof TreeNode) {
            if (!((TreeNode) value).containsPattern(TreePattern.PLAN_EXPRESSION())) {
                parts.add(new Whole(value, positional));
                return;
            }
            String kind = Members.kind(value);
            String[] names = this.parametersOf(value.getClass());
            int count = ((scala.Product) value).productArity();
            parts.add(new String[] {"expression", value.getClass().getName(), positional ? "1" : "0"});
            for (int i = 0; i < names.length; i++) {
                boolean leftOut = this.lists.contains("left-out-of " + kind + " " + names[i]);
                boolean curried = this.lists.contains("curried " + kind + " " + names[i]);
                if (i < count && !leftOut) {
                    boolean sorted = positional && this.lists.contains("sorted " + kind + " " + names[i]);
                    parts.add(new Held(((scala.Product) value).productElement(i), positional, sorted ? "sorted" : ""));
                } else if (i >= count && curried) {
                    parts.add(new Whole(Members.call(value, names[i]), positional));
                } else if (i >= count && !leftOut && !this.lists.contains("curries " + kind)) {
                    parts.add(new String[] {"unseen", kind, names[i]});
                }
            }
            parts.add(CLOSE);
        } else if (value instanceof scala.collection.Seq || value instanceof scala.Option) {
            parts.add(new String[] {"several", held.order});
            scala.collection.Iterator items = value instanceof scala.Option
                    ? ((scala.Option) value).iterator()
                    : ((scala.collection.Seq) value).iterator();
            while (items.hasNext()) {
                parts.add(new Held(items.next(), positional, ""));
            }
            parts.add(CLOSE);
        } else {
            parts.add(new Whole(value, positional));
        }
    }

    /** The alias below a Project, if that is a recovery point; null for any other node. */
    public String vertexBelow(Object node) throws Exception {
        if (!Members.kind(node).equals("Project")) {
            return null;
        }
        Object child = Members.call(node, "child");
        if (!Members.kind(child).equals("SubqueryAlias")) {
            return null;
        }
        String name = (String) Members.call(Members.call(child, "identifier"), "name");
        return name.startsWith(this.vertex) ? name : null;
    }

    /** The aliases of all recovery points that a plan reads, also in subqueries and below others, a line for each. */
    public String vertices(Object root) throws Exception {
        StringBuilder found = new StringBuilder();
        ArrayDeque pending = new ArrayDeque();
        pending.push(root);
        while (!pending.isEmpty()) {
            QueryPlan node = (QueryPlan) pending.pop();
            String vertex = this.vertexBelow(node);
            if (vertex != null) {
                found.append(vertex).append('\n');
            }
            pending.addAll(Members.items(node.children()));
            pending.addAll(Members.items(node.subqueries()));
        }
        return found.toString();
    }

    /** The folders, or files, that an index of files lists, after their number. */
    private static void addPaths(Object location, List words) throws Exception {
        scala.collection.Seq roots = (scala.collection.Seq) Members.call(location, "rootPaths");
        words.add(String.valueOf(roots.size()));
        scala.collection.Iterator paths = roots.iterator();
        while (paths.hasNext()) {
            words.add(paths.next().toString());
        }
    }

    /** Whether the rows of a relation reveal which files they come from. */
    private static boolean tellsFiles(Object node) throws Exception {
        scala.collection.Iterator columns = ((scala.collection.Iterable) Members.call(node, "output")).iterator();
        while (columns.hasNext()) {
            if (((Attribute) columns.next()).metadata().contains("__metadata_col")) {
                return true;
            }
        }
        return false;
    }

    /** A relation of files, in words; anything else is left to Python. */
    private void source(Object node, String kind, Object relation, Walked out, List parts) throws Exception {
        List lake = kind.equals("BatchScanExec") ? LakeScan.read(node) : null;
        if (lake != null) {
            List words = new ArrayList();
            words.add("lake");
            words.add(String.valueOf(lake.size()));
            words.addAll(lake);
            parts.add(words.toArray(new String[0]));
            return;
        }
        if (!relation.getClass().getSimpleName().equals("HadoopFsRelation")) {
            out.sources.add(new Object[] {relation, node});
            parts.add(new String[] {"source", kind});
            return;
        }
        List words = new ArrayList();
        words.add("files");
        words.add(Members.call(relation, "fileFormat").getClass().getName());
        words.add(Members.call(Members.call(relation, "dataSchema"), "json"));
        words.add(Members.call(Members.call(relation, "partitionSchema"), "json"));
        words.add(tellsFiles(node) ? "told" : "");
        Object location = Members.call(relation, "location");
        addPaths(location, words);
        scala.collection.Iterator options = ((scala.collection.Iterable) Members.call(relation, "options")).iterator();
        TreeMap sorted = new TreeMap();
        while (options.hasNext()) {
            scala.Tuple2 option = (scala.Tuple2) options.next();
            sorted.put(option._1(), option._2());
        }
        words.add(String.valueOf(sorted.size()));
        Iterator entries = sorted.entrySet().iterator();
        while (entries.hasNext()) {
            Map.Entry entry = (Map.Entry) entries.next();
            words.add(entry.getKey());
            words.add(entry.getValue());
        }
        List given = new ArrayList();
        if (location.getClass().getSimpleName().equals("CatalogFileIndex")) {
            Method filter = Members.method(location.getClass(), "filterPartitions", 1);
            location = Members.call(location, filter, new Object[] {scala.collection.immutable.Nil$.MODULE$});
        }
        if (location.getClass().getSimpleName().equals("InMemoryFileIndex")) {
            // A catalog may give any values to the rows of a folder: its path does not show them.
            scala.Option specified = (scala.Option) Members.field(location, "userSpecifiedPartitionSpec");
            Object catalogs = specified.isDefined() ? Members.call(specified.get(), "partitions") : null;
            Iterator partitions = catalogs == null ? null : Members.items(catalogs).iterator();
            while (partitions != null && partitions.hasNext()) {
                Object partition = partitions.next();
                given.add(Members.call(partition, "values").toString());
                given.add(Members.call(partition, "path").toString());
            }
        }
        words.add(String.valueOf(given.size() / 2));
        words.addAll(given);
        words.add(location.getClass().getSimpleName());
        Method listed = Members.method(location.getClass(), "allFiles", 0);
        if (listed == null) {
            words.add("unlisted");
        } else {
            scala.collection.Seq files = (scala.collection.Seq) Members.call(location, listed, new Object[0]);
            words.add("listed");
            addPaths(location, words);
            words.add(String.valueOf(files.size()));
            scala.collection.Iterator statuses = files.iterator();
            while (statuses.hasNext()) {
                FileStatus status = (FileStatus) statuses.next();
                words.add(status.getPath().toString());
                words.add(String.valueOf(status.getLen()));
                words.add(String.valueOf(status.getModificationTime()));
            }
        }
        parts.add(words.toArray(new String[0]));
    }

    /**
     * For each class that exists, a line: its name, the fields that only cache what was computed from others, and those
     * that are set once and that Java's serialization leaves out, separated by bars.
     *
     * @param names a line for each
     */
    public String shapes(String names) throws Exception {
        StringBuilder shapes = new StringBuilder();
        String[] each = names.split("\n");
        for (int i = 0; i < each.length; i++) {
            Class owner;
            try {
                owner = loaded(each[i]);
            } catch (ClassNotFoundException unknown) {
                continue;
            }
            StringBuilder lost = new StringBuilder();
            boolean lazy = false;
            Field[] fields = owner.getDeclaredFields();
            for (int j = 0; j < fields.length; j++) {
                int modifiers = fields[j].getModifiers();
                if (!Modifier.isStatic(modifiers)) {
                    lazy |= fields[j].getName().startsWith("bitmap$");
                    if (Modifier.isFinal(modifiers) && Modifier.isTransient(modifiers)) {
                        lost.append(fields[j].getName()).append(' ');
                    }
                }
            }
            shapes.append(each[i]).append('|');
            Method[] methods = lazy ? owner.getDeclaredMethods() : new Method[0];
            for (int j = 0; j < methods.length; j++) {
                if (methods[j].getName().endsWith(LAZY)) {
                    String name = methods[j].getName();
                    shapes.append(name.substring(0, name.length() - LAZY.length())).append(' ');
                }
            }
            shapes.append('|').append(lost).append('\n');
        }
        return shapes.toString();
    }

    /** The names of the parameters of a class's constructor, in order, separated by blanks. */
    public String parameters(String name) throws Exception {
        return String.join(" ", this.parametersOf(loaded(name)));
    }

    private static Class loaded(String name) throws Exception {
        return Thread.currentThread().getContextClassLoader().loadClass(name);
    }

    // not private: Janino makes a private method static, and so its lock the class's
    synchronized String[] parametersOf(Class owner) {
        String[] known = (String[]) this.parameters.get(owner);
        if (known == null) {
            List names = Members.items(ScalaReflection$.MODULE$.getConstructorParameterNames(owner));
            known = (String[]) names.toArray(new String[0]);
            this.parameters.put(owner, known);
        }
        return known;
    }
}
