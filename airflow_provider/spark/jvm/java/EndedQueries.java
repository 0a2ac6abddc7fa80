package airflow_provider;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.WeakHashMap;

import org.apache.commons.codec.digest.DigestUtils;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.sql.catalyst.trees.TreeNode;

/**
 * Notes, for each query that has ended, which of its shuffles have tasks that call Python functions; for
 * ended_queries.py, which says what the answers mean. Spark posts a query's end with its plan, and this receives it in
 * the query's thread, before the action returns.
 */
public final class EndedQueries {
    private static final String EVENTS = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecution";
    private static final int MOST = 10000;

    private final int held;
    private final Map running;
    private final java.util.concurrent.atomic.AtomicLong next;
    private final Map tokens = new WeakHashMap();
    private final Map failures = new WeakHashMap();
    private final BitSet ended = new BitSet();
    private final BitSet unheard = new BitSet();
    private final BitSet ofStreams = new BitSet();
    private final LinkedList reports = new LinkedList();
    private final LinkedList plans = new LinkedList();
    private int given = 0;
    private boolean lost = false;
    private HeardEvents announcements;
    private Object search;
    private Object store;

    /** @param held how many of the last noted queries are held until they are asked for */
    public EndedQueries(String held) throws Exception {
        Object module = org.apache.spark.sql.execution.SQLExecution$.MODULE$;
        this.held = Integer.parseInt(held);
        this.running = (Map) Members.field(module, "executionIdToQueryExecution");
        this.next = (java.util.concurrent.atomic.AtomicLong) Members.field(module, "_nextExecutionId");
    }

    /**
     * Listens for the queries of an application from now on.
     *
     * @param search a ShuffleSearch
     * @param store of the SQL tab: Spark's records of the queries that have ended before
     */
    public synchronized void attach(SparkContext context, Object search, Object store) throws Exception {
        this.search = search;
        this.store = store;
        if (this.announcements == null || !this.announcements.areOf(context)) {
            this.leave();
            this.announcements = new HeardEvents(context, "spark-recovery") {
                public void heard(SparkListenerEvent event) {
                    EndedQueries.this.posted(event);
                }
            };
            this.announcements.join();
            this.unheard.set(0, (int) this.next());
            for (Iterator all = new ArrayList(this.running.keySet()).iterator(); all.hasNext();) {
                this.unheard.clear(((Number) all.next()).intValue());
            }
            this.unheard.andNot(this.ended);
        }
    }

    /** Stops listening, and forgets the queries that were noted or lost: the next attach starts to count anew. */
    public synchronized void detach() throws Exception {
        this.leave();
        this.search = null;
        this.store = null;
        this.reports.clear();
        this.plans.clear();
        this.lost = false;
    }

    private void leave() throws Exception {
        if (this.announcements != null) {
            this.announcements.leave();
            this.announcements = null;
        }
    }

    /** The number that the next query gets. */
    public long next() {
        return this.next.get();
    }

    void posted(SparkListenerEvent event) {
        String kind = event.getClass().getName();
        if (kind.equals(EVENTS + "Start")) {
            this.started(event);
        } else if (kind.equals(EVENTS + "End")) {
            this.ended(event);
        }
    }

    private void started(SparkListenerEvent event) {
        int number = -1;
        boolean ofStream = true;
        try {
            number = ((Long) Members.call(event, "executionId")).intValue();
            scala.Option root = (scala.Option) Members.call(event, "rootExecutionId");
            ofStream = root.isDefined() && ((Number) root.get()).intValue() != number && this.mayBeOfStream(root.get());
        } catch (Throwable unknown) {
            // of a stream, if in doubt
        }
        if (ofStream && number >= 0) {
            synchronized (this) {
                this.ofStreams.set(number);
            }
        }
    }

    private boolean mayBeOfStream(Object root) {
        Object execution = this.running.get(Long.valueOf(((Number) root).longValue()));
        return execution == null || isOfStream(execution);
    }

    private static boolean isOfStream(Object execution) {
        return Members.kind(execution).equals("IncrementalExecution");
    }

