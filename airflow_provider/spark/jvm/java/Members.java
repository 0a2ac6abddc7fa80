package airflow_provider;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.catalyst.trees.TreeNode;

/**
 * Members of objects whose classes differ between versions of Spark, or are not public; looked up once for each class.
 */
public final class Members {
    private static final Map METHODS = new HashMap();
    private static final Map FIELDS = new HashMap();

    private Members() {}

    /** Returns the result of a method without parameters. */
    public static Object call(Object owner, String name) throws Exception {
        return call(owner, method(owner.getClass(), name, 0), new Object[0]);
    }

    /** Returns the result of a method; throws what it throws. */
    public static Object call(Object owner, Method method, Object[] arguments) throws Exception {
        try {
            return method.invoke(owner, arguments);
        } catch (InvocationTargetException failed) {
            if (failed.getCause() instanceof Exception) {
                throw (Exception) failed.getCause();
            }
            throw failed;
        }
    }

    /** A public method with that many parameters; null if there is none. */
    public static Method method(Class owner, String name, int count) {
        String key = name + " " + count;
        synchronized (METHODS) {
            Map known = of(METHODS, owner);
            if (!known.containsKey(key)) {
                Method[] methods = owner.getMethods();
                for (int i = 0; i < methods.length && !known.containsKey(key); i++) {
                    if (methods[i].getName().equals(name) && methods[i].getParameterCount() == count) {
                        methods[i].setAccessible(true);
                        known.put(key, methods[i]);
                    }
                }
            }
            return (Method) known.get(key);
        }
    }

    /** The value of a private field of an object's class, or of a class that this extends: a lazy value may be null. */
    public static Object field(Object owner, String name) throws Exception {
        Field field;
        synchronized (FIELDS) {
            Map known = of(FIELDS, owner.getClass());
            for (Class from = owner.getClass(); from != null && !known.containsKey(name); from = from.getSuperclass()) {
                Field[] fields = from.getDeclaredFields();
                for (int i = 0; i < fields.length; i++) {
                    if (fields[i].getName().equals(name)) {
                        fields[i].setAccessible(true);
                        known.put(name, fields[i]);
                    }
                }
            }
            field = (Field) known.get(name);
        }
        if (field == null) {
            throw new NoSuchFieldException(owner.getClass().getName() + " has no field " + name);
        }
        return field.get(owner);
    }

    /** The name of an object's class, without the package. */
    public static String kind(Object owner) {
        String name = owner.getClass().getName();
        return name.substring(name.lastIndexOf('.') + 1);
    }

    /** The elements of a Scala sequence. */
    public static List items(Object sequence) {
        List items = new ArrayList();
        scala.collection.Iterator each = ((scala.collection.Seq) sequence).iterator();
        while (each.hasNext()) {
            items.add(each.next());
        }
        return items;
    }

    /** Everything below a node of a physical plan: children, subqueries, and what stages and references stand for. */
    public static List below(Object node) throws Exception {
        List below = new ArrayList(items(((TreeNode) node).children()));
        below.addAll(items(call(node, "subqueries")));
        Object plan = behind(node);
        if (plan != null) {
            below.add(plan);
        }
        return below;
    }

    /** What a stage or a reference in a physical plan stands for; null for any other node. */
    public static Object behind(Object node) throws Exception {
        String kind = kind(node);
        if (kind.equals("AdaptiveSparkPlanExec")) {
            return call(node, "initialPlan");
        }
        if (kind.endsWith("QueryStageExec")) {
            return call(node, "plan");
        }
        return kind.equals("ReusedExchangeExec") || kind.equals("ReusedSubqueryExec") ? call(node, "child") : null;
    }

    /** What a node of a physical plan stands for in the end. */
    public static Object unwrapped(Object node) throws Exception {
        Object plan = node;
        Object behind = behind(node);
        while (behind != null) {
            plan = behind;
            behind = behind(plan);
        }
        return plan;
    }

    /** Whether a physical plan reads nothing but files and rows that it holds itself: no shuffle, no broadcast. */
    public static boolean readsFiles(Object plan) throws Exception {
        List children = items(((TreeNode) plan).children());
        String kind = kind(plan);
        boolean leaf = kind.equals("FileSourceScanExec") || kind.equals("LocalTableScanExec") || kind.equals("RangeExec");
        if (children.isEmpty() && !leaf || kind.endsWith("ExchangeExec") || !items(call(plan, "subqueries")).isEmpty()) {
            return false;
        }
        for (int i = 0; i < children.size(); i++) {
            if (!readsFiles(children.get(i))) {
                return false;
            }
        }
        return true;
    }

    /** Whether a node of this kind, or a printed plan, calls Python functions. */
    public static boolean saysFunctions(String kind) {
        return kind.contains("Python") || kind.contains("Pandas") || kind.contains("Arrow");
    }

    private static Map of(Map known, Class owner) {
        if (!known.containsKey(owner)) {
            known.put(owner, new HashMap());
        }
        return (Map) known.get(owner);
    }
}