    private void ended(SparkListenerEvent event) {
        String number = "-1";
        String shuffles = "?";
        Object execution = null;
        try {
            number = Members.call(event, "executionId").toString();
            execution = Members.call(event, "qe");
            shuffles = this.shuffles(execution);
        } catch (Throwable unknown) {
            // may have had any shuffles
        }
        this.note(number, shuffles, execution);
        this.noteFailure(event, execution);
    }

    synchronized void noteFailure(SparkListenerEvent event, Object execution) {
        this.failures.remove(Thread.currentThread());
        try {
            if (execution != null && ((scala.Option) Members.call(event, "executionFailure")).isDefined()) {
                this.failures.put(Thread.currentThread(), this.token(execution));
            }
        } catch (Exception unknown) {
            // not known to have failed
        }
    }

    /** The token of this thread's last query, if that has failed; empty text otherwise. */
    public synchronized String failed() {
        Object token = this.failures.get(Thread.currentThread());
        return token == null ? "" : token.toString();
    }

    /**
     * Notes a query of this thread that Spark does not announce.
     *
     * @param position between the numbers of others
     */
    public void ended(Object execution, String position) {
        String shuffles = "?";
        try {
            shuffles = this.shuffles(execution);
        } catch (Throwable unknown) {
            // may have had any shuffles
        }
        this.note(position, shuffles, execution);
    }

    // not private: Janino makes a private method static, and so its lock the class's
    synchronized void note(String number, String shuffles, Object execution) {
        int announced = number.indexOf('.') < 0 ? Integer.parseInt(number) : -1;
        if (!shuffles.isEmpty()) {
            String token = execution == null ? "0" : this.token(execution);
            boolean ofStream = announced >= 0 && this.ofStreams.get(announced);
            this.reports.add(number + (ofStream ? " stream " : " - ") + token + " " + application(execution) + shuffles);
            this.plans.add(new Object[] {token, execution});
            if (this.plans.size() > this.held) {
                this.plans.removeFirst();
            }
            if (this.reports.size() > MOST) {
                this.reports.removeFirst();
                this.lost = true;
            }
        }
        if (announced >= 0) {
            this.ended.set(announced);
        }
        this.notifyAll();
    }

    private static String application(Object execution) {
        try {
            Object context = Members.call(Members.call(execution, "sparkSession"), "sparkContext");
            return ((SparkContext) context).applicationId();
        } catch (Exception unknown) {
            return "-";
        }
    }

    /** A number of a query that no other query has. */
    public synchronized String token(Object execution) {
        if (!this.tokens.containsKey(execution)) {
            this.given++;
            this.tokens.put(execution, Integer.valueOf(this.given));
        }
        return this.tokens.get(execution).toString();
    }

    /**
     * The queries noted since the last call, a line for each: its number, where it belongs, its token, its application,
     * and its shuffles. A line ! if some were forgotten.
     */
    public synchronized String reports() {
        StringBuilder answer = new StringBuilder(this.lost ? "!\n" : "");
        for (Iterator all = this.reports.iterator(); all.hasNext();) {
            answer.append(all.next()).append('\n');
        }
        this.reports.clear();
        return answer.toString();
    }

    /** A noted query; null if it is no longer held. */
    public synchronized Object plan(String token) {
        for (Iterator all = this.plans.iterator(); all.hasNext();) {
            Object[] each = (Object[]) all.next();
            if (each[0].equals(token)) {
                return each[1];
            }
        }
        return null;
    }

    /** Releases a noted query. */
    public synchronized void release(String token) {
        for (Iterator all = this.plans.iterator(); all.hasNext();) {
            if (((Object[]) all.next())[0].equals(token)) {
                all.remove();
            }
        }
    }

    /** Waits until each query from one number to before another one runs or was noted; returns whether that is so. */
    public synchronized boolean allKnown(long from, long to, long millis) throws Exception {
        long until = System.currentTimeMillis() + millis;
        while (!this.accounted(from, to)) {
            long left = until - System.currentTimeMillis();
            if (left <= 0) {
                return false;
            }
            this.wait(Math.min(left, 20));
        }
        return true;
    }

    private boolean accounted(long from, long to) throws Exception {
        for (int number = this.ended.nextClearBit((int) from); number < to; number = this.ended.nextClearBit(number + 1)) {
            if (!this.running.containsKey(Long.valueOf(number)) && !(this.unheard.get(number) && this.recorded(number))) {
                return false;
            }
        }
        return true;
    }

    /**
     * Whether Spark has a record of a query that ended before this listened. If it may have called functions, it is
     * lost.
     */
    private boolean recorded(int number) throws Exception {
        Object[] wanted = new Object[] {Long.valueOf(number)};
        scala.Option record = (scala.Option)
                Members.call(this.store, Members.method(this.store.getClass(), "execution", 1), wanted);
        if (!record.isDefined()) {
            return false;
        }
        String plan = Members.call(record.get(), "physicalPlanDescription").toString();
        if (Members.saysFunctions(plan) || plan.contains("InMemory") || plan.contains(" more characters")) {
            this.lost = true;
        }
        this.ended.set(number);
        return true;
    }

    /**
     * The running queries that may have shuffles whose tasks call functions, a line for each: number, where it belongs,
     * token, application, and its shuffles as planned; ? for those of a query that Spark has not announced yet.
     *
     * @param announced those that Spark has announced
     */
    public String running(Map announced) {
        StringBuilder answer = new StringBuilder();
        for (Iterator all = new ArrayList(this.running.entrySet()).iterator(); all.hasNext();) {
            Map.Entry entry = (Map.Entry) all.next();
            String shuffles = " ?";
            try {
                shuffles = announced.containsKey(entry.getKey()) ? this.planned(entry.getValue()) : " ?";
            } catch (Exception unknown) {
                // may have any shuffles
            }
            if (!shuffles.isEmpty()) {
                answer.append(entry.getKey()).append(" - ").append(this.token(entry.getValue()));
                answer.append(" -").append(shuffles).append('\n');
            }
        }
        return answer.toString();
    }

    private String planned(Object execution) throws Exception {
        StringBuilder answer = new StringBuilder();
        Object plan = isOfStream(execution) ? null : Members.call(execution, "executedPlan");
        if (plan != null && this.callsFunctions(plan)) {
            for (Iterator titles = this.plannedIn(plan).keySet().iterator(); titles.hasNext();) {
                answer.append(" *:").append(titles.next()).append(":-");
            }
        }
        return answer.toString();
    }

    /**
     * The shuffles of a query that call functions, each as key:title:number; those of its plan that did not run have no
     * number, and * as their key.
     */
    private String shuffles(Object execution) throws Exception {
        StringBuilder answer = new StringBuilder();
        Object plan = isOfStream(execution) ? null : planOf(execution);
        if (plan == null || !this.callsFunctions(plan)) {
            return "";
        }
        Map planned = this.plannedIn(plan);
        Object found = this.found(plan, Members.call(execution, "sparkSession"));
        String[] lines = Members.call(found, "lines").toString().split("\n");
        java.lang.reflect.Method part = Members.method(found.getClass(), "part", 2);
        for (int i = 0; i < lines.length; i++) {
            String[] words = lines[i].split(" ");
            if (words.length == 2 && words[1].equals("-")) {
                Object exchange = Members.call(found, part, new Object[] {Integer.valueOf(i), Integer.valueOf(0)});
                String key = this.key(exchange);
                if (!key.isEmpty()) {
                    answer.append(' ').append(key).append(':').append(words[0]);
                    Set left = (Set) planned.get(key.substring(key.indexOf(':') + 1));
                    if (left != null && !left.isEmpty()) {
                        left.remove(left.iterator().next());
                    }
                }
            }
        }
        for (Iterator all = planned.entrySet().iterator(); all.hasNext();) {
            Map.Entry entry = (Map.Entry) all.next();
            if (!((Set) entry.getValue()).isEmpty()) {
                answer.append(" *:").append(entry.getKey()).append(":-");
            }
        }
        return answer.toString();
    }

    /** The plan of a query that has ended; null if Spark could not plan it, so that nothing of it ran. */
    private static Object planOf(Object execution) {
        try {
            return Members.call(execution, "executedPlan");
        } catch (Exception failed) {
            return null;
        }
    }

    private boolean callsFunctions(Object plan) throws Exception {
        java.lang.reflect.Method method = Members.method(this.search.getClass(), "callsFunctions", 1);
        return ((Boolean) Members.call(this.search, method, new Object[] {plan})).booleanValue();
    }

    private Object found(Object plan, Object session) throws Exception {
        java.lang.reflect.Method method = Members.method(this.search.getClass(), "search", 3);
        return Members.call(this.search, method, new Object[] {plan, session, ""});
    }

    /** By title, the canonical forms of the shuffles in the initial plan, except for those of cached frames. */
    private Map plannedIn(Object root) throws Exception {
        Map planned = new HashMap();
        ArrayDeque pending = new ArrayDeque();
        pending.push(root);
        while (!pending.isEmpty()) {
            Object node = pending.pop();
            String kind = Members.kind(node);
            if (kind.equals("ShuffleExchangeExec")) {
                String key = this.key(node);
                if (!key.isEmpty()) {
                    String title = key.substring(key.indexOf(':') + 1);
                    if (!planned.containsKey(title)) {
                        planned.put(title, new HashSet());
                    }
                    ((Set) planned.get(title)).add(Members.call(node, "canonicalized"));
                }
            }
            if (!kind.equals("InMemoryTableScanExec")) {
                pending.addAll(below(node, kind));
            }
        }
        return planned;
    }

    /**
     * A shuffle's partitioning, and the functions and files below it: key:title, each as a digest; empty if it calls
     * none.
     */
    public String key(Object exchange) throws Exception {
        if (!this.callsFunctions(exchange)) {
            return "";
        }
        Object partitioning = Members.call(exchange, "outputPartitioning");
        StringBuilder title = new StringBuilder(Members.kind(partitioning));
        if (Members.kind(partitioning).equals("HashPartitioning")) {
            for (Iterator keys = Members.items(Members.call(partitioning, "expressions")).iterator(); keys.hasNext();) {
                Object key = keys.next();
                boolean named = Members.kind(key).equals("AttributeReference") || Members.kind(key).equals("Alias");
                title.append('\n').append(Members.call(key, named ? "name" : "prettyName"));
            }
        }
        Set parts = new TreeSet();
        ArrayDeque pending = new ArrayDeque();
        pending.push(exchange);
        while (!pending.isEmpty()) {
            Object node = pending.pop();
            String kind = Members.kind(node);
            if (Members.saysFunctions(kind)) {
                functions(node, parts);
            } else if (kind.equals("FileSourceScanExec")) {
                Object location = Members.call(Members.call(node, "relation"), "location");
                parts.add("files " + Members.items(Members.call(location, "rootPaths")));
            } else if (kind.equals("InMemoryTableScanExec")) {
                pending.push(Members.call(Members.call(node, "relation"), "cachedPlan"));
            }
            pending.addAll(below(node, kind));
        }
        return digest(title + "\n" + parts) + ":" + digest(title.toString());
    }

    private static void functions(Object node, Set names) throws Exception {
        ArrayDeque pending = new ArrayDeque(Members.items(Members.call(node, "expressions")));
        while (!pending.isEmpty()) {
            Object expression = pending.pop();
            if (Members.kind(expression).startsWith("PythonUD")) {
                names.add("function " + Members.call(expression, "name"));
            }
            pending.addAll(Members.items(((TreeNode) expression).children()));
        }
    }

    private static List below(Object node, String kind) throws Exception {
        List below = Members.below(node);
        if (kind.equals("CommandResultExec")) {
            below.add(Members.call(node, "commandPhysicalPlan"));
        }
        return below;
    }

    private static String digest(String text) {
        return DigestUtils.sha256Hex(text).substring(0, 32);
    }
}
